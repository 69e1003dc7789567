"""Refresh: plan a window, fold it, commit it. Here folds and storage meet."""
