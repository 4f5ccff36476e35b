"""mpijoin joins streams over sliding time windows. It runs as an ordinary MPI job.

The command line is `mpijoin run JOB.toml`. From Python, `mpijoin.run(job)` does the same in one process, and
`mpijoin.start(job)` lets its results be read while the run goes on.

In which order to read the packages:

1. Follow the data. `config` describes the job, and `data` says what a tuple is. `sources` turns files into batches in
   the order of time (`generators` makes synthetic streams), and `partitioning` leads from a key to a slave. `messages`
   and `transport` connect the ranks. `producer` decides which slave gets which tuples, and when; `coordinator` decides
   about everything that concerns several ranks. `slave` receives the tuples, `store` keeps the windows, `operators` and
   `join` find the results (`conditions` says which pairs are wanted; `matching` answers each row of one stream
   once; `aggregate` finds statistics of one stream), and `sinks` and `collector` write them.
2. Then read what surrounds this path. `spill` keeps on disk what does not fit into memory, `moving` and `policy` even
   out the load, `checkpoint` saves the state, `metrics` records what the ranks do, and `launch` begins and ends a run.
3. `simulate`, `verify`, `why`, `report`, `sweep` and `pipeline` (which uses Spark) stand beside the engine.

Start each package with its own docstring, and go on with its `core` or `base`. A `runtime` carries out what the `core`
beside it decides. `compiled` says what a kernel is, and how kernels are compiled and kept.

The words are those of the papers. WSJ is "Parallelizing Windowed Stream Joins in a Shared-Nothing Cluster". LAD and
Flux are the papers on state that spills to disk and on partitioning that adapts, and DCAPE is the one on plans that
change while they run, and on how groups move between slaves with different plans (PTLB, MSLB).

- *Tuple*: a row of a stream inside the engine. Its *row* is its number: the file's number times 2^40 plus the position.
- *Window* of a stream: how long its tuples wait for partners. *Result*: one tuple of each stream, all with equal keys,
  each of which was still waiting when the latest of them came. *Partners*: the tuples of a result. In an outer or an
  anti join, a tuple *without partner* is a result, too, once its window is over.
- *Watermark* of a stream: no tuple that is still to come is older, unless it is late. *Late*: older than the newest row
  before it in its file by more than the lateness. *Expired*: too old to meet any tuple that is still to come.
- *Producers*: the ranks that read, hash and send. *Master*: rank 0, the first producer and the *coordinator* of all
  ranks. *Slaves*: the ranks that join. *Collector*: a rank that only writes results; not every run has one.
- *Share*: what one producer reads of the inputs, unit by unit.
- *Distribution epoch*: the period in which every slave is served once. *Sub-group*: the slaves that are served
  together. *Slot*: the turn of a sub-group within the epoch. *Tick*: the rows that are handed out in one slot.
- *Partition*: the tuples whose keys hash to one number. *Partition group*, or *group*: what a slave holds of a
  partition; groups are what moves. *Mini-partition-group*, or *bucket*: a part of a group, chosen by further bits of
  the hash. *Directory*: says which bits lead to which bucket (extendible hashing). *Theta*: a group splits and merges
  its buckets so that their sizes stay between theta and twice theta.
- *Page*: a fixed number of words of a slave's pool. *Block*: the tuples in one page. *Head block*: the block that is
  being filled. *Sealed*: a block that is full; its tuples are never written again. *Chain*: the blocks of one bucket
  and one stream, in the order of arrival.
- *Fresh* tuple: it is stored, but not joined yet. *Tag*: sixteen bits of a key's hash, which are compared before the
  key. *Flag*: what an operator notes about a stored tuple.
- *Slot id*: one number that names a page and a place in it, where a stored tuple lies.
- *Mini-buffer*: tuples of one partition that wait at a producer until their slave takes them.
- *Generation* of a group: the tuples that came to it between two spills. Results within one generation are found at
  once. *Class*: generations among which nothing is owed any more. *Debt*: what a group has on disk, and the results
  that are owed for it. *Clean-up*: it finds them. *Kept* row: it expired from memory, and can still meet rows on disk.
  *Rotation*: whole groups, with the input that waits for them, take turns in memory.
- *Occupancy* (f_i): how full a slave's buffer was, as the mean over a *reorganization epoch*. After each such epoch the
  policy is asked. *Supplier* and *consumer*: the slave that gives a group away and the slave that gets it. *Hand-over*:
  the protocol by which they do it.
- A move by *PTLB* has two *tracks*: the group's input is *doubled* and goes to both slaves. A tuple is *new* at the
  supplier if the consumer gets it, too, else it is *old*. The supplier finds the results with an old tuple.
- *Production delay* of a result: the time from when its latest tuple was due to when the result was there. *Backlog*:
  how far the input that a slave has not joined yet is behind the clock.
- *Ledger*: the counts of all ranks, which must agree at the end. *Certificate*: 16 hex digits that are equal for equal
  answers. It is the sum of the hashes of all results' row numbers.
- *Frame*: one encoded message, or an encoded part of a state. *Manifest*: the file that makes a checkpoint whole.
"""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"
__all__ = ["LiveRun", "MpijoinError", "Run", "__version__", "run", "start"]


def __getattr__(name: str) -> Any:
    # The engine is imported only here, so that `mpijoin check` and `mpijoin --help` do not pay for loading it.
    if name in ("run", "Run"):
        from mpijoin import api

        return getattr(api, name)
    if name in ("start", "LiveRun"):
        from mpijoin import live

        return getattr(live, name)
    if name == "MpijoinError":
        from mpijoin.errors import MpijoinError

        return MpijoinError
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
