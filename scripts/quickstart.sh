#!/usr/bin/env bash
# From nothing but Python 3.11 to a finished join of real data:  bash scripts/quickstart.sh
# Installs into .venv, joins one day of earthquake arrivals on four processes, shows what came out, and checks it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"

step() { printf '\n== %s\n' "$1"; shift; printf '$ %s\n' "$*"; "$@"; }

step "1. Is the job sound?" \
    mpijoin check scripts/jobs/seismic.toml
step "2. Join P and S arrivals: one master and three slaves" \
    mpirun -n 4 mpijoin run scripts/jobs/seismic.toml --overwrite
step "3. What came out" \
    python scripts/seismic_report.py runs/seismic
step "4. Join again with DuckDB, and compare every row and column" \
    mpijoin verify runs/seismic

cat <<'END'

Next: copy scripts/jobs/seismic.toml, put your own files in it, and read README.md, "The job file".
END
