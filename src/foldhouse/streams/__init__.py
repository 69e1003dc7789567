"""Streams: events appended, days restated, columns that change, batches that are known again."""
