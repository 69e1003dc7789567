"""The assets, in the order in which data flows: one file per subject."""
