#!/usr/bin/env bash
# Run the tests in an environment of their own:  bash scripts/test.sh [pytest arguments]
# PYTHON chooses the interpreter that .venv is made with (3.11 or newer; default python3.11, else python3).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

python="${PYTHON:-$(command -v python3.11 || command -v python3)}"
stamp=.venv/installed
# What an installation depends on: made again when any of it changes.
wanted="$(cat setup.cfg pyproject.toml | cksum) $python"

if [ ! -f "$stamp" ] || [ "$(cat "$stamp")" != "$wanted" ]; then
    rm -rf .venv
    "$python" -m venv .venv
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[all]"
    printf '%s\n' "$wanted" > "$stamp"
fi

# Activated, so that tests which start mpirun find that of this environment.
PATH="$PWD/.venv/bin:$PATH" exec .venv/bin/python -m pytest "$@"
