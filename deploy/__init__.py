"""A deployment of foldhouse that a team copies; `deploy.here` starts its parts on one machine."""
