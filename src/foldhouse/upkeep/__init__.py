"""Upkeep: compact files, expire and thin snapshots, remove orphans."""
