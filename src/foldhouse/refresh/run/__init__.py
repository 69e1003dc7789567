"""Run: divide signed rows among buckets and fold them, in this process or in Spark tasks."""
