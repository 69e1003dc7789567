"""What exists, in the order data flows: one file a subject."""
