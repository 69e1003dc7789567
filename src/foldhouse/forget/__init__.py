"""Forgetting a subject: its rows leave a stream, all tables downstream, their history and the files."""
