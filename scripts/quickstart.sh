#!/usr/bin/env bash
# From nothing but Python 3.11 to a finished join of real data:  bash scripts/quickstart.sh
# Installs into .venv, joins one day of earthquake arrivals on four processes, shows what came out, and checks it; then makes
# streams with Spark, tells what joining them will give, and joins them.
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

step "5. Spark makes two streams with bursts and skewed keys" \
    mpijoin generate scripts/jobs/bursts.toml -o runs/bursts-data --overwrite
step "6. What are they like, and what will joining them give?" \
    mpijoin profile runs/bursts-data/job.toml -o runs/bursts-profile --overwrite
step "7. Join them, by the job that the profile left" \
    mpirun -n 3 mpijoin run runs/bursts-profile/job.toml --overwrite
step "8. Was the profile right?" \
    python scripts/compare_with_profile.py runs/bursts-profile runs/bursts

cat <<'END'

Next: copy scripts/jobs/seismic.toml, put your own files in it, and read "The job file" in README.md.
END
