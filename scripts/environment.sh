# Sourced by the other scripts: goes to the repository's folder, makes .venv there if need be, and activates it.
# PYTHON chooses the interpreter (3.11 or newer); without it the first one found is taken.

cd "$(dirname "${BASH_SOURCE[0]}")/.."

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

find_python() {
    # Not the one of .venv, which may be about to go.
    local name PATH="${PATH//"$PWD/.venv/bin:"/}"
    for name in ${PYTHON:-python3.11 python3 python3.12 python3.13 python}; do
        if is_new_enough "$name"; then command -v "$name"; return; fi
    done
    echo "no Python 3.11 or newer found (tried: ${PYTHON:-python3.11, python3, python3.12, python3.13, python});" \
        "name one with PYTHON=/path/to/python3 bash $0" >&2
    return 1
}

make_environment() {
    local python stamp=.venv/installed wanted
    python="$(find_python)"
    # What an installation depends on: made again when any of it changes.
    wanted="$({ cat setup.cfg; sed -n '/^\[build-system\]/,/^$/p' pyproject.toml; } | cksum) $python $PWD"
    if [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$wanted" ]; then return; fi
    echo "making .venv with $python and installing mpijoin with its extras (some minutes on a slow network)" >&2
    rm -rf .venv
    "$python" -m venv .venv || {
        echo "$python cannot make environments; on Debian and Ubuntu: apt install python3-venv" >&2
        return 1
    }
    .venv/bin/python -m pip install --quiet --disable-pip-version-check -e ".[all]"
    printf '%s\n' "$wanted" > "$stamp"
}

make_environment
# Activated, so that mpirun, mpijoin and python are those of this environment.
export VIRTUAL_ENV="$PWD/.venv" PATH="$PWD/.venv/bin:$PATH"
unset PYTHONHOME
