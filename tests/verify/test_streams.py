"""verify re-joins any number of streams: late rows, null keys, unbounded windows; and it finds what is wrong."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fake_run import fake_run
from mpijoin.verify import verify

NAMES = ("probe", "left", "third", "p4")


def table_of(seed, rows, step=4, keys=3):
    """Rows in disorder, some with a null time or key; ties."""
    ticks = [step * (i // 2) + (i * seed * 7) % 11 for i in range(rows)]
    return pa.table(
        {
            "ts": pa.array([None if i % 23 == seed else tick for i, tick in enumerate(ticks)], pa.int64()),
            "key": pa.array([None if i % 17 == seed else f"k{i * seed % keys}" for i in range(rows)]),
            "value": [i * 1.5 for i in range(rows)],
        }
    )


def run_of(tmp_path, windows, rows=40, output=None, tables=None):
    """A right run over as many streams as there are windows."""
    streams, written = {}, {}
    for index, window in enumerate(windows):
        path = tmp_path / f"{index}.parquet"
        written[path] = tables[index] if tables else table_of(index + 1, rows)
        pq.write_table(written[path], path)
        streams[NAMES[index]] = {"path": str(path), "time_unit": "us", "window": window, "lateness": "5 us"}
    return fake_run(tmp_path / "run", {"streams": streams, "output": output or {}}, written)


@pytest.mark.parametrize(
    "windows",
    [
        ("9 us",),
        ("9 us", "unbounded"),
        ("9 us", "0 s", "20 us"),
        ("0 s", "unbounded", "3 us"),
        ("unbounded", "unbounded", "unbounded"),
        ("12 us", "7 us", "unbounded", "2 us"),
        ("2000000 h", "9 us", "2000000 h"),
    ],
    ids=" ".join,
)
def test_a_right_run_of_any_number_of_streams_is_verified(tmp_path, windows):
    rows = 24 if windows.count("unbounded") == 3 else 40
    report = verify(run_of(tmp_path, windows, rows).path)
    assert report.ok and report.results > 10, report.text()
    assert report.facts[0].startswith(f"probe: {rows} rows, ") and len(report.facts) == len(windows) + 1
    lost = "".join(report.facts[: len(windows)]).replace(" 0 late", "").replace(" 0 with", "")
    assert " late" in lost and " with a null key" in lost


@pytest.mark.parametrize("columns", ["all", ["key", "third_time", "left_value"]])
def test_lost_doubled_and_changed_results_of_three_streams_are_named(tmp_path, columns):
    run = run_of(tmp_path, ("9 us", "6 us", "20 us"), output={"columns": columns})
    (part,) = run.results.glob("*.parquet")
    table = pq.read_table(part)
    pq.write_table(pa.concat_tables([table.slice(1), table.slice(4, 1)]), part)
    text = verify(run.path).text()
    assert "results: 1 missing and 1 unexpected" in text
    if columns == "all":
        lost = table.slice(0, 1).to_pylist()[0]
        rows = ", ".join(f"{name}_row {lost[f'{name}_row']}" for name in NAMES[:3])
        assert f"missing     {rows} (probe key '{lost['key']}'" in text
    values = table["left_value"].to_pylist()
    changed = [values[0] + 1, *values[1:]]
    pq.write_table(table.set_column(table.column_names.index("left_value"), "left_value", pa.array(changed)), part)
    text = verify(run.path).text()
    assert "column left_value differs in 1 row" in text if columns == "all" else "1 missing and 1 unexpected" in text


def test_windows_of_three_streams_at_the_ends_of_time_do_not_wrap(tmp_path):
    ends = pa.table({"ts": [-(2**63), -(2**63) + 1, 0, 2**63 - 2, 2**63 - 1], "key": ["a"] * 5})
    path = tmp_path / "ends.parquet"
    pq.write_table(ends, path)
    stream = {"path": str(path), "time_unit": "ns", "window": "1 ns"}
    document = {"streams": {"a": stream, "b": stream, "c": {**stream, "window": "unbounded"}}}
    report = verify(fake_run(tmp_path / "run", document, {path: ends}).path)
    assert report.ok and report.results > 20, report.text()
