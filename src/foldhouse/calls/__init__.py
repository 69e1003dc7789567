"""Calls: what a caller gave is checked, and what a library fails with is said in our words."""
