"""Window: the changes of the sources, and the rows of a table that they can affect."""
