"""Reading: the changes of a table, and the rows that it leaves out."""
