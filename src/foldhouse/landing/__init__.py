"""A landing folder: one CSV file a day, read into events and quarantined lines."""

from foldhouse.landing.folder import Landed, Landing
from foldhouse.landing.format import CsvColumn, CsvFormat, replaced
from foldhouse.landing.limits import Limits
from foldhouse.landing.origin import origin_of
from foldhouse.landing.quarantine import QUARANTINE_SCHEMA, QUARANTINE_TYPES

__all__ = [
    "QUARANTINE_SCHEMA",
    "QUARANTINE_TYPES",
    "CsvColumn",
    "CsvFormat",
    "Landed",
    "Landing",
    "Limits",
    "origin_of",
    "replaced",
]
