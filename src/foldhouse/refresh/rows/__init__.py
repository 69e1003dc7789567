"""Rows: a table's logic evaluated over its sources, with a sign for what was and what is."""
