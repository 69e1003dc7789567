"""Bucket: read its stored rows, combine them with signed rows, and write the result."""
