"""Commits: tables that are behind their sources are refreshed, whoever committed; off until it is switched on."""

from foldhouse.dagster import commit_sensor
from jobs.lag import TABLES
from resources.landing import daily

commits = commit_sensor("commits", TABLES, partitions_def=daily)
