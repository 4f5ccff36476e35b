"""The slow twin of everything that decides a result: plain Python, no numpy, no function above ten lines.

Times, keys and rows are Python ints, which never overflow, so no sum saturates here. The engine must give the same
answers although its sums can.
"""

import heapq
from collections import Counter

MASK = (1 << 64) - 1
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
FILE_ROWS = 1 << 40
FOREVER = float("inf")
LATE, NULL_TIME = "late", "null_time"


def join(streams, windows):
    """Returns the rows of all results.

    A result has one tuple of each stream, all with equal keys. The latest of them comes no later than the time and the
    window of each allow. streams: for each stream a list of (time, key, row), where a key of None matches nothing ·
    windows: one for each stream, where None means unbounded.

    >>> join([[(10, 1, 0)], [(12, 1, 0), (13, 1, 1)]], [2, 0])
    [(0, 0)]
    >>> join([[(10, 1, 0)], [(12, 1, 0), (13, 1, 1)], [(9, 1, 5), (99, 1, 6)]], [2, None, 3])
    [(0, 0, 5)]
    """
    by_key = [grouped(rows) for rows in streams]
    keys = [key for key in by_key[0] if key is not None]
    return [rows for key in keys for rows in combinations([stream.get(key, []) for stream in by_key], windows)]


ALONE = {"left": (0,), "right": (1,), "full": (0, 1), "anti": (0,)}  # the sides whose rows may be without partner


RANKS = {
    "first": lambda time, other: other,
    "last": lambda time, other: -other,
    "nearest": lambda time, other: abs(other - time),
}


def typed(kind, streams, windows, holds=None, match="all"):
    """Returns the rows of all results of a join of this type, with None for a row that is missing.

    holds: whether two rows of these times are a pair, apart from key and window; None: they always are · match: which
    of the pairs of a left row count.

    >>> typed("full", [[(10, 1, 0)], [(12, 1, 0), (13, 1, 1)]], [2, 0])
    [(0, 0), (None, 1)]
    >>> typed("semi", [[(10, 1, 0), (20, 1, 1)], [(10, 1, 0), (10, 1, 1)]], [2, 0])
    [(0, None)]
    """
    pairs = join(streams, windows)
    if holds:
        times = [{row: time for time, _, row in stream} for stream in streams]
        pairs = [(left, right) for left, right in pairs if holds(times[0][left], times[1][right])]
    if match != "all":
        pairs = matched(pairs, streams, RANKS[match])
    if kind == "semi":
        return [(row, None) for row in dict.fromkeys(left for left, _ in pairs)]
    with_partner = [{pair[side] for pair in pairs} for side in range(len(streams))]
    found = [] if kind == "anti" else pairs
    for side in ALONE.get(kind, ()):
        alone = [row for _, _, row in streams[side] if row not in with_partner[side]]
        found = found + [(row, None) if side == 0 else (None, row) for row in alone]
    return found


def counted(kind, streams, windows, holds=None):
    """Returns {left row: how many partners it has}, of a left join of all left rows, of an inner join of those that
    have any.

    >>> counted("left", [[(10, 1, 0), (50, 1, 1)], [(12, 1, 0), (12, 1, 1)]], [2, 0])
    {0: 2, 1: 0}
    """
    found = Counter(left for left, _ in typed("inner", streams, windows, holds))
    return {row: found[row] for _, _, row in streams[0] if kind == "left" or found[row]}


def matched(pairs, streams, rank):
    """Returns of the pairs of each left row the one of the least rank, then of the least time, then of the least row.

    >>> matched([(0, 0), (0, 1), (7, 1)], [[(5, 1, 0), (6, 1, 7)], [(4, 1, 0), (5, 1, 1)]], RANKS["nearest"])
    [(0, 1), (7, 1)]
    """
    times = [{row: time for time, _, row in stream} for stream in streams]
    best = {}
    for left, right in pairs:
        order = (rank(times[0][left], times[1][right]), times[1][right], right)
        best[left] = min(best.get(left, order), order)
    return [(left, right) for left, (_, _, right) in best.items()]


def grouped(rows):
    """Returns {key: [(time, row)]} of a list of (time, key, row)."""
    by_key = {}
    for time, key, row in rows:
        by_key.setdefault(key, []).append((time, row))
    return by_key


def combinations(lists, windows):
    """Returns the rows of all results that consist of one (time, row) of each list.

    Results grow stream by stream. A row joins them if it comes no later than their first deadline, and their latest row
    no later than its own. It does not wait for less than no time, so it is not too late for itself.
    """
    found = [((), -FOREVER, FOREVER)]  # Each has its rows, its latest time and its first deadline.
    for own, window in zip(lists, windows):
        waits = FOREVER if window is None else window
        found = [
            ((*rows, row), max(latest, time), min(deadline, time + waits))
            for rows, latest, deadline in found
            for time, row in own
            if time <= deadline and latest <= time + waits
        ]
    return [rows for rows, _, _ in found]


def merge(files):
    """Merges files, which are lists of (time, key), row by row into (time, key, row).

    The next row comes from the file whose next time is least. Ties go to the earlier file. Times are not None here,
    because the source itself decides where a row without a time goes.
    """
    heads = [(rows[0][0], index, 0) for index, rows in enumerate(files) if rows]
    merged = []
    while heads:
        time, index, position = heapq.heappop(heads)
        merged.append((time, files[index][position][1], index * FILE_ROWS + position))
        if position + 1 < len(files[index]):
            heapq.heappush(heads, (files[index][position + 1][0], index, position + 1))
    return merged


def late(rows, lateness, keeps_keyless=False):
    """Splits one file's (time, key, row) into (kept, late as (row, reason), number of null keys), row by row.

    keeps_keyless: whether rows with a time are kept though their key is null.
    """
    kept, lost, null_keys, latest = [], [], 0, None
    for time, key, row in rows:
        if key is None and keeps_keyless and time is not None:
            kept.append((time, key, row))
        elif key is None:
            null_keys += 1
        elif time is None or (latest is not None and time < latest - lateness):
            lost.append((row, NULL_TIME if time is None else LATE))
        else:
            kept.append((time, key, row))
        latest = time if latest is None else latest if time is None else max(latest, time)
    return kept, lost, null_keys


def epochs(rows, length, start=0):
    """Cuts prefixes: {k: rows whose running maximum of time lies in [start + k * length, start + (k + 1) * length)}."""
    cuts, latest = {}, None
    for row in rows:
        latest = row[0] if latest is None else max(latest, row[0])
        cuts.setdefault((latest - start) // length, []).append(row)
    return cuts


def mix(x):
    """The splitmix64 finalizer."""
    x = (x ^ x >> 30) * FIRST & MASK
    x = (x ^ x >> 27) * SECOND & MASK
    return x ^ x >> 31


def hash64(key):
    return mix((key + GOLDEN) & MASK)


def partition(key, partitions):
    return (hash64(key) >> 32) * partitions >> 32


def result_hash(rows):
    """Returns the hash of one result, given its rows in the order of the streams.

    The hash of a single row is the row itself, and each further row is mixed in. A row that is missing counts as -1.

    >>> [f"{result_hash(rows):016x}" for rows in ((0, 0), (1, 2), (2, 1), (7,))]
    ['48218226ff3cd4bf', '081a5c1377856b73', 'f2826f98653e9e57', '0000000000000007']
    """
    first, *others = (-1 if row is None else row for row in rows)
    hashed = first & MASK
    for row in others:
        hashed = mix((hash64(hashed) + row) & MASK)
    return hashed


def certificate(results):
    """Returns 16 hex digits over the rows of each result. The order of the results does not matter.

    >>> certificate([]), certificate([(0, 0)])
    ('0000000000000000', '48218226ff3cd4bf')
    """
    return f"{sum(result_hash(rows) for rows in results) & MASK:016x}"


def ledger(files, lateness):
    """Returns what the master must count for a stream whose files, lists of (time, key), are read to their end."""
    counts = Counter(read=0, late=0, null_key=0, joined=0)
    for rows in files:
        kept, lost, null_keys = late([(time, key, row) for row, (time, key) in enumerate(rows)], lateness)
        counts.update(read=len(rows), late=len(lost), null_key=null_keys, joined=len(kept))
    return dict(counts)
