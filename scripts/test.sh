#!/usr/bin/env bash
# Run the tests in an environment of their own:  bash scripts/test.sh [pytest arguments]
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
exec python -m pytest "$@"
