#!/usr/bin/env bash
# Statement and branch coverage of the package, kernels included:  bash scripts/coverage.sh [OUT]
# The tests run with the compiler off, so that Python sees every line of the kernels; then the contract of the transport and
# one small job run under mpirun. The figures are put together, written to OUT (default coverage.txt in a temporary folder)
# and must be above 90 % for the whole and 100 % for what decides: cores, directory, codec, check.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
# Not one of the extras: where it is installed, Numba loads it in every process, which takes 25 ms of each start.
python -m pip install --quiet --disable-pip-version-check --target .venv/coverage "coverage[toml]>=7.5"

folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
out="${1:-$(mktemp -d)/coverage.txt}"
export COVERAGE_FILE="$folder/data" PYTHONPATH="$PWD:$PWD/.venv/coverage"
measured=(python -m coverage run -m)

# Tests of the scripts start processes of their own, which would crawl without the compiler.
NUMBA_DISABLE_JIT=1 "${measured[@]}" pytest -q -p no:cacheprovider \
    --ignore=tests/{mpi,paper,scenarios,scripts,slurm,spark} tests

if command -v mpirun > /dev/null; then
    mpirun -n 3 "${measured[@]}" mpi4py -m pytest -q -p no:cacheprovider tests/contracts
    cat > "$folder/job.toml" <<JOB
[left]
path = "$PWD/tests/data/italy_picks/left.parquet"
time_unit = "us"
window = "20 s"
[right]
path = "$PWD/tests/data/italy_picks/right.parquet"
time_unit = "us"
[output]
path = "$folder/run"
JOB
    for results in parquet collect count; do
        mpirun -n 3 "${measured[@]}" mpijoin run "$folder/job.toml" --overwrite --set "output.results=\"$results\""
    done
fi

python -m coverage combine --quiet "$folder"
python -m coverage report --fail-under 90 | tee "$out"
python -m coverage report --fail-under 100 \
    --include '*/producer/core.py,*/coordinator/core.py,*/slave/core.py,*/store/directory.py,*/data/codec.py,*/config/check.py'
