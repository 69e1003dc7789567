"""Logic: what a declaration means, judged by the plan that Spark makes of it."""
