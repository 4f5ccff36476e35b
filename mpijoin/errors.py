"""Every error a user can meet, named by whose fault it is, with the exit code it ends in."""

from __future__ import annotations

EXIT_DONE = 0
EXIT_BAD_JOB = 2
EXIT_FAILED = 3
EXIT_CHECKPOINTED = 75  # EX_TEMPFAIL: run it again
EXIT_SIGINT = 130
EXIT_SIGTERM = 143


class MpijoinError(Exception):
    """Base of all errors that mpijoin raises on purpose; `exit_code` is what the process leaves with."""

    exit_code = EXIT_FAILED


class JobError(MpijoinError):
    """The job is wrong: `faults` lists every one, each a sentence with field, value and rule."""

    exit_code = EXIT_BAD_JOB

    def __init__(self, faults: list[str]):
        super().__init__("\n".join(faults))
        self.faults = list(faults)


class InputError(MpijoinError):
    """An input file cannot be read as the job says: names file, column, what was found and wanted."""

    exit_code = EXIT_BAD_JOB


class ChangedInputError(InputError):
    """An input is not what it was when the run began, or ends before it should: names file, rows wanted and rows
    read."""

    exit_code = EXIT_FAILED


class TooManyRejectedError(MpijoinError):
    """More rows of the input cannot be used than the call allows: says how many, why, and names one."""


class LaunchError(MpijoinError):
    """The launcher and the MPI library do not know each other, or one is missing: says how to start instead."""

    exit_code = EXIT_BAD_JOB


class OutputError(MpijoinError):
    """The output path refuses: exists already, not writable, or full."""

    exit_code = EXIT_FAILED


# What a run that reached its memory could do instead.
MORE_MEMORY = (
    "give each slave more memory, use more slaves, shorten the windows, or set [memory] spill = \"generations\""
    " or \"rotate\" (exact, later results)"
)


class MemoryBudgetError(MpijoinError):
    """A slave reached `[memory] limit`: names budget, held bytes and the largest groups."""


class AggregateError(MpijoinError):
    """A sum of integers has no 64-bit integer: names the function, the row and what to do."""


class LedgerError(MpijoinError):
    """The run's own counts do not balance: a defect of mpijoin, never of the input."""


class CodecError(MpijoinError):
    """Bytes that should be an encoded frame are not: truncated, damaged or of another version."""


class ProtocolError(MpijoinError):
    """An event that is illegal in the present state: names role, state and event."""


class SimulationError(MpijoinError):
    """A simulated run cannot go on: nothing would ever happen again, or its virtual time is used up."""


class PeerError(MpijoinError):
    """Another rank failed or fell silent; carries that rank's own exit code, and its traceback if it could tell."""

    def __init__(self, message: str, exit_code: int = EXIT_FAILED, trace: str = ""):
        super().__init__(message)
        self.exit_code = exit_code
        self.trace = trace


class CheckpointError(MpijoinError):
    """A checkpoint cannot be written, or is damaged: names the file and what is wrong with it."""


class ScratchError(MpijoinError):
    """Scratch cannot be made, written or read, or what was written there has changed: names file or folder, what was
    wanted, the bytes that are free, and what to do."""


class AlreadyDone(MpijoinError):
    """The run that was to go on has finished: all is well."""

    exit_code = EXIT_DONE


class Checkpointed(MpijoinError):
    """The run was asked to stop, and has: everything is in a checkpoint."""

    exit_code = EXIT_CHECKPOINTED


class Interrupted(MpijoinError):
    """A signal asked the run to stop."""

    def __init__(self, signal_name: str, exit_code: int):
        super().__init__(f"stopped by {signal_name}")
        self.exit_code = exit_code
