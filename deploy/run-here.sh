#!/usr/bin/env bash
# Starts the parts of deploy/compose.yaml without containers, runs days of retail, kills each part once, and compares
# all tables with DuckDB: deploy/run-here.sh --help
set -euo pipefail
cd "$(dirname "$0")/.."
exec .venv/bin/python -m deploy.here "$@"
