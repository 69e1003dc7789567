"""Run: signed rows brought to their buckets and folded there, in this process or in Spark's tasks."""
