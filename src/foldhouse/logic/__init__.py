"""Logic: check a declaration and find its columns, keys and joins, by the plan that Spark makes of it."""
