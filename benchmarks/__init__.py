"""The figures, and the peers they are measured against. Run with `make bench`."""
