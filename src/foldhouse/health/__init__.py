"""How every table of a lake is: read from metadata, tolerant of damage."""
