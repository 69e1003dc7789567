"""Bucket: what it holds is read, combined with the signed rows, and written."""
