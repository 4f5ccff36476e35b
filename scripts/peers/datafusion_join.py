"""DataFusion: the join of two Parquet files, counted, or of two endless streams of CSV by symmetric hash join.

    python datafusion_join.py bucketed|plain|symmetric LEFT RIGHT WINDOW_US PARTITIONS
        [--memory BYTES] [--scratch FOLDER]

`symmetric` is its way to join streams: both tables are declared unbounded and ordered by time, so that the plan is a
symmetric hash join that drops what has left the window; the pairs stream out and are counted here.
"""

from __future__ import annotations

import argparse

import datafusion
import pyarrow.compute as pc

from limited import add_limits
from measured import measure
from sql import FORMS, join

TABLE = """
    create unbounded external table {name} (ts bigint not null, "key" bigint not null, id bigint not null)
    stored as csv with order (ts asc) location '{path}' options ('format.has_header' 'true')"""


def symmetric(context: datafusion.SessionContext, left: str, right: str, window_us: int) -> tuple[int, int]:
    for name, path in (("l0", left), ("r0", right)):
        context.sql(TABLE.format(name=name, path=path))
    pairs = context.sql(join("plain", "datafusion", "l0", "r0", window_us, "l.id * 31 + r.id as value"))
    plan = pairs.execution_plan().display_indent()
    if "SymmetricHashJoinExec" not in plan:
        raise SystemExit(f"not a symmetric hash join:\n{plan}")
    results = total = 0
    for batch in pairs.execute_stream():
        values = batch.to_pyarrow().column(0)
        results += len(values)
        total += pc.sum(values).as_py() or 0
    return results, total


def batch_join(context: datafusion.SessionContext, form: str, left: str, right: str, window_us: int) -> tuple[int, int]:
    for name, path in (("l0", left), ("r0", right)):
        context.register_parquet(name, path)
    (answer,) = context.sql(join(form, "datafusion", "l0", "r0", window_us)).collect()
    return answer.column(0)[0].as_py(), answer.column(1)[0].as_py()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("form", choices=(*FORMS, "symmetric"))
    parser.add_argument("left")
    parser.add_argument("right")
    parser.add_argument("window_us", type=int)
    parser.add_argument("partitions", type=int)
    add_limits(parser)
    options = parser.parse_args()
    runtime = datafusion.RuntimeEnvBuilder()
    if options.scratch:
        runtime = runtime.with_disk_manager_specified(options.scratch)
    if options.memory:
        runtime = runtime.with_fair_spill_pool(options.memory)
    config = datafusion.SessionConfig().with_target_partitions(options.partitions)
    context = datafusion.SessionContext(config, runtime)
    files = (options.left, options.right, options.window_us)

    def count() -> tuple[int, int]:
        return symmetric(context, *files) if options.form == "symmetric" else batch_join(context, options.form, *files)

    measure(count, datafusion.__version__)


if __name__ == "__main__":
    main()
