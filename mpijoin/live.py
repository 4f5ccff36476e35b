"""`mpijoin.start(job)` begins a run on threads of this process, and its results can be read while it goes on."""

from __future__ import annotations

import atexit
import os
import threading
from contextlib import contextmanager
from typing import Any, Iterator, Mapping, Sequence

import pyarrow as pa

from mpijoin.api import Prepared, Run, Silent, error_of, prepared_of
from mpijoin.config.job import Job
from mpijoin.errors import Checkpointed, Interrupted, JobError
from mpijoin.launch.embedded import run_local
from mpijoin.launch.roles import merged_schemas
from mpijoin.rundir import read_summary
from mpijoin.signals import SignalFlag
from mpijoin.sinks.collector import Writers
from mpijoin.sinks.queue import ResultQueue

# A process that ends waits so long for the runs that still go on in it. A thread that compiles cannot be stopped.
EXIT_S = 10.0
# The runs of this process that have not ended.
_going: set[LiveRun] = set()


def start(
    job: Job | Mapping[str, Any] | str | os.PathLike,
    overrides: Sequence[str] = (),
    slaves: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    oversubscribe: bool = False,
    debug: bool = False,
) -> LiveRun:
    """Begins to run a job on threads of this process, and returns at once. All arguments are those of `run`.

    Use the live run as a context manager, so that it ends with its block. Several may go on at once. Raises JobError
    and OutputError as `run` does, before anything runs. What goes wrong later is raised by the reader and by `wait`.
    The end of the process stops a run that still goes on.

    >>> left = pa.table({"ts": [10, 20], "key": ["a", "b"]})
    >>> right = pa.table({"ts": [11, 99], "key": ["a", "b"]})
    >>> stream = {"time": "ts", "time_unit": "s", "key": "key", "window": "5 s"}
    >>> with start({"left": {"table": left, **stream}, "right": {"table": right, **stream}}, slaves=1) as live:
    ...     for batch in live.reader():
    ...         print(batch.select(["key", "left_time", "right_time"]).to_pylist())
    ...     print(live.wait().results)
    [{'key': 'a', 'left_time': 10, 'right_time': 11}]
    1
    """
    return LiveRun(prepared_of(job, overrides, slaves, overwrite, resume, oversubscribe), debug)


class LiveRun:
    """A run that goes on while its results are read. `start` makes it.

    Ctrl-C in the main thread, while it reads or waits here, stops the run, and is raised once the run has ended. The
    end of the block of a context manager stops the run and waits for its end. It raises the run's error, unless that
    was raised before, or another one is on its way.
    """

    def __init__(self, prepared: Prepared, debug: bool):
        self._prepared, self._debug = prepared, debug
        self._signals, self._queue = SignalFlag(), ResultQueue()
        # The results of several queries have no reader, and are kept.
        has_tables = prepared.is_in_memory and prepared.setup and prepared.job.queries
        self._kept = prepared.table_writers() if has_tables else {}
        self._ended = threading.Event()
        # These are set before the run has ended, and stay.
        self._summary: Mapping[str, Any] = {}
        self._error: BaseException | None = None
        # Whether the error was raised somewhere.
        self._is_told = False
        self._is_stopped = False
        # What becomes of the results. A reader has been read when it has told of the run's end.
        self._has_reader = self._has_been_read = self._keeps = False
        self._run: Run | None = None
        # The lock guards the decision between a reader and keeping, and the run that is made only once.
        self._lock = threading.Lock()
        # It is a daemon, because a thread that compiles cannot be stopped. `_stop_all` sees to the end of the process.
        self._thread = threading.Thread(target=self._live, name="mpijoin run", daemon=True)
        _going.add(self)
        try:
            self._thread.start()
        except RuntimeError:
            _going.discard(self)
            if prepared.setup:
                prepared.setup.release()
            raise

    @property
    def is_done(self) -> bool:
        """Whether the run has ended, well or badly. Its last results may still wait for their reader."""
        return self._ended.is_set()

    @property
    def waiting_bytes(self) -> int:
        """The bytes of results that were found and wait for their reader."""
        return self._queue.waiting_bytes

    def reader(self) -> pa.RecordBatchReader:
        """Returns a reader that yields the results while the run goes on, in batches as slaves find them.

        There is one reader, for a run whose results stay in memory: its job has no output path, does not only count,
        and asks one query. For any other job it raises JobError. A job file always has a path, so its sections must
        come as a dictionary. A reader that is slower than the run makes the run wait. About 32 MiB of results wait for
        it, besides 16 MiB per slave that are on their way, and up to 64 MiB of later epochs.

        The end comes when the run has ended well. If it fails or is stopped, the reader raises the error of the run
        behind the results that were found before. Code that takes the reader through Arrow's C interface, such as
        DuckDB, raises an error of its own with the same text. A reader that nobody holds any more stops the run.
        pyarrow's `close` does nothing to it: use `stop`, or leave the block.
        """
        if not self._prepared.is_in_memory:
            output = self._prepared.job.output
            told = f"the results go to [output] path {output.path}: read wait().table() when it has ended, or give the"
            told += " job as a dictionary without that path, and read them while the run goes on"
            if output.results == "count":
                told = 'the job only counts its results: leave out [output] results = "count" to read them'
            raise JobError([f"reader: {told}"])
        if self._kept:
            raise JobError(["reader: the job has several queries, whose results are kept for wait().table(query)"])
        with self._lock:
            if self._has_reader:
                raise JobError(["reader: the run has its reader already, and each result is read once"])
            if self._keeps:
                raise JobError(["reader: wait() keeps the results for wait().table(): ask for the reader before that"])
            self._has_reader = True
        # Only a run with an output path may be done before it begins.
        assert self._prepared.setup
        return pa.RecordBatchReader.from_batches(merged_schemas(self._prepared.setup)[0], _Batches(self))

    def wait(self) -> Run:
        """Waits until the run has ended, and returns it as `run` does. Raises the error that ended it; this is
        Interrupted, or Checkpointed, if the run was stopped.

        Without a reader, the results are kept in memory for `Run.table`. If there is a reader, read it to its end
        first. Raises JobError before that, because the run would wait for its reader for ever.
        """
        with self._lock:
            self._keeps = not self._has_reader
        if self._keeps:
            self._queue.keep_all()
        elif not (self._has_been_read or self._is_stopped or self._error):
            raise JobError(["wait: the reader is not at its end: read on, or stop() the run"])
        with self._stopping():
            self._ended.wait()
        self._thread.join()
        self._raise_error()
        with self._lock:
            self._run = self._run or self._finished()
            return self._run

    def stop(self) -> None:
        """Asks the run to end as Ctrl-C would, which is at a checkpoint if the job says so. It returns at once, and the
        run ends soon after, or once its kernels are compiled. A run that has ended stays as it is."""
        self._stop("stop()")

    def __enter__(self) -> LiveRun:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.stop()
        self._ended.wait()
        self._thread.join()
        if kind is None and not self._is_told and not isinstance(self._error, (Interrupted, Checkpointed)):
            self._raise_error()

    def _live(self) -> None:
        """Runs all ranks. This is the whole life of the thread, which is the master's."""
        setup = self._prepared.setup
        try:
            if setup is None:
                self._summary = read_summary(self._prepared.job.output.path)
            else:
                # Without writers the results go to part files, or are only counted.
                writers = Writers(list(self._kept.values()) or [self._queue]) if self._prepared.is_in_memory else None
                outcome = run_local(setup, self._signals, Silent(), self._debug, writers)
                self._summary, self._error = outcome.summary, error_of(outcome, self._debug)
        except BaseException as error:
            self._error = error
        finally:
            if setup:
                setup.release()
            _going.discard(self)
            self._ended.set()
            # Whoever takes it must find that the run has ended.
            self._queue.end()

    def _stop(self, by: str) -> None:
        """Stops the run. It takes no lock, so it may be called wherever an object is freed. by: as for
        `SignalFlag.end`."""
        self._is_stopped = True
        self._signals.end(by)

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """Inside, Ctrl-C stops the run and is raised when the run has ended. A second one is raised at once."""
        try:
            yield
        except KeyboardInterrupt:
            self._stop("Ctrl-C")
            self._ended.wait()
            raise

    def _raise_error(self) -> None:
        if self._error is not None:
            self._is_told = True
            raise self._error

    def _next_batch(self) -> pa.RecordBatch | None:
        """Waits for results that nobody has read, and returns them, or None at the end of a good run. Raises the error
        of the run at the end of any other."""
        if not self._has_been_read:
            with self._stopping():
                batch = self._queue.take()
            if batch is not None:
                return batch
            self._has_been_read = True
        self._raise_error()
        return None

    def _reader_freed(self) -> None:
        if not self._has_been_read:
            self._stop("its reader, which nobody held any more")

    def _finished(self) -> Run:
        """Returns the run, which has ended well."""
        if not self._prepared.is_in_memory:
            return self._prepared.finished(self._summary)
        if self._has_reader:
            return self._prepared.finished(self._summary, lacks_table="the results went to the run's reader")
        if self._kept:
            tables = {name: writer.table() for name, writer in self._kept.items()}
            return self._prepared.finished(self._summary, tables)
        assert self._prepared.setup
        (schema,) = merged_schemas(self._prepared.setup)
        table = pa.Table.from_batches(iter(self._queue.take, None), schema)
        return self._prepared.finished(self._summary, {"": table})


class _Batches:
    """What the reader reads from. A generator in its place would not notice that a reader is freed which nobody has
    ever read from."""

    def __init__(self, live: LiveRun):
        self._live = live

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = self._live._next_batch()
        if batch is None:
            raise StopIteration
        return batch

    def __del__(self) -> None:
        self._live._reader_freed()


@atexit.register
def _stop_all() -> None:
    """Stops the runs that still go on when the process ends, so that they leave nothing half-done behind."""
    going = list(_going)
    for live in going:
        live._stop("the end of the process")
    for live in going:
        live._ended.wait(EXIT_S)
