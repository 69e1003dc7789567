"""The jobs, schedules and sensors."""
