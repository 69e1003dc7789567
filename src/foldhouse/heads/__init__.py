"""Heads: what the newest commit of a stored table says of it: its kind, position, coverage and definition."""
