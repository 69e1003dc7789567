"""Commits: tables that are behind their sources are refreshed, whoever committed; off until it is switched on."""

import dagster as dg

import assets
from foldhouse.dagster import commit_sensor, days_by_table
from jobs.lag import TABLES

commits = commit_sensor("commits", TABLES, partitions_def=days_by_table(dg.load_assets_from_package_module(assets)))
