"""The slow twin of everything that decides a result: plain Python, no numpy, no function above ten lines.

Times, keys and rows are Python ints (no overflow), so sums saturate nowhere: the engine's must behave as if they did
not.
"""

import heapq
from collections import Counter

MASK = (1 << 64) - 1
GOLDEN, FIRST, SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
FILE_ROWS = 1 << 40
LATE, NULL_TIME = "late", "null_time"


def join(left, right, left_window, right_window):
    """All (left row, right row) of equal keys with right time in [left time - right_window, left time + left_window].

    left, right: lists of (time, key, row). A key of None matches nothing.

    >>> join([(10, 1, 0)], [(12, 1, 0), (13, 1, 1)], 2, 0)
    [(0, 0)]
    """
    by_key = {}
    for time, key, row in right:
        by_key.setdefault(key, []).append((time, row))
    pairs = []
    for time, key, row in left:
        partners = by_key.get(key, []) if key is not None else []
        pairs += [(row, other) for then, other in partners if time - right_window <= then <= time + left_window]
    return pairs


def merge(files):
    """Files, lists of (time, key), merged row by row into (time, key, row): the file whose next row's time is least
    goes on.

    Ties go to the earlier file. Times are not None here: where a row without a time goes is the source's own business.
    """
    heads = [(rows[0][0], index, 0) for index, rows in enumerate(files) if rows]
    merged = []
    while heads:
        time, index, position = heapq.heappop(heads)
        merged.append((time, files[index][position][1], index * FILE_ROWS + position))
        if position + 1 < len(files[index]):
            heapq.heappush(heads, (files[index][position + 1][0], index, position + 1))
    return merged


def late(rows, lateness):
    """Splits one file's (time, key, row) into (kept, late as (row, reason), number of null keys), row by row."""
    kept, lost, null_keys, latest = [], [], 0, None
    for time, key, row in rows:
        if key is None:
            null_keys += 1
        elif time is None or (latest is not None and time < latest - lateness):
            lost.append((row, NULL_TIME if time is None else LATE))
        else:
            kept.append((time, key, row))
        latest = time if latest is None else latest if time is None else max(latest, time)
    return kept, lost, null_keys


def epochs(rows, length, start=0):
    """Prefix cuts: {k: rows whose running maximum lies in [start + k * length, start + (k + 1) * length)}."""
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


def pair_hash(left_row, right_row):
    """h(l, r) of DESIGN section 1.

    >>> [f"{pair_hash(*pair):016x}" for pair in ((0, 0), (1, 2), (2, 1))]
    ['48218226ff3cd4bf', '081a5c1377856b73', 'f2826f98653e9e57']
    """
    return mix((hash64(left_row) + right_row) & MASK)


def certificate(pairs):
    """16 hex digits over the (left row, right row) of a result, in any order.

    >>> certificate([]), certificate([(0, 0)])
    ('0000000000000000', '48218226ff3cd4bf')
    """
    return f"{sum(pair_hash(*pair) for pair in pairs) & MASK:016x}"


def ledger(files, lateness):
    """What the master must count for one stream whose files, lists of (time, key), are read to their end."""
    counts = Counter(read=0, late=0, null_key=0, joined=0)
    for rows in files:
        kept, lost, null_keys = late([(time, key, row) for row, (time, key) in enumerate(rows)], lateness)
        counts.update(read=len(rows), late=len(lost), null_key=null_keys, joined=len(kept))
    return dict(counts)
