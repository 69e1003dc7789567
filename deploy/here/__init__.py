"""The parts of a deployment on one machine, without containers: `deploy/run-here.sh`."""
