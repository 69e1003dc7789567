"""Refresh: plan a window, fold it, commit it. This package applies folds to stored tables."""
