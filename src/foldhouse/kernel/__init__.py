"""The kernel: pure functions over Polars frames. It knows no storage and no Spark."""
