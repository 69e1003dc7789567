"""Proofs: the history of each table is one chain; read from metadata whenever the table is refreshed."""

from foldhouse.dagster import gapless_check
from jobs.lag import TABLES

checks = [gapless_check(table) for table in TABLES]
