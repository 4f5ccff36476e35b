"""The job file as a table: which fields each section has, what they mean, how each is read, written, and bounded."""

from __future__ import annotations

from mpijoin.config.aggregates import AGGREGATE_COLUMNS, HISTORY
from mpijoin.config.changes import CHANGES
from mpijoin.config.inject import Inject
from mpijoin.config.injections import DELAY, EPOCHS, PRESSURE, SLOW
from mpijoin.config.job import (
    ACTIVE_DISK,
    ALL,
    ANTI,
    AT_END,
    AUTO,
    B_MODEL,
    FIRST,
    FIXED,
    FLUX_HYBRID,
    FLUX_LOAD,
    FLUX_MEMORY,
    FULL,
    GENERATIONS,
    INNER,
    LARGEST,
    LAST,
    LAZY_DISK,
    LEAST_PRODUCTIVE,
    LEFT,
    MOST_PRODUCTIVE,
    NEAREST,
    NO_POLICY,
    OFF,
    ORDERED,
    OVERLAPPED,
    POISSON,
    RANDOM,
    RIGHT,
    ROTATE,
    SEMI,
    SHARED,
    WHEN_IDLE,
    ZIPF,
    Aggregate,
    Balance,
    Checkpoint,
    Cluster,
    Join,
    Memory,
    Output,
    Run,
    Tuning,
)
from mpijoin.config.kinds import (
    ALL_OR_NAMES,
    DURATION,
    INTEGER,
    KEY,
    NAMES,
    NUMBER,
    PATH,
    REDUCED,
    SIZE,
    SPEED,
    TEXT,
    TYPES,
    WINDOW,
    Kind,
    or_word,
)
from mpijoin.config.moves import MOVES
from mpijoin.config.tables import TABLE
from mpijoin.config.units import COLUMN_TYPES, INT64_MAX
from mpijoin.named import NamedTuple


class Field(NamedTuple):
    """One field. `low` and `high` bound numbers, both ends allowed; `choices` lists the words there are.

    meaning: full sentences for users, as `mpijoin check --fields` prints them · unit: of a plain number; durations and
    sizes are written with theirs.
    """

    name: str  # in the job file
    attribute: str  # in the dataclass
    kind: Kind
    low: int | None = None
    high: int | None = None
    choices: tuple[str, ...] = ()
    unit: str = ""
    meaning: str = ""


PAYLOAD_BYTES_MAX = 2**20  # of a synthetic stream's row
TIME_UNITS = ("s", "ms", "us", "ns")
LIMIT_BYTES_MIN = 64 << 10  # of a slave's memory
POLICIES = (NO_POLICY, "threshold", "balance", LAZY_DISK, ACTIVE_DISK, FLUX_LOAD, FLUX_MEMORY, FLUX_HYBRID)

# Exactly one of these says where a stream comes from.
SOURCE_FIELDS = (
    Field("path", "path", PATH, meaning=(
        "A file, a folder or a glob of .parquet, .arrow, .ipc, .feather, .csv or .csv.gz files. A relative path starts "
        "at the job file's folder. The files of a stream are read in the order of their times, and numbered in the "
        "order of their paths.")),
    Field("table", "table", TABLE, meaning="Only in Python, instead of a path: the rows themselves."),
    Field("kind", "kind", TEXT, choices=("synthetic",), meaning=(
        "Instead of a path: the stream is made up, with the columns ts and key. Its further fields are listed below.")),
)  # fmt: skip
STREAM_FIELDS = (
    Field("time", "time", TEXT, meaning=(
        "The column to order and join by: Arrow timestamps, or integers with a time_unit.")),
    Field("time_unit", "time_unit", TEXT, choices=TIME_UNITS, meaning="The unit of a time column that holds integers."),
    Field("key", "key", KEY, meaning=(
        "The column, or the columns, that must be equal. Integers, dates, booleans, timestamps or strings, of the same "
        "types in all streams; a null key matches nothing.")),
    Field("window", "window_ns", WINDOW, 0, INT64_MAX, meaning=(
        'How long a row of this stream waits for partners that are not older than itself; "unbounded": for ever. '
        "One row of each stream, all of one key, are a result if the latest of them is no later than each one's time "
        "plus its stream's window. Of two streams these are the pairs (l, r) with "
        "l.time - right.window <= r.time <= l.time + left.window.")),
    Field("lateness", "lateness_ns", DURATION, 0, INT64_MAX, meaning=(
        "How far rows may be out of order within a file. A row older than that does not join and goes to late/. "
        "Rows without a key that are results by themselves (outer and anti joins) are never late.")),
    Field("columns", "columns", ALL_OR_NAMES, meaning=(
        "Further columns to carry into the results, beside time and key.")),
    Field("types", "types", TYPES, meaning=(
        'What columns of CSV files are, such as {station = "string", count = "int64"}. Of the others the first rows '
        "of the first file that has any decide; whole numbers with leading zeros, such as 007, are taken for strings. "
        "Types are "
        f'{", ".join(COLUMN_TYPES)}.')),
)  # fmt: skip
SYNTHETIC_FIELDS = (
    Field("rate", "rate", NUMBER, unit="rows per second", meaning="How many rows arrive, on average."),
    Field("bias", "bias", NUMBER, unit="b of the b-model, at least 0.5 and below 1", meaning=(
        "How skewed the keys are: 0.5 makes all keys equally frequent, 0.8 sends 80 % of the rows to one half of the "
        "keys, and so on within each half.")),
    # A key is (bits * domain) >> width, which must fit 64 bits.
    Field("domain", "domain", INTEGER, 1, 2**31, unit="keys", meaning="Keys are the integers from 0 to below this."),
    # Row numbers have 40 bits within one file.
    Field("tuples", "tuples", INTEGER, 0, 2**40, unit="rows", meaning=(
        "The stream ends after this many rows. Give either this or duration.")),
    Field("duration", "duration_ns", DURATION, 0, INT64_MAX, meaning="The stream ends after this time."),
    Field("seed", "seed", INTEGER, 0, INT64_MAX, unit="a seed", meaning=(
        "Streams of one seed have the same rows. Not set: the seed of [run].")),
    Field("payload_bytes", "payload_bytes", INTEGER, 0, PAYLOAD_BYTES_MAX, unit="bytes per row", meaning=(
        "The width of one further column, which is called payload.")),
    Field("arrivals", "arrivals", TEXT, choices=(POISSON, B_MODEL), meaning=(
        '"poisson" spreads rows evenly over time, "b-model" makes bursts at all scales of time.')),
    Field("burst", "burst", NUMBER, unit="b of the b-model, at least 0.5 and below 1", meaning=(
        'How bursty arrivals = "b-model" is; 0.5 is not at all.')),
    Field("keys", "keys", TEXT, choices=(B_MODEL, ZIPF), meaning=(
        '"b-model" follows bias; with "zipf" the n-th most frequent key has a share of 1 / n^exponent.')),
    Field("exponent", "exponent", NUMBER, unit="power, above 0 and up to 20", meaning='How skewed keys = "zipf" is.'),
    Field("permute", "permute", INTEGER, unit="the name of an order", meaning=(
        "Makes keys change places: streams with the same number have the same frequent keys. Not set: small keys are "
        "the frequent ones.")),
    Field("changes", "changes", CHANGES, meaning=(
        'What holds from when on, in order of time, such as [{from = "60 s", rate = 3000}, '
        '{from = "90 s", bias = 0.8}]. Each has one or more of rate, bias, exponent and permute.')),
    Field("disorder", "disorder_ns", DURATION, 0, INT64_MAX, meaning=(
        "Rows come up to this long after their time. The stream's lateness should be as long, or the latest rows are "
        "late.")),
)  # fmt: skip
JOIN_FIELDS = (
    Field("type", "type", TEXT, choices=(INNER, LEFT, RIGHT, FULL, SEMI, ANTI), meaning=(
        'As in SQL, with the windows as a part of the condition. "inner": the pairs. "left", "right", "full": also '
        "rows of that stream, or of both, that have no partner when their window is over, with nulls in the columns of "
        'the other. "semi": each row of the first stream that has a partner, once. "anti": each that has none. Other '
        "types than inner need two streams.")),
    Field("where", "where", TEXT, meaning=(
        "A further condition on pairs, such as 'right.price > left.price and right.qty is not null' or "
        "'right.time - left.time >= \"5 s\"': columns that are numbers, booleans, strings, dates, timestamps, times of "
        'day or durations (NAME["a column"] if its name is no plain word), NAME.time, key, texts in quotes that are '
        "one of these ('2024-01-02T03:04:05'), + - * /, "
        "comparisons, in, is null, and, or, not, abs, sqrt, floor, ceil, least, greatest, with nulls as in SQL. A row "
        "whose partners all fail it has no partner. The columns need not be among those of the results. Not set: there "
        "is no condition.")),
    Field("match", "match", TEXT, choices=(ALL, FIRST, LAST, NEAREST), meaning=(
        'Which partners of a row of the first stream count. "first", "last", "nearest": of all that it has, the one '
        "with the smallest time, the largest, or the smallest distance in time; of two alike the earlier one, then the "
        'one of the smaller row. Each row then has one result at most, when its window is over. An as-of join is match '
        '= "last" where the first stream has no window. For types inner and left.')),
    Field("reduce", "reduce", REDUCED, meaning=(
        "What is worked out of all partners of a row of the first stream, which then is one result instead of pairs: "
        'a table [join.reduce] such as n = "count()", best = "max(right.price)", gap = "min(right.time - left.time)". '
        "There are count, sum, mean, min, max, first and last (by time), of what where can compute, without nulls, and "
        "arg_min(x, y) and arg_max(x, y): x of the partner with the least or the greatest y, the first of several. For "
        "types inner (rows that have a partner) and left (all rows).")),
    Field("plan", "plan", TEXT, meaning=(
        'How three or more streams are joined. "mway": each row looks for partners in all other streams at once. A '
        'tree of binary joins, such as "((a b) c)": a and b are joined first, what they make is kept, and joined with '
        'c. It is faster where the first joins make little, and takes more memory. "auto": each slave begins m-way, '
        "and changes to whatever is cheapest for the rows that it gets, from time to time. Results are the same.")),
)  # fmt: skip
AGGREGATE_FIELDS = (
    Field("history", "history", HISTORY, meaning=(
        'What counts for a row: "100 rows" are the last 100 of its key, itself included; "10 min" are those of its key '
        "that are no more than 10 minutes older than itself and no younger, with all that have its own time. With this "
        "table a job has one stream, and no window.")),
    Field("columns", "columns", AGGREGATE_COLUMNS, meaning=(
        'The result columns that are worked out, such as {n = "count()", mean = "mean(bytes)"}: count() of rows, and '
        "count, sum, min, max or mean of a column of the stream that holds integers or floats. The sum of integers is "
        "an int64, or the run fails; that of floats is exact and rounded once.")),
    Field("emit", "emit_ns", or_word(DURATION, {"row": None}), 1, INT64_MAX, meaning=(
        '"row": every row has a result. "10 s": only the last row of a key in each period of this length, counted from '
        "time 0, has one.")),
)  # fmt: skip
CLUSTER_FIELDS = (
    Field("partitions", "partitions", INTEGER, 1, 65535, unit="partitions", meaning=(
        "Keys are hashed into this many partitions, which are what slaves own and hand over. Take a few per slave at "
        "least.")),
    Field("distribution_epoch", "distribution_epoch_ns", or_word(DURATION, {AUTO: None}), 1, INT64_MAX, meaning=(
        'The master sends rows in epochs of this length: of event time with speed = "max", else of the wall clock. '
        '"auto" takes about 524,000 rows, but no more than lie in two windows (with several producers, in a third of '
        "one), or 131,000 where that is more. In a paced run it takes as short an epoch as communication in [tuning] "
        "allows.")),
    Field("reorganization_epoch", "reorganization_epoch_ns", DURATION, 1, INT64_MAX, meaning=(
        'How often the policy looks at the load and may move partitions. It has no effect with policy = "none", and '
        "with Flux's policies it is only the first such time: see collection_min.")),
    Field("subgroups", "subgroups_asked", or_word(INTEGER, {AUTO: None}), 1, 65535, unit="turns per epoch", meaning=(
        "Slaves are served in this many turns per epoch. More turns let fewer rows wait at the master. "
        '"auto": as few as let an epoch fit into master_buffer.')),
    Field("exchange", "exchange", TEXT, choices=(OVERLAPPED, ORDERED), meaning=(
        'How slaves are served whose turn has come. "overlapped": all at once, and each takes its rows when it has '
        'time. "ordered": one after the other in the order of their ranks, the next one when the one before has taken '
        "its rows, as if communication were blocking; it is there to compare with.")),
    Field("producers", "producers_asked", or_word(INTEGER, {AUTO: None}), 1, 65535, unit="ranks", meaning=(
        "So many ranks read the input, hash it and send it to the slaves. The first ranks are producers; rank 0 is the "
        "master, too. Inputs are shared out by row groups of Parquet, batches of Arrow, or whole CSV files. "
        '"auto": so many that by what was measured producers and slaves have as much to do, and no more than the input '
        "can be shared out among.")),
    Field("buffer", "buffer_bytes", SIZE, 64 << 10, INT64_MAX, meaning=(
        "How much may be sent to one slave, by all producers together, and not be joined yet.")),
    Field("master_buffer", "master_buffer_bytes", SIZE, 64 << 10, INT64_MAX, meaning=(
        "How much each producer may hold of rows, of any width: half for those that wait to be sent, half for those "
        "that are being read and sorted out. When it is full, reading pauses.")),
    Field("slaves_min", "slaves_min", or_word(INTEGER, {"all": None}), 1, 65535, unit="slaves", meaning=(
        "With a policy: this many slaves begin, and the others wait idle until the load asks for them, and rest again "
        "after.")),
    Field("skew_buffer", "skew_buffer", TEXT, choices=(SHARED, FIXED), meaning=(
        'How slaves share master_buffer. "shared": rows for a slow slave take what they need of it, and nobody else '
        'waits until all of it is full. "fixed": each slave has an even part, and reading pauses when one of them is '
        "full; it is there for comparisons.")),
)  # fmt: skip
MEMORY_FIELDS = (
    Field("limit", "limit_bytes", or_word(SIZE, {AUTO: None}), LIMIT_BYTES_MIN, INT64_MAX, meaning=(
        'The memory of one slave for the rows in its windows. "auto": what the node, its control groups and Slurm '
        "allow the ranks there, less what these need for all else; 80 % of a rank's share at most. It falls with what "
        "they allow while the run goes on, and rises again.")),
    Field("spill", "spill", TEXT, choices=(OFF, GENERATIONS, ROTATE), meaning=(
        'What a slave does whose windows need more. "off": the run ends with exit code 3. "generations": it writes '
        "some partitions to the disk and goes on with the rows that come; the results between rows on the disk and "
        'others are found later, by a clean-up; not for match, [reduce] and [aggregate]. "rotate": partitions that are '
        "on the disk gather their rows there, too, and come into memory in turn. The results are the same, some of "
        "them later.")),
    Field("path", "path", or_word(PATH, {AUTO: None}), meaning=(
        'The folder for the rows on disk, best on a disk of each node\'s own. "auto": the folder that SLURM_TMPDIR '
        "names, else the one that TMPDIR names, else that of the system for temporary files; /var/tmp where that one "
        "lies in memory. Each slave makes a folder of its own there and removes it at its end; after a kill the next "
        "run removes it.")),
    Field("threshold", "threshold", NUMBER, unit="share of limit, above 0 and up to 1", meaning=(
        "A slave that holds more than this begins to spill.")),
    Field("share", "share", NUMBER, unit="share of what is held, above 0 and up to 1", meaning=(
        "So much goes to the disk at once. Less means smaller writes, and more of them.")),
    Field("rank", "rank", TEXT, choices=(LEAST_PRODUCTIVE, MOST_PRODUCTIVE, LARGEST, RANDOM), meaning=(
        "Which partitions go to the disk first. The productivity of a partition is its results per byte. The default "
        "finds the most results early; the others are there to compare with it.")),
    Field("cleanup", "cleanup", TEXT, choices=(AT_END, WHEN_IDLE), meaning=(
        '"generations": when the results that are still owed are found. "end": when the input has ended. "idle": also '
        "when there is room in memory and nothing to join; the disk then holds only what the windows ask for.")),
    Field("gap", "gap_ns", or_word(DURATION, {AUTO: None}), 0, INT64_MAX, meaning=(
        '"rotate": how long a slave joins between two partitions that it brings back from the disk. "auto": as long as '
        "the last one took.")),
)  # fmt: skip
TUNING_FIELDS = (
    Field("theta", "theta", or_word(SIZE, {AUTO: AUTO, OFF: OFF}), 1, INT64_MAX, meaning=(
        'Partitions larger than twice this are split, smaller ones merged. "auto" is measured for this processor by '
        "the first run on a machine. Results do not depend on it.")),
    Field("block", "block_bytes", SIZE, 64, 16 << 20, meaning="Rows are stored and joined in blocks of this size."),
    Field("result_buffer", "result_buffer", INTEGER, 1, 2**24, unit="pairs", meaning=(
        "How many pairs a slave finds before it writes them.")),
    Field("communication", "communication", NUMBER, unit="share of a slave's time, above 0 and below 1", meaning=(
        "Automatic epochs of a paced run are as short as they can be without more communication than this.")),
)  # fmt: skip
BALANCE_FIELDS = (
    Field("policy", "policy", TEXT, choices=POLICIES, meaning=(
        "\"none\": partitions stay where they start. \"threshold\": the paper's rule, one partition per overloaded "
        'slave and reorganization epoch. "balance": as many as the measured loads ask for. "lazy-disk": partitions go '
        'from the slave with the most memory in use to the one with the least. "active-disk": also, where memory is '
        'even, the slave with the fewest results per partition spills. "flux-load", "flux-memory", "flux-hybrid": one '
        "partition per pair of slaves, by their time, by their memory, or by time as long as none has spilled.")),
    Field("supplier_threshold", "supplier_threshold", NUMBER, unit="share of load_buffer, above 0", meaning=(
        '"threshold": a slave whose load buffer is fuller than this, on average, gives a partition away.')),
    Field("consumer_threshold", "consumer_threshold", NUMBER, unit="share of load_buffer, above 0", meaning=(
        '"threshold": a slave whose load buffer is emptier than this takes one.')),
    Field("growth", "growth", NUMBER, unit="suppliers per consumer, above 0", meaning=(
        '"threshold": one slave more is used when there are more suppliers than this per consumer.')),
    Field("load_buffer", "load_buffer_bytes", or_word(SIZE, {AUTO: None}), 1, INT64_MAX, meaning=(
        'The buffer whose fill the two thresholds mean. "auto": the bytes of two epochs.')),
    Field("relocation_threshold", "relocation_threshold", NUMBER, unit="ratio, above 0 and up to 1", meaning=(
        '"lazy-disk", "active-disk": partitions move where the least memory in use / the most is below this.')),
    Field("relocation_pause", "relocation_pause_ns", DURATION, 0, INT64_MAX, meaning=(
        '"lazy-disk", "active-disk": at least so much time passes from when partitions move until others do.')),
    Field("productivity_ratio", "productivity_ratio", NUMBER, unit="ratio, at least 1", meaning=(
        '"active-disk": a slave spills where another finds this many times as many results per partition, or more.')),
    Field("imbalance_threshold", "imbalance_threshold", NUMBER, unit="ratio, at least 1", meaning=(
        '"flux-load", "flux-memory", "flux-hybrid": nothing moves between two slaves unless one is this many times as '
        "busy, or as full, as the other.")),
    Field("utilization_threshold", "utilization_threshold", NUMBER, unit="share, above 0 and up to 1", meaning=(
        '"flux-load", "flux-hybrid": a slave that is busy for more of its time than this gets nothing.')),
    Field("collection_min", "collection_min_ns", DURATION, 1, INT64_MAX, meaning=(
        '"flux-load", "flux-memory", "flux-hybrid": loads are measured for reorganization_epoch at first, then for as '
        "long as the last moves took, and for half as long as before where nothing has moved; but at least for this "
        "long, and for one distribution epoch.")),
    Field("move", "move", TEXT, choices=MOVES, meaning=(
        'How a partition moves. "precopy": most of it goes while its slave still joins it, so that it pauses for a few '
        'milliseconds. "mslb": it pauses at once and moves as a whole, with the states of its plan, so that a slave '
        'with too much to do is rid of it at once. "ptlb": nothing is sent; while windows last, its rows go to '
        "both slaves, and each finds a part of the results. A checkpoint ends such a move before its time.")),
    Field("spread", "spread", TEXT, choices=(AUTO, OFF), meaning=(
        '"auto": with policy "balance", a partition that alone is too much for a slave is shared by several. This is '
        "for inner joins of pairs that spill nothing and have one query; `mpijoin check` tells whether the job allows "
        'it. "off": each partition has one slave.')),
)  # fmt: skip
RUN_FIELDS = (
    Field("speed", "speed", SPEED, unit="seconds of event time per second of the wall clock", meaning=(
        '"max" joins as fast as the slaves can. A number, 1e-9 to 1e9, paces the run: rows are due when their time has '
        "come, and the summary tells how long results took.")),
    Field("warmup", "warmup_ns", DURATION, 0, INT64_MAX, meaning=(
        "The first part of the run, in wall time, which delays and other figures leave out.")),
    Field("seed", "seed", INTEGER, 0, INT64_MAX, unit="a seed", meaning="The seed of synthetic streams."),
    Field("late", "late", TEXT, choices=("keep", "fail"), meaning=(
        '"keep" sets late rows aside in late/; with "fail" the first late row ends the run.')),
)  # fmt: skip
OUTPUT_FIELDS = (
    Field("path", "path", PATH, meaning=(
        "The run directory. It must be new or empty, unless --overwrite or --resume says otherwise.")),
    Field("results", "results", TEXT, choices=("parquet", "collect", "count"), meaning=(
        '"parquet": each slave writes its own results. "collect": one rank merges and writes all. "count": nothing is '
        "written, pairs are counted.")),
    Field("columns", "columns", ALL_OR_NAMES, meaning=(
        'The result columns to write, such as ["key", "left_time", "right_time"]. There are the keys, then NAME_time '
        "of each stream, then NAME_row of each, then NAME_COLUMN of what the streams carry, then the columns of "
        "[aggregate].")),
    Field("part", "part_bytes", SIZE, 1, INT64_MAX, meaning="A result file is closed at about this size."),
)  # fmt: skip
CHECKPOINT_FIELDS = (
    Field("every", "every_ns", or_word(DURATION, {OFF: None}), 1, INT64_MAX, meaning=(
        'Saves after so much time of the wall clock, such as "10 min".')),
    Field("epochs", "epochs", or_word(INTEGER, {OFF: None}), 1, INT64_MAX, unit="reorganization epochs", meaning=(
        "Saves after so many reorganization epochs.")),
    Field("margin", "margin_ns", or_word(DURATION, {OFF: None}), 1, INT64_MAX, meaning=(
        "Saves and stops (exit code 75) so long before the walltime ends. It must cover an epoch and the writing.")),
    Field("walltime", "walltime_ns", or_word(DURATION, {AUTO: None}), 1, INT64_MAX, meaning=(
        'How long the allocation lasts, counted from the start of the run. "auto": what Slurm says.')),
    Field("signals", "signals", or_word(NAMES, {AUTO: None}), meaning=(
        "Which of SIGUSR1, SIGUSR2, SIGTERM and SIGINT save and stop. A lost terminal (SIGHUP) counts as SIGTERM. "
        '"auto": SIGUSR1; with every, epochs or margin also SIGTERM and SIGINT (Ctrl-C).')),
    Field("keep", "keep", INTEGER, 1, 1000, unit="checkpoints", meaning=(
        "How many checkpoints are kept, the newest ones.")),
    Field("path", "path", PATH, meaning=(
        "Where they lie, in a folder that all ranks see. Not set: checkpoint/ in the run directory.")),
)  # fmt: skip
INJECT_FIELDS = (
    Field("slow", "slow", SLOW, meaning=(
        '{2 = 0.5}: rank 2 joins at half its speed. [{rank = 2, share = 0.33, from = "20 s", to = "40 s"}]: for a part '
        "of the run, by the wall clock.")),
    Field("delay", "delay", DELAY, meaning=(
        '{2 = "50 ms"}: what rank 2 receives reaches it so late. [{rank = 2, by = "50 ms", from = "20 s"}]: for a part '
        "of the run.")),
    Field("memory", "memory", PRESSURE, meaning=(
        '[{rank = 2, limit = "64 MB", from = "20 s", to = "60 s"}]: the windows of rank 2 have no more memory than '
        'this, for a part of the run, by the wall clock. {2 = "64 MB"}: for the whole run. Of several limits at once '
        "the smallest holds.")),
    Field("hash_bits", "hash_bits", INTEGER, 1, 64, unit="bits", meaning=(
        "Hashes of keys keep this many bits. Fewer make different keys collide, which costs time and changes nothing "
        "else.")),
    Field("fail", "fail", EPOCHS, meaning="{1 = 3}: rank 1 breaks down in epoch 3. Not in a resumed run."),
    Field("kill", "kill", EPOCHS, meaning="{1 = 3}: rank 1 is killed in epoch 3. Not in a resumed run."),
)  # fmt: skip
SECTIONS = {
    "cluster": (Cluster, CLUSTER_FIELDS),
    "memory": (Memory, MEMORY_FIELDS),
    "tuning": (Tuning, TUNING_FIELDS),
    "balance": (Balance, BALANCE_FIELDS),
    "run": (Run, RUN_FIELDS),
    "output": (Output, OUTPUT_FIELDS),
    "join": (Join, JOIN_FIELDS),
    "aggregate": (Aggregate, AGGREGATE_FIELDS),
    "checkpoint": (Checkpoint, CHECKPOINT_FIELDS),
    "inject": (Inject, INJECT_FIELDS),
}
