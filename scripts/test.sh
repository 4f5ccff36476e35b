#!/usr/bin/env bash
# Run the tests in an environment of their own:  bash scripts/test.sh [pytest arguments]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
if [ $# -gt 0 ]; then
    exec python -m pytest "$@"
fi
# Runs that are broken and timed on purpose want the machine for themselves; all other tests share it.
alone=(tests/mpi tests/scenarios tests/slurm)
failed=0
ruff check . || failed=$?
python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile "${alone[@]/#/--ignore=}" || failed=$?
python -m pytest "${alone[@]}" || failed=$?
exit "$failed"
