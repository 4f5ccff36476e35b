#!/bin/bash
# A long run as a chain of jobs, each going on where the one before was stopped: for sites that do not requeue jobs.
#
#   slurm/chain.sh --links 6 -A my_account -n 17 -t 4:00:00 job.toml --set "checkpoint.every=10 min"
#
#   slurm/chain.sh [--links N] [options of sbatch] job.toml [options of mpijoin run]
#
# Submits N jobs (default 10) of join.sbatch with --resume and prints their numbers. A link begins when the one before has been
# stopped at a checkpoint (75), at the time limit, by a node failure or by scancel. When one is done, or ends with 2 or 3
# because the job or its output is wrong, those after it leave the queue. If the last one has not done it: chain.sh once more.
#
# Why all at once: nothing has to stay logged in, compute nodes need not be allowed to submit, and it is the scheduler that ends
# the chain. Each link depends on the failure of all before it (afternotok); once one ends well that can never be, and
# --kill-on-invalid-dep removes the rest.
#
# Settings from the environment as in join.sbatch.
set -euo pipefail

usage="use: slurm/chain.sh [--links N] [options of sbatch] job.toml [options of mpijoin run]"
join="$(dirname "${BASH_SOURCE[0]}")/join.sbatch"
links=10
options=()

fail() {
    echo "chain.sh: $1" >&2
    exit 2
}

while [ $# -gt 0 ] && [[ "$1" != *.toml ]]; do
    case "$1" in
        -h | --help) echo "$usage" && exit 0 ;;
        --links) links="${2:-}" && shift ;;
        --links=*) links="${1#*=}" ;;
        *) options+=("$1") ;;
    esac
    shift $(($# > 0))
done
[ $# -gt 0 ] || fail "no job file; $usage"
[[ "$links" =~ ^[1-9][0-9]*$ ]] || fail "--links: got \"$links\", wanted a number from 1 on"
arguments=()
for one in "$@"; do
    # The second link would remove what the first has done; and a first one that does not get that far would leave it to the
    # second to believe the old results.
    [ "$one" != --overwrite ] || fail "--overwrite: a chain goes on with what is there; to begin anew remove the run directory"
    [ "$one" = --resume ] || arguments+=("$one")
done

export MPIJOIN_CHAIN=1 MPIJOIN_REQUEUE=0
submitted=()
for ((link = 1; link <= links; link++)); do
    after=()
    if [ "$link" -gt 1 ]; then
        after=("--dependency=$(printf ',afternotok:%s' "${submitted[@]}" | cut -c 2-)" --kill-on-invalid-dep=yes)
    fi
    if ! number="$(sbatch --parsable "${options[@]}" "${after[@]}" "$join" "${arguments[@]}" --resume)"; then
        [ "${#submitted[@]}" -eq 0 ] || scancel "${submitted[@]}"
        fail "link $link cannot be submitted; none is left in the queue"
    fi
    submitted+=("${number%%;*}")
done
echo "submitted ${submitted[*]}; to end the chain: scancel $(printf '%s\n' "${submitted[@]}" | tac | paste -s -d ' ')"
