"""Storage: Iceberg tables, their live files, and the commit. It knows no fold."""
