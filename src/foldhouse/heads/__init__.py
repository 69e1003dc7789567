"""Heads: the kind, position, coverage, definition and number of rows of a table, read from its newest commit."""
