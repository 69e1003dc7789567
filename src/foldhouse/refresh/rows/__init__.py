"""Rows: evaluate a table's logic over its sources; added rows have the weight +1, removed rows -1."""
