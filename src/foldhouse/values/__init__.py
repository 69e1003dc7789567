"""Values: streams, tables, folds, windows. Frozen, without I/O."""
