"""Spark: the session, source files as DataFrames, and what `rows` makes of them."""
