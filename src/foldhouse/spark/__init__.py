"""Spark: the session, source files as DataFrames, and the translation of types and errors."""
