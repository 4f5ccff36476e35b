"""Limits that the system sets to a process, and errors that mean that one of them was reached."""

from __future__ import annotations

import errno
import resource
from contextlib import suppress
from math import inf

from mpijoin.errors import EXIT_BAD_JOB, EXIT_FAILED, MpijoinError

OPEN_FILES_MAX = 65536  # more than any join opens at once, and few enough for programs that look through all numbers
# What importing says where there is no address space left to map a library into.
# of address space, besides [memory] limit: 0.7 GB with two slaves, 1.2 GB with eight or when it compiles
PROGRAM_BYTES = 1 << 30
UNMAPPED = ("failed to map segment", "Cannot allocate memory", "libllvmlite")
NO_THREAD = "can't start new thread"


class LimitError(MpijoinError):
    """The system refuses what the run needs: names the limit, and what to do."""

    def __init__(self, message: str, exit_code: int = EXIT_BAD_JOB):
        super().__init__(message)
        self.exit_code = exit_code


def allow_open_files() -> None:
    """Lets this process have as many files open as the system would allow it if asked. Files of a stream that overlap
    in time are open together, and the usual limit of 1024 only protects programs that cannot count further."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES_MAX if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES_MAX)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def check_address_space() -> None:
    """Raises LimitError if there is too little for the program itself, since libraries would end it without a word of
    ours."""
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed != resource.RLIM_INFINITY and allowed < PROGRAM_BYTES:
        raise _out_of_memory(is_loading=True)


def address_space_share(slaves: int) -> float:
    """The bytes of this process's address space (ulimit -v) that each of its slaves may reserve for windows; inf if
    there is no limit.

    It is half of what the program leaves, since buffers, results and threads need some, too.
    """
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    return inf if allowed == resource.RLIM_INFINITY else max(0, allowed - PROGRAM_BYTES) // (2 * slaves)


def too_many_files(error: BaseException) -> str:
    """What to say of an error that means that too many files are open; "" of any other."""
    if getattr(error, "errno", None) not in (errno.EMFILE, errno.ENFILE):
        return ""
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return (
        f"too many open files: this process may have {allowed} at once (ulimit -n): allow more, or give the streams"
        " fewer files"
    )


def named(error: BaseException) -> BaseException:
    """The error itself, or a LimitError where it only means that a limit was reached."""
    if isinstance(error, MpijoinError):
        return error
    if text := too_many_files(error):
        return _because(error, LimitError(text))
    is_memory = isinstance(error, MemoryError) or getattr(error, "errno", None) == errno.ENOMEM
    is_loading = (
        not is_memory and isinstance(error, (ImportError, OSError)) and any(sign in str(error) for sign in UNMAPPED)
    )
    if is_memory or is_loading or (isinstance(error, RuntimeError) and NO_THREAD in str(error)):
        return _because(error, _out_of_memory(is_loading))
    return error


def _out_of_memory(is_loading: bool) -> LimitError:
    """Its exit code is 2 where a limit of the user's own was too low from the start."""
    allowed = resource.getrlimit(resource.RLIMIT_AS)[0]
    if allowed == resource.RLIM_INFINITY:
        return LimitError(
            "out of memory: the system gives this process no more: set [memory] limit lower", EXIT_FAILED
        )
    wanted = f"{PROGRAM_BYTES >> 20} MiB and [memory] limit for each slave"
    text = f"out of memory: this process may have {allowed >> 20} MiB of address space (ulimit -v), wanted {wanted}"
    return LimitError(f"{text}: raise the limit" + ("" if is_loading else ", or set [memory] limit lower"))


def _because(cause: BaseException, error: LimitError) -> LimitError:
    error.__cause__ = cause
    return error
