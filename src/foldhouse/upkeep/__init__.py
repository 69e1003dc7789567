"""Upkeep: files compacted, snapshots expired and thinned, orphans removed."""
