"""Streams: append events, replace days, change columns, and recognise batches that were already appended."""
