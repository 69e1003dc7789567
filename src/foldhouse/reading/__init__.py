"""Reading: the rows and changes of a table, and the rows that were left out of it."""
