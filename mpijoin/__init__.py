"""mpijoin joins streams over sliding time windows, as an ordinary MPI job.

`mpijoin.run(job)` does it from Python in one process; the command line is `mpijoin run JOB.toml`.

The order in which to read. Along the data: `config` (the job), `data` (what a tuple is), `sources` (files into batches
in the order of time), `partitioning` (from a key to a slave), `messages` and `transport`, `master` (who gets what, and
when), `slave`, `store` (the windows), `operators` and `join` (the results), `sinks`. Around it: `moving` and `policy`
(load that is evened out), `checkpoint`, `metrics`, `launch` (how a run begins and ends). Beside it: `simulate`,
`verify`, `report`, `sweep`, and `pipeline` with Spark. Start with any package's own docstring, then its `core` or
`base`; a `runtime` carries out what the `core` beside it decides.

The words, which are those of the papers. WSJ is "Parallelizing Windowed Stream Joins in a Shared-Nothing Cluster"; LAD
and Flux are those on state that spills and on partitioning that adapts.

- *Tuple*: a row of a stream inside of the engine. *Row* is its number: the file's number times 2^40 plus the position.
- *Window* of a stream: how long a tuple of it waits for partners. *Result*: one tuple of each stream, with equal keys,
  none of which had waited in vain when the latest came.
- *Watermark*: no tuple of the stream that is still to come, and not late, is older. *Late*: older than the newest row
  before it in its file by more than the lateness. *Expired*: too old to meet any tuple that is still to come.
- *Master*, *slave*, *collector*: the rank that distributes, those that join, and the one that only writes, if any.
- *Distribution epoch*: the period in which every slave is served once. *Sub-group*: the slaves that are served
  together; *slot*: a sub-group's turn within the epoch. *Tick*: the rows of one slot.
- *Partition*: the tuples whose keys hash to one number. *Partition group*, or *group*: what a slave holds of a
  partition, and the unit that moves. *Mini-partition-group*, or *bucket*: a part of a group, by further bits of the
  hash. *Directory*: which bits lead to which bucket (extendible hashing). *Theta*: the size around which buckets stay.
- *Page*: a fixed number of words of the slave's pool. *Block*: the tuples of one page. *Head block*: the one being
  filled. *Sealed*: full, never written again. *Chain*: the blocks of a bucket and a stream, in the order of arrival.
- *Fresh* tuple: stored, not joined yet. *Tag*: sixteen bits of a key's hash, compared before the key.
- *Slot id*: a page and a place in it, where a stored tuple lies.
- *Mini-buffer*: tuples of one partition that wait at the master until their slave takes them.
- *Occupancy* (f_i): how full a slave's buffer was, as the mean over a *reorganization epoch*, after which the policy is
  asked. *Supplier* and *consumer*: the slave that gives a group away and the one that gets it. *Hand-over*: how.
- *Production delay*: from when a result's latest tuple was due to when the result was there. *Backlog*: how far behind
  the clock the input is that a slave has not joined yet.
- *Ledger*: the counts of all ranks, which must agree at the end. *Certificate*: 16 hex digits that are equal for equal
  answers: the sum of the hashes of all results' row numbers.
- *Frame*: one encoded message or part of a state. *Manifest*: the file that makes a checkpoint whole.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["Run", "__version__", "run"]


def __getattr__(name: str) -> Any:
    # Late, so that `mpijoin check` and `mpijoin --help` do not pay for loading the engine.
    if name in ("run", "Run"):
        from mpijoin import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
