"""Lag: which tables are behind their sources, whoever committed; on from the start, as it starts no run."""

import assets
from foldhouse.dagster import lag_check, lag_sensor, tables_in

TABLES = tables_in(assets)

checks = [lag_check(table) for table in TABLES]
lag = lag_sensor("lag", TABLES)
