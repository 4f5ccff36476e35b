"""Runs a command and says, as the last line on stderr, the CPU seconds of it and of all processes that it started.

    python cpu_of.py COMMAND [ARGUMENT ...]

Those that outlive their parent, as a Java started by a Python does, come to this process, which waits for them.
"""

from __future__ import annotations

import ctypes
import os
import resource
import subprocess
import sys

PR_SET_CHILD_SUBREAPER = 36  # of Linux's prctl


def main() -> int:
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    code = subprocess.run(sys.argv[1:], check=False).returncode
    try:
        while True:
            os.wait()
    except ChildProcessError:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{used.ru_utime + used.ru_stime:.2f}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
