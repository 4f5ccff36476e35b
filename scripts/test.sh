#!/usr/bin/env bash
# usage: bash scripts/test.sh             ruff, mypy and every test, as continuous integration does (20 to 25 minutes)
#        bash scripts/test.sh --fast      ruff, mypy and the most telling tests (below 90 s on two cores)
#        bash scripts/test.sh ARGUMENTS   pytest with these arguments, such as tests/join -x
#        bash scripts/test.sh --help      this text
# All of it in an environment of its own, .venv, which is made first if need be.
set -euo pipefail
if [ "${1:-}" = --help ]; then
    sed -n '2,/^set /{/^set /!s/^# //p}' "${BASH_SOURCE[0]}"
    exit 0
fi
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
# Some machines tell Python to keep no compiled modules. Then each process that a test starts would compile all of
# mpijoin again, which takes half of the time that its imports take.
unset PYTHONDONTWRITEBYTECODE
# Nothing that is tested uses NumPy's linear algebra, whose threads cost each process as much time as NumPy's import.
export OPENBLAS_NUM_THREADS=1

# What the fast lane runs: the rules of the house, what each part promises the others, every decision that a core or a
# policy makes, the join and the engine against the slow oracle, and one run under MPI.
fast=(
    tests/test_layers.py tests/contracts tests/scenarios/test_scenarios.py
    tests/config tests/data/test_codec.py tests/data/test_record.py tests/partitioning tests/metrics
    tests/test_messages.py tests/coordinator tests/producer tests/slave tests/policy tests/moving
    tests/sources/test_files.py tests/sources/test_late.py tests/sources/test_position.py
    tests/simulate/test_engine.py tests/simulate/test_modelled.py tests/simulate/test_transport.py
    tests/checkpoint/test_files.py tests/checkpoint/test_results.py tests/checkpoint/test_rules.py
    tests/checkpoint/test_saver.py tests/checkpoint/test_resume.py::test_kills_on_purpose_do_not_come_again
    tests/checkpoint/test_resume.py::test_a_paced_run_goes_on_with_what_waited
    tests/store tests/join tests/property/test_mway.py
    tests/property/test_window_join.py::test_the_result_is_the_oracles_and_every_tuple_expires
    tests/property/test_window_join.py::test_no_setting_and_no_cut_changes_the_result
    tests/property/test_engine.py::test_counting_needs_no_payload_and_counts_the_same
    tests/test_api.py tests/test_cli.py
    "tests/mpi/test_engine_mpi.py::test_any_number_of_ranks_gives_the_same[4-collect]"
)
# Tests of how soon something happens want the machine for themselves. All others run side by side, more of them than
# there are cores, because much of their time goes by while Java, ranks or Slurm start.
timed=(tests/mpi/test_failures.py tests/scenarios/test_failures_local.py tests/scenarios/test_trouble.py)

failed=0
cores=$(nproc)
shared=(python -m pytest --numprocesses $((cores < 3 ? cores + 2 : 4)) --dist loadfile --no-loadscope-reorder)
case "${1:-}" in
    "" | --fast)
        ruff check . || failed=$?
        # Beside the tests, because it takes half a minute of one core. What it says comes last.
        types="$(mktemp)"
        mypy > "$types" 2>&1 &
        ;;&
    "")
        "${shared[@]}" "${timed[@]/#/--ignore=}" || failed=$?
        python -m pytest "${timed[@]}" || failed=$?
        ;;&
    --fast) "${shared[@]}" "${fast[@]}" || failed=$? ;;&
    "" | --fast)
        wait $! || failed=$?
        cat "$types"
        rm "$types"
        ;;
    *) python -m pytest "$@" || failed=$? ;;
esac
exit "$failed"
