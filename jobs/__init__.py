"""What runs, when and why."""
