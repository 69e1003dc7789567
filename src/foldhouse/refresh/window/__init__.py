"""Window: what changed in the sources, and which rows of a table it can affect."""
