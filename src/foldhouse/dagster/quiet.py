"""Silences Dagster's beta and preview warnings, which would otherwise fill a newcomer's first screen."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import dagster as dg


@contextmanager
def without_beta_warnings() -> Iterator[None]:
    """Declare with what Dagster calls beta or preview (backfill policies) without a warning at every use."""
    with warnings.catch_warnings():
        for category in (dg.BetaWarning, dg.PreviewWarning):
            warnings.simplefilter("ignore", category)
        yield
