"""`mpijoin prepare` on a real Spark: hostile input, times, order, what is put aside, and real data through a whole
run."""

import bz2
import doctest
import gzip
import itertools
import json
import random
import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import ROUND_FLOOR, Decimal
from types import SimpleNamespace
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

import mpijoin
from mpijoin.cli import main
from mpijoin.pipeline.prepare import order, read, report, scan, times
from mpijoin.pipeline.prepare.conf import conf_set
from mpijoin.pipeline.prepare.files import Source, find_source
from mpijoin.pipeline.prepare.options import Wanted
from mpijoin.pipeline.prepare.quotes import open_quote
from mpijoin.pipeline.prepare.schema import find_columns

DATA = "tests/data/italy_picks"
BOM = b"\xef\xbb\xbf"
ANY = ("--max-rejected", "1")
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def prepare(spark, tmp_path, capsys):
    """Calls the command on files given as name=content, and returns what it left and what it said."""

    def call(files, *arguments, code=0, out="out"):
        raw = tmp_path / "raw"
        raw.mkdir(exist_ok=True)
        for name, content in files.items():
            (raw / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        paths = [str(raw / name) for name in files]
        assert main(["prepare", *paths, "-o", str(tmp_path / out), "--time", "ts", *ANY, *arguments]) == code
        said = capsys.readouterr()
        return left_in(tmp_path / out, said) if code == 0 else said.err

    return call


def left_in(folder, said=None):
    rejected = folder / "rejected"
    return SimpleNamespace(
        table=pq.read_table(folder / "data"),
        rows=[tuple(row.values()) for row in pq.read_table(folder / "data").to_pylist()],
        rejected=pq.read_table(rejected).to_pylist() if rejected.exists() else [],
        report=json.loads((folder / "report.json").read_text()),
        said=said,
        folder=folder,
    )


def encodings(part, name):
    """Returns how the values of a column are encoded in the first row group of a file."""
    group = pq.read_metadata(part).row_group(0)
    columns = map(group.column, range(group.num_columns))
    return next(column.encodings for column in columns if column.path_in_schema == name)


def at(seconds):
    return EPOCH + timedelta(seconds=seconds)


def test_hostile_csv(prepare):
    files = {
        "a.csv": BOM
        + b'ts,k,v\r\n5,a,"x,""y"""\n4,b\r3,c,d,e\n\n2,"",\xc3\xa9\n1,q,\xe9\n6,"un\n7,\xf0\x9f\x98\x80,1\r\n',
        "b [1] {+%} \xe9.csv": "ts,k,v\n0.5,two words,-\n-1, a ,\n",
        "c.csv.gz": gzip.compress(b"ts,k,v\n1e1,z,gz\nx,y,z\n"),
        "d.csv.bz2": bz2.compress(b'\n"ts",k,v\n10,z,bz2'),
        "e.csv": b"",
        "f.csv": BOM + b"\r\n",
        "g.csv": "ts,k,v\n",
        "h.csv.gz": gzip.compress(b""),
    }
    left = prepare(files, "--unit", "s", "--key", "k")
    assert left.rows == [
        (at(-1), " a ", None),
        (at(0.5), "two words", "-"),
        (at(2), None, "é"),
        (at(5), "a", 'x,"y"'),
        (at(7), "😀", "1"),
        (at(10), "z", "gz"),
        (at(10), "z", "bz2"),
    ]
    reasons = {row["raw"]: (row["file"].rsplit("/", 1)[1], row["reason"].split(":")[0]) for row in left.rejected}
    assert reasons == {
        "4,b": ("a.csv", "line"),
        "3,c,d,e": ("a.csv", "line"),
        '6,"un': ("a.csv", "line"),
        "1,q,é": ("a.csv", "encoding"),
        "x,y,z": ("c.csv.gz", "ts"),
    }
    assert left.report["rows"] == {"read": 12, "rejected": 5, "filtered": 0, "duplicates": 0, "written": 7}
    assert left.report["rejected"] == {"line": 3, "time": 1, "time in the gap": 0, "encoding": 1}
    assert left.report["input"]["files"] == 8 and left.report["input"]["empty_files"] == 3
    assert left.report["columns"]["k"] == {"type": "string", "nulls": 1, "found_out": True}
    assert left.table.schema.field("ts").type == pa.timestamp("us", "UTC")
    assert left.said.out.endswith('lateness = "0 s"                # the files are in order of time\n')


def test_lines_of_10_mb(prepare):
    long = "x" * 10_000_000
    quotes = '""' * 200_000
    left = prepare({"a.csv": f'ts,v\n2,"{long}"\n1,y\n0,{long},\n3,"{quotes}"\n'}, "--unit", "s")
    assert [(time, len(v)) for time, v in left.rows] == [(at(1), 1), (at(2), 10_000_000), (at(3), 200_000)]
    assert len(left.rejected[0]["raw"]) == 10_000_003
    left = prepare({"a.jsonl": json.dumps({"ts": 1, "v": long})}, "--unit", "s", out="json")
    assert left.rows == [(at(1), long)]


@pytest.mark.parametrize("delimiter", [",", "\t", "|"])
def test_lines_split_at_delimiters_are_read_as_the_parser_reads_them(spark, tmp_path, delimiter):
    rng = np.random.default_rng(11)
    letters = [*3 * [delimiter.encode()], b'"', b" ", b"\0", b"a", b"0", b"'", b"\\", b"\xe9", b"\xc3\xa9", BOM, b"#"]
    lines = [b"".join(rng.choice(letters, rng.integers(0, 12))) for _ in range(4000)]
    fields = [b'""', b'"a"', b'" a b "', b'"a\0b"', b'"\xc3\xa9\xe9"', b'"a" ', b' "a"', b'"a', b"b", b"", b'"a""b"']
    fields += [BOM + b'"a"', b"a\0b", b'"', b"'a'", b'"\\"', b"#"]
    lines += [delimiter.encode().join(rng.choice(fields, rng.integers(2, 5))) for _ in range(4000)]
    (tmp_path / "a.csv").write_bytes(b"\n".join([delimiter.join("abc").encode(), *lines]))
    wanted = Wanted((str(tmp_path / "a.csv"),), tmp_path / "out", "a", delimiter=delimiter)
    source = find_source(wanted)
    frame = read.read_raw(spark, source, wanted, find_columns(spark, source, wanted), source.paths).frame
    options = {name: str(value) for name, value in read._csv_options(source).items()}
    by_parser = F.from_csv(read.col(read.LINE), read._csv_schema(source).simpleString(), options).alias("row")
    fields = [*map(read.col, "abc"), read.col(read.BROKEN).isNotNull()]
    # One field more is a field of its own, unless a quote before it is open.
    longer = F.concat(read.LINE, F.lit(f"{delimiter}more"))
    by_parser_of_longer = F.from_csv(longer, ",".join(f"f{i} string" for i in range(14)), options)
    with conf_set(spark):
        rows = frame.where(f"{read.SKIP} is null").select(
            by_parser, F.array(*[field.cast("string") for field in fields]), by_parser_of_longer
        )
        found, broken, opened = [], [], []
        for row, fields, longer in rows.collect():
            found.append((row, fields))
            opened.append("more" not in tuple(longer))
            broken.append(row[3] is not None or opened[-1])
    assert len(found) > 3000 and sum('"' not in str(fields) for _, fields in found) > 1000
    whole = [(row[:3], fields[:3]) for row, fields in found if fields[3] == "false"]
    # The parser may lose a NUL in the last field of a line, which we keep.
    without_nul = [[[value and value.replace("\0", "") for value in side] for side in both] for both in whole]
    assert all(fields == row for row, fields in without_nul) and len(whole) > 600
    assert broken == [fields[3] == "true" for _, fields in found]
    assert sum(is_open and row[3] is None for (row, _), is_open in zip(found, opened)) > 100


def test_line_breaks_between_quotes(prepare):
    left = prepare({"a.csv": BOM + 'ts,v\n2,"é\nb"\n1,\n3\n'.encode() + b"4,\xe9\n"}, "--unit", "s", "--multiline")
    assert left.rows == [(at(1), None), (at(2), "é\nb")]
    assert [row["reason"].split(":")[0] for row in left.rejected] == ["line", "encoding"]


def local_times():
    rng = np.random.default_rng(1)
    hours = rng.integers(-30 * 8766, 60 * 8766, 300)
    parts = zip(hours.tolist(), rng.integers(0, 10**6, 300).tolist())
    found = [datetime(1990, 1, 1) + timedelta(hours=hour, microseconds=us) for hour, us in parts]
    for day in ((2016, 3, 27), (2016, 10, 30), (1970, 5, 31), (1970, 9, 27)):  # the clock is set forward, and back
        found += [datetime(*day) + timedelta(minutes=minute) for minute in range(0, 240, 30)]
    found += [datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(1970, 1, 1)]
    return [time for time in found if time.year <= 2037]  # the years for which both know the same rules


def test_local_times_are_those_of_the_zone(prepare):
    zone = ZoneInfo("Europe/Rome")
    wanted, gone, twice = [], 0, 0
    for local in local_times():
        utc = local.replace(tzinfo=zone).astimezone(UTC)
        if utc.astimezone(zone).replace(tzinfo=None, fold=0) != local:
            gone += 1
            continue
        twice += local.replace(tzinfo=zone, fold=1).utcoffset() != local.replace(tzinfo=zone).utcoffset()
        wanted.append(utc)
    lines = ["ts", *(time.isoformat(" ") for time in local_times())]
    left = prepare({"a.csv": "\n".join(lines)}, "--zone", "Europe/Rome")
    assert [time for (time,) in left.rows] == sorted(wanted)
    assert left.report["rejected"]["time in the gap"] == gone == len(left.rejected) >= 4
    assert left.report["time"]["ambiguous"] == twice >= 4
    assert "never was in Europe/Rome" in left.rejected[0]["reason"]


ISO = {
    "2016-02-29": "2016-02-29T00:00:00",
    "2000-02-29T23:59": "2000-02-29T23:59:00",
    "1970-01-01T00:00:00Z": "1970-01-01T00:00:00",
    "1969-12-31 23:59:59.999999": "1969-12-31T23:59:59.999999",
    "2016-10-14T00:00:06.85+02:00": "2016-10-13T22:00:06.850000",
    "2016-10-14 00:00:06 -0130": "2016-10-14T01:30:06",
    "2016-10-14 00:00:06+02": "2016-10-13T22:00:06",
    " 2016-10-14 00:00:07 UTC ": "2016-10-14T00:00:07",
    "0001-01-01": "0001-01-01T00:00:00",
    "1582-10-10T12:00:00": "1582-10-10T12:00:00",
    "9999-12-31T23:59:59.999999": "9999-12-31T23:59:59.999999",
}
NOT_ISO = [
    *(
        "2015-02-29",
        "1900-02-29",
        "2016-13-01",
        "2016-10-14T24:00:00",
        "2016-06-30T23:59:60",
        "2016",
        "12:00",
        "0000-01-01",
    ),
    *("1476403206", "14/10/2016", "2016-10-14T00:00:06.85 Europe/Rome", "now", "''"),
]


def test_iso_8601(prepare):
    left = prepare({"a.csv": "\n".join(["ts,v", *(f"{time},1" for time in (*ISO, *NOT_ISO)), ",1", '"",1', " ,1"])})
    assert sorted(time.replace(tzinfo=None).isoformat() for time, _ in left.rows) == sorted(ISO.values())
    assert sorted(row["raw"] for row in left.rejected) == sorted(f"{time},1" for time in [*NOT_ISO, "", '""', " "])
    assert "ts: got nothing, wanted a time such as" in " ".join(row["reason"] for row in left.rejected)


def mutants(text):
    """Texts that differ from this one in one letter: another letter, one more, or one less."""
    for i in range(len(text) + 1):
        yield text[:i] + text[i + 1 :]
        for letter in "09-+:TZ .\t\x01":
            yield text[:i] + letter + text[i:]
            yield text[:i] + letter + text[i + 1 :]


def moment(text):
    """The nanoseconds since 1970 of a time in ISO 8601, which is in UTC if it has no offset; None if it is no such
    time."""
    text = text.strip(" ")
    if re.search(times.ISO, text) is None or text.endswith("\n"):
        return None
    day, clock, offset = re.fullmatch(r"(.{10})(?:.([0-9:.]{5,}))? ?(Z|UTC|[+-].*)?", text).groups()
    if offset and clock.count(":") == 1:
        return None  # Spark knows no offset behind minutes
    hour, minute, seconds = [*(clock or "00:00").split(":"), "00"][:3]
    sign, *parts = (offset[0], *re.findall(r"\d{2}", offset)) if offset and offset[0] in "+-" else ("+",)
    ahead = sum(int(part) * 60 ** (1 - i) for i, part in enumerate(parts)) * (-1 if sign == "-" else 1)
    try:
        start = datetime.fromisoformat(f"{day}T{hour}:{minute}:{seconds[:2]}+00:00")
    except ValueError:
        return None
    if any(int(part) > 59 for part in parts[1:]) or abs(ahead) > 18 * 60:
        return None
    whole = (start - EPOCH) // timedelta(seconds=1) - 60 * ahead
    return whole * 10**9 + int(seconds[3:].ljust(9, "0"))


def test_no_text_one_letter_off_is_taken_for_another_time(spark, tmp_path):
    whole = ["2016-10-14T00:00:06", "2016-10-14 00:00:06.85Z", "2016-10-14T11:12:06.123456789", "2016-1-14T00:00:06+10"]
    odd = ["2016-10-14T00:00:6ZZ", "2016-1-4T00:00:6+10", "02016-1-14T00:00:06", "2016-10-14T00:00:06.1234567890"]
    odd += ["2016-1-1T0:0:6+1:00", "2016-1-14T00:00:06+1:00", "2016-10-14T00:00:6.", "2016-10-14T00:0:6+10:00"]
    odd += ["2016-10-14T0:00:06.5", "2016-10-1T00:00:06.55", "2016-10-14T00:00:06.85+02:00"]
    texts = sorted({*odd, *whole, *(mutant for text in whole for mutant in mutants(text))})
    time = times.parsed(F.col("text"), StringType(), Wanted((), tmp_path, "text"), is_ns=False, is_local=False)
    frame = spark.createDataFrame([(text,) for text in texts], "text string")
    with conf_set(spark):
        for step in time.steps:
            frame = frame.withColumns(step)
        rows = frame.select("text", time.us, time.sub).collect()
    found = {text: None if us is None else us * 1000 + sub for text, us, sub in rows}
    assert found == {text: moment(text) for text in texts}
    assert 100 < sum(ns is not None for ns in found.values()) < len(texts) / 2


def test_a_time_that_python_does_not_know_is_told_in_microseconds(spark, tmp_path):
    (tmp_path / "a.csv").write_text("ts\n9999-12-31T23:59:59\n2020-01-01\n")
    zone = ("--zone", "America/New_York")
    assert main(["prepare", str(tmp_path / "a.csv"), "-o", str(tmp_path / "out"), "--time", "ts", *zone]) == 0
    told = json.loads((tmp_path / "out/report.json").read_text())["time"]
    assert (told["first"], told["last"]) == ("2020-01-01T05:00:00+00:00", "253402318799000000 us")


def test_times_finer_than_microseconds_stay_exact(prepare):
    left = prepare({"a.csv": "ts\n2016-10-14T00:00:06.123456789\n1969-12-31T23:59:59.9999999\n1970-01-01\n"})
    assert left.rows == [(-100,), (0,), (1_476_403_206_123_456_789,)]
    assert (
        left.report["time"]["unit"] == "ns"
        and 'time_unit = "ns"' in left.said.out
        and "2 times are finer" in left.said.out
    )
    numbers = "1476403206123456789 -1 0 -9223372036854775808 9223372036854775807 1.5 9223372036854775808"
    left = prepare({"a.csv": "\n".join(["ts", *numbers.split()])}, "--unit", "ns", "--overwrite")
    assert left.rows == [(-(2**63),), (-1,), (0,), (1_476_403_206_123_456_789,), (2**63 - 1,)]
    assert [row["raw"] for row in left.rejected] == ["1.5", "9223372036854775808"]


def in_ns(numbers, per_ns):
    """Whole nanoseconds since 1970 of numbers as text, by exact arithmetic."""
    return [int((Decimal(number) * per_ns).to_integral_value(ROUND_FLOOR)) for number in numbers]


DATE_N = [
    "1476403206.850000123",
    "-0.999999999",
    "1.99999996",
    "-1.000000001",
    "0.000000001",
    "-5",
    "+7.5",
    "2.",
    "007.10",
]
DATE_N += ["253402300799.999999999", "1e1", "1.5E-3", "1476403206850000123e-9", "-62135596800.000000000"]
NOT_NUMBERS = [".5", ".", "-", "1.5.5", "1,5", "0x10", "1e400", "1.-5", "1. 5", "nan"]
NOT_NUMBERS += ["253402300800", "99999999999999999999", "1e19"]


def test_numbers_keep_every_digit(prepare):
    far = {"253402300799.999999999", "-62135596800.000000000"}  # nanoseconds do not reach them
    rows = [f"{number},{i}" for i, number in enumerate([*DATE_N, *NOT_NUMBERS])]
    left = prepare({"a.csv": "\n".join(["ts,i", *rows])}, "--unit", "s")
    wanted = {i: ns for i, (number, ns) in enumerate(zip(DATE_N, in_ns(DATE_N, 10**9))) if number not in far}
    assert {i: ts for ts, i in left.rows} == wanted
    assert {row["raw"].rsplit(",", 1)[0] for row in left.rejected} == {*NOT_NUMBERS, *far}
    left = prepare({"a.csv": "\n".join(["ts,i", *rows])}, "--unit", "s", "--precision", "us", "--overwrite")
    wanted = {i: ns // 1000 for i, ns in enumerate(in_ns(DATE_N, 10**9))}
    assert {
        i: ts for ts, i in zip(left.table["ts"].cast(pa.int64()).to_pylist(), left.table["i"].to_pylist())
    } == wanted
    numbers = ["1.5", "-1.5", "0.000001", "1476403206850.000123", "-0.0000001"]
    left = prepare({"b.csv": "\n".join(["ts", *numbers])}, "--unit", "ms", "--precision", "ns", "--overwrite")
    assert [ts for (ts,) in left.rows] == sorted([*in_ns(numbers[:-1], 10**6), -1])


def test_one_fine_time_or_a_far_one_changes_no_filter_and_refuses_no_job(prepare):
    rows = ["2016-10-14T00:00:01", "2016-10-14T00:00:02.123456789", "2015-01-01T00:00:00", "9999-12-31T00:00:00"]
    files = {"a.csv": "\n".join(["ts,amp", *(f"{time},{i}" for i, time in enumerate(rows))])}
    fine = [(1_476_403_201_000_000_000, 0), (1_476_403_202_123_456_789, 1)]
    where = ["--where", "ts >= '2016-10-14' and amp >= 0 and ts < '2100-01-01'"]
    left = prepare(files, *where)
    assert left.rows == fine and not left.rejected and left.report["rows"]["filtered"] == 2
    assert "a.csv:3: all are written as int64 nanoseconds" in left.said.out
    left = prepare(files, "--overwrite")
    assert left.rows == [(1_420_070_400_000_000_000, 2), *fine] and left.report["rejected"]["time"] == 1
    assert [(row["line"], row["raw"]) for row in left.rejected] == [(5, "9999-12-31T00:00:00,3")]
    assert "do not reach (1677 to 2262)" in left.rejected[0]["reason"] and left.report["disorder"]["rows"] == 1
    left = prepare(files, *where, "--precision", "us", "--overwrite")
    assert [ts.isoformat() for ts, _ in left.rows] == ["2016-10-14T00:00:01+00:00", "2016-10-14T00:00:02.123456+00:00"]
    # the fine one is left out: microseconds do, and reach
    left = prepare(files, "--where", "amp in (0, 3)", "--overwrite")
    assert left.table.schema.field("ts").type == pa.timestamp("us", "UTC") and len(left.rows) == 2
    left = prepare(files, "--where", "amp in (0, 3)", "--precision", "ns", "--overwrite")
    assert left.rows == fine[:1] and left.report["rows"]["rejected"] == 1


@pytest.mark.parametrize("columns", [("--columns", "ts,k:int"), ()], ids=["one pass", "two passes"])
def test_a_filter_leaves_the_same_rows_in_every_pass(prepare, columns):
    files = {"a.csv": "ts,k\n" + "".join(f"{i},{i % 7}\n" for i in range(2000))}
    left = prepare(files, "--unit", "s", *columns, "--where", "rand() < 0.5")
    rows = left.report["rows"]
    assert 800 < rows["written"] == len(left.rows) < 1200 and rows["duplicates"] == 0
    assert rows["filtered"] == 2000 - rows["written"]
    left = prepare(files, "--unit", "s", *columns, "--where", "k in (select 3)", "--overwrite")
    assert {k for _, k in left.rows} == {3} and left.report["rows"]["written"] == 286
    for wrong in ("max(k) > 1", "k", "row_number() over (order by ts) < 3"):
        assert "--where: got" in prepare(files, "--unit", "s", *columns, "--where", wrong, "--overwrite", code=2)


def test_patterns(prepare):
    arguments = ["--time-format", "dd/MM/yyyy hh:mm a", "--zone", "+01:00"]
    left = prepare(
        {"a.csv": "ts\n29/02/2016 01:30 PM\n30/02/2016 01:30 PM\n2016-02-29\n01/01/1970 01:00 AM\n"}, *arguments
    )
    assert left.rows == [(at(0),), (datetime(2016, 2, 29, 12, 30, tzinfo=UTC),)] and len(left.rejected) == 2
    arguments = ["--time-format", "yyyyMMdd'T'HHmmssXX", "--zone", "Asia/Tokyo", "--overwrite"]
    left = prepare({"a.csv": "ts\n20160229T133000+0200\n"}, *arguments)
    assert left.rows == [(datetime(2016, 2, 29, 11, 30, tzinfo=UTC),)]
    assert "--time-format" in prepare({"a.csv": "ts\n1\n"}, "--time-format", "yyyy-qq-bb", "--overwrite", code=2)
    left = left_in(left.folder)
    assert left.rows == [(datetime(2016, 2, 29, 11, 30, tzinfo=UTC),)]  # what failed replaced nothing


def test_json_lines(prepare):
    lines = [
        b'{"ts": 1476403206.123457, "k": 7, "v": {"a": [1, 2]}, "w": "007"}',
        BOM + b'{"ts": -0.5, "k": 9007199254740993, "b": true}\r',
        b"",
        b'{"ts": 1, "k": 1}{"ts": 2, "k": 2}',
        b'{"ts": 1, "k": 1},{"ts": 2, "k": 2}',
        b"[1, 2]",
        b"{broken",
        b'{"ts": 3, "k": 3, "w": "\xe9"}',
        b'{"ts": null, "k": 3}',
        b'{"k": 3}',
        b'{"ts": 0, "k": null, "w": "\\u00e9\\n"}',
    ]
    lines[1] = lines[1].removeprefix(BOM)
    left = prepare({"a.jsonl": BOM + b"\n".join(lines), "b.json": b""}, "--unit", "s", "--key", "k")
    assert left.table.schema.names == ["b", "k", "ts", "v", "w"] and left.table.schema.field("k").type == pa.int64()
    assert left.rows == [
        (True, 9007199254740993, at(-0.5), None, None),
        (None, None, at(0), None, "é\n"),
        (None, 7, EPOCH + timedelta(seconds=1476403206, microseconds=123457), '{"a":[1,2]}', "007"),
    ]
    assert left.report["rejected"] == {"line": 4, "time": 2, "time in the gap": 0, "encoding": 1}
    raws = [row["raw"] for row in left.rejected]
    assert "{broken" in raws and '{"ts": 3, "k": 3, "w": "é"}' in raws


def test_rejected_rows_have_line_numbers_and_can_be_fed_back(prepare, spark, tmp_path):
    lines = ["ts,v", "", *(f'{i},"a ""{i}"", b"' for i in range(600))]
    bad = {}
    for i in (5, 100, 101, 400, 599):
        lines[i] = bad[i + 1] = lines[i].replace(",", "x,", 1)
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "1000")
    try:
        files = {
            "a.csv": "ts,v\n1,x\nts,v\n",
            "b.csv": "\n".join(lines),
            "c.csv.gz": gzip.compress(b"\n\nts,v\n1,x\n\n?,y\n"),
        }
        left = prepare(files, "--unit", "s")
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before)
    found = [(row["file"].rsplit("/")[-1], row["line"], row["raw"]) for row in left.rejected]
    assert found == [*(("b.csv", line, raw) for line, raw in sorted(bad.items())), ("c.csv.gz", 6, "?,y")]
    assert (
        left.report["input"]["repeated_headers"] == 1
        and left.report["rows"]["read"] == 603
        and "b.csv:6: ts: got '3x'" in left.said.out
    )
    again = "\n".join(["ts,v", *(raw.replace("x,", ",", 1) for _, _, raw in found[:-1])])
    fed = prepare({"again.csv": again}, "--unit", "s", "--overwrite")
    assert [v for _, v in fed.rows] == [f'a "{line - 3}", b' for line in sorted(bad)]
    rows = 'ts,k,v\r\n1,"x\ny, z",\r\n?,"a ""b""\nc",d\n'
    multiline = prepare({"m.csv": rows}, "--unit", "s", "--multiline", "--overwrite")
    assert [(row["line"], row["raw"]) for row in multiline.rejected] == [(None, '?,"a ""b""\nc",d')]


@pytest.mark.parametrize("ends", ["\n", "\r\n", "mixed", "mixed, CR LF first"])
def test_multiline_with_any_line_ends(prepare, ends):
    lines = ["ts,v,k", '1,"x\r\ny",a', "2,,b", "3,z,c", '4,"w",""', "5,u,"]
    end = {"mixed": ["\n", "\r\n"] * 3, "mixed, CR LF first": ["\r\n", "\n"] * 3}.get(ends, [ends] * 6)
    left = prepare(
        {"a.csv": "".join(line + end for line, end in zip(lines, end))}, "--unit", "s", "--key", "k", "--multiline"
    )
    assert [row[1:] for row in left.rows] == [("x\r\ny", "a"), (None, "b"), ("z", "c"), ("w", None), ("u", None)]
    left = prepare({"b.csv": "ts,k\n1,a\r2,b\n3,c\n"}, "--unit", "s", "--multiline", "--overwrite")
    assert [k for _, k in left.rows] == ["c"] and len(left.rejected) == 1


def test_json_that_is_no_plain_row(prepare):
    lines = [
        '{"ts": 1, "user": {"id": 7, "name": "a"}, "x": 0.5}',
        '{"ts": 2, "user": {"id": 8}, "x": 1, "x": 2}',
        '{"ts": 3, "user": {"id": 9}, "x": 1e400}',
        '{"ts": 4, "user": "nobody", "x": -1e308}',
        '{"ts": 5, "x": null}',
    ]
    left = prepare({"a.jsonl": "\n".join(lines[:3] + lines[4:])}, "--unit", "s", "--key", "user.id", "--columns", "x")
    assert left.table.schema.names == ["ts", "x", "user.id"] and left.table.schema.field("user.id").type == pa.int64()
    assert left.rows == [(at(1), 0.5, 7), (at(5), None, None)]
    assert [(row["line"], row["reason"], row["raw"]) for row in left.rejected] == [
        (2, "line: got a name twice in one object, wanted each once", lines[1]),
        (3, "x: got a number that is too large for a float", lines[2]),
    ]
    assert "wanted one of the columns" in prepare(
        {"a.jsonl": lines[3]}, "--unit", "s", "--key", "user.id", "--overwrite", code=2
    )
    nested = '{"at": {"ts": "2016-10-14T00:00:01Z"}, "k": 1}\n{"at": {}, "k": 2}'
    left = prepare({"b.jsonl": nested}, "--time", "at.ts", "--columns", "k", "--overwrite")
    assert left.rows == [(1, datetime(2016, 10, 14, 0, 0, 1, tzinfo=UTC))] and len(left.rejected) == 1


def test_a_float_too_large_is_none(prepare):
    files = {"a.csv": "ts,x,y\n1,1e300,1e400\n2,1e400,1e3\n3,inf,2\n"}
    left = prepare(files, "--unit", "s", "--columns", "x:float,y", "--key", "x")
    assert left.rows == [(at(1), 1e300, "1e400"), (at(3), float("inf"), "2")]
    assert left.rejected[0]["reason"] == "x: got '1e400', wanted float"
    assert "a join takes no double for a key: --columns x:int or x:string makes it a key" in left.said.out


def test_nulls_are_those_of_the_rows_written(prepare, tmp_path):
    long = "x" * 10_000
    files = {"a.csv": f"ts,k,v\n1,a,\n1,a,\n2,,\n3,b,{long}\n4,,w\n"}
    left = prepare(files, "--unit", "s", "--key", "k", "--where", "ts < timestamp_seconds(4)", "--dedup")
    assert {name: column["nulls"] for name, column in left.report["columns"].items()} == {"ts": 0, "k": 1, "v": 2}
    write_parquet(tmp_path / "raw/a.parquet", ts=[1, 2, 3], v=[{"a": 1}, None, {"a": None}])
    left = prepare({}, str(tmp_path / "raw/a.parquet"), "--unit", "s", "--overwrite")
    assert left.report["columns"]["v"]["nulls"] == 1


def test_a_type_that_few_values_spoil_says_so(prepare):
    left = prepare({"a.csv": "ts,n,s\n" + "".join(f"{i},{i},s{i}\n" for i in range(20)) + "20,N/A,t\n"}, "--unit", "s")
    assert left.report["columns"]["n"] == {
        "type": "string",
        "nulls": 0,
        "found_out": True,
        "nearly": "int",
        "misfits": 1,
    }
    assert "all but 1 value would be int: --columns n:int puts those aside" in left.said.out
    assert "nearly" not in left.report["columns"]["s"]


def test_too_many_rejected_rows_end_the_command(prepare, tmp_path):
    rows = "ts,k\n" + "".join(f"{i if i % 5 else 'x'},a\n" for i in range(1, 101))
    for share in ([], ["--max-rejected", "0.19"]):
        error = prepare({"a.csv": rows}, "--unit", "s", "--max-rejected", "0.1", *share, code=3)
        assert "20 of 100 rows cannot be used (time 20), such as" in error and "a.csv:6: ts: got 'x'" in error
        assert not (tmp_path / "out").exists()
    assert prepare({"a.csv": rows}, "--unit", "s", "--max-rejected", "0.2").report["rows"]["written"] == 80
    array = '[{"ts": 1},\n{"ts": 2},\n{"ts": 3}\n]\n{"ts": 4}\n'
    error = prepare({"a.json": array}, "--unit", "s", "--max-rejected", "0.1", "--overwrite", code=3)
    assert "a.json begins with '[', as one JSON array does" in error
    assert "begins with '['" in prepare({"b.json": '[{"ts": 1}, {"ts": 2}]'}, "--unit", "s", "--overwrite", code=2)


def test_by_default_a_tenth_of_the_rows_may_be_rejected(spark, tmp_path, capsys):
    def call(bad):
        lines = [f"{'x' if i < bad else i},a" for i in range(1000)]
        (tmp_path / "a.csv").write_text("\n".join(["ts,k", *lines]))
        words = ["-o", str(tmp_path / "out"), "--time", "ts", "--unit", "s", "--overwrite", "--quiet"]
        return main(["prepare", str(tmp_path / "a.csv"), *words]), capsys.readouterr()

    assert call(100) == (0, (f"900 rows in 1 file: {tmp_path / 'out/data'}\n", ""))
    code, said = call(101)
    assert code == 3 and said.out == "" and "101 of 1,000 rows cannot be used" in said.err
    assert "wanted at most 10 % of them" in said.err and said.err.count("\n") == 1
    assert left_in(tmp_path / "out").report["rows"]["rejected"] == 100  # what failed replaced nothing


def test_files_that_change_between_two_looks_are_named(prepare, tmp_path, monkeypatch):
    def changing(*arguments, look=scan.scan):
        found = look(*arguments)
        (tmp_path / "raw/a.csv").write_text("ts,k\n1,a\n2,b\n")
        return found

    monkeypatch.setattr(scan, "scan", changing)
    error = prepare({"a.csv": "ts,k\n1,a\nx,b\n"}, "--unit", "s", code=3)
    assert (
        "a.csv or other files changed while they were read: 1 row could not be used at first, 0 at a second look"
        in error
    )


def write_parquet(path, **columns):
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table(columns), path)


@pytest.mark.parametrize(
    "kind,values,wanted,arguments",
    [
        (pa.timestamp("us", "UTC"), [5, -5], [(-5, "us"), (5, "us")], ["--zone", "Asia/Tokyo"]),
        (pa.timestamp("us"), [9 * 3600 * 10**6, 0], [(-9 * 3600 * 10**6, "us"), (0, "us")], ["--zone", "Asia/Tokyo"]),
        (
            pa.timestamp("ns"),
            [9 * 3600 * 10**9 + 1, -7],
            [(-9 * 3600 * 10**9 - 7, "ns"), (1, "ns")],
            ["--zone", "Asia/Tokyo"],
        ),
        (pa.timestamp("ns", "UTC"), [1001, -1001], [(-1001, "ns"), (1001, "ns")], []),
        (pa.date32(), [1, -1], [(-86400 * 10**6, "us"), (86400 * 10**6, "us")], []),
        (pa.int32(), [7, -7], [(-7000, "us"), (7000, "us")], ["--unit", "ms"]),
        (pa.int64(), [20160229, 19700101], [(0, "us"), (1456704000 * 10**6, "us")], ["--time-format", "yyyyMMdd"]),
        (pa.float64(), [1476403206.85, -0.25], [(-250000, "us"), (1476403206850000, "us")], ["--unit", "s"]),
    ],
)
def test_parquet(prepare, tmp_path, kind, values, wanted, arguments):
    ts = pa.array(
        [*values, None], pa.int64() if kind != pa.float64() and kind != pa.int32() and kind != pa.date32() else kind
    )
    write_parquet(tmp_path / "raw/a.parquet", ts=ts.cast(kind), v=["a", "b", "c"])
    left = prepare({}, str(tmp_path / "raw"), *arguments)
    unit = wanted[0][1]
    assert left.table["ts"].type == (pa.int64() if unit == "ns" else pa.timestamp("us", "UTC"))
    assert left.table["ts"].cast(pa.int64()).to_pylist() == [time for time, _ in wanted]
    assert left.table["v"].to_pylist() == ["b", "a"] and left.rejected[0]["raw"] == '{"v":"c"}'


def test_types_normal_keys_and_what_does_not_fit(prepare):
    rows = [
        "1, A ,007,1,1.5,true,5,2016-02-29",
        "2,b,12,2,1e3,False,6,2015-02-28",
        "3,B,1,3,-7,true,x,2015-02-29",
        "4,   ,1,-4,0.5,true,1.5, ",
        "5,c,1,5,0.5,true,99999999999999999999,",
    ]
    left = prepare(
        {"a.csv": "\n".join(["ts,k,code,n,x,b,m,day", *rows])},
        *["--unit", "s", "--key", "k", "--trim", "--lower", "--columns", "k,code,n,x,b,m:int,day:date"],
    )
    types = {name: column["type"] for name, column in left.report["columns"].items()}
    found_out = {"ts": "timestamp", "k": "string", "code": "string", "n": "bigint", "x": "double", "b": "boolean"}
    assert types == found_out | {"m": "bigint", "day": "date"}
    assert left.table["k"].to_pylist() == ["a", "b"] and left.table["m"].to_pylist() == [5, 6]
    assert next(row["reason"] for row in left.rejected) == "m: got 'x', wanted int; day: got '2015-02-29', wanted date"
    assert left.report["rejected"]["column m"] == 3 and left.report["rejected"]["column day"] == 1


def test_duplicates_filter_and_columns(prepare):
    rows = ["3,a,1,z", "1,b,2,y", "3,a,1,z", "1,b,3,x", "2,c,4,w", "9,d,0,v"]
    files = {"a.csv": "\n".join(["ts,k,n,u", *rows])}
    arguments = ["--unit", "s", "--key", "k", "--columns", "k,n", "--where", "n > 0 and u <> 'w'"]
    left = prepare(files, *arguments, "--dedup")
    assert left.rows == [(at(1), "b", 2), (at(1), "b", 3), (at(3), "a", 1)]
    assert left.report["rows"] == {"read": 6, "rejected": 0, "filtered": 2, "duplicates": 1, "written": 3}
    left = prepare(files, *arguments, "--dedup-on", "k", "--overwrite")
    assert left.rows == [(at(1), "b", 2), (at(3), "a", 1)] and left.report["rows"]["duplicates"] == 2
    assert left.report["time"]["last"] == "1970-01-01T00:00:03+00:00"
    for condition in ("n >", "z > 0", "n + 1", "n = array(1)"):
        assert "--where: got" in prepare(files, *arguments[:-1], condition, "--overwrite", code=2)


def files_in_disorder(rng, count):
    times = {name: np.sort(rng.integers(0, 10**6, count)) for name in ("a.csv", "b.csv", "c.csv")}
    for name in ("a.csv", "b.csv"):
        times[name] -= (rng.random(count) < 0.1) * rng.integers(0, 10**5, count)
    return times


def test_order_ties_and_disorder_over_pieces_of_files(prepare, spark):
    times = files_in_disorder(np.random.default_rng(3), 3000)
    files = {
        name: "ts,n\n" + "".join(f"{time // 1000 * 1000},{i}\n" for i, time in enumerate(own))
        for name, own in times.items()
    }
    before = spark.conf.get("spark.sql.files.maxPartitionBytes")
    spark.conf.set("spark.sql.files.maxPartitionBytes", "9000")  # so that files are read in pieces
    try:
        left = prepare(files, "--unit", "us", "--rows-per-file", "2000", "--lateness-share", "0.95")
    finally:
        spark.conf.set("spark.sql.files.maxPartitionBytes", before)
    rows = [(int(time) // 1000 * 1000, name, i) for name, own in times.items() for i, time in enumerate(own)]
    assert [(int((time - EPOCH) / timedelta(microseconds=1)), n) for time, n in left.rows] == [
        (t, i) for t, _, i in sorted(rows)
    ]
    lag = np.concatenate([np.maximum.accumulate(own // 1000) - own // 1000 for own in times.values()]) * 10**6
    found = left.report["disorder"]
    assert found["rows"] == (lag > 0).sum() and found["lateness_ns"]["of_all"] == lag.max()
    exact = np.sort(lag)[int(np.ceil(0.95 * len(lag))) - 1]
    assert exact <= found["lateness_ns"]["of_share"] <= exact * 1.002
    assert {file["file"].rsplit("/")[-1] for file in found["worst_files"]} == {"a.csv", "b.csv"}
    parts = sorted((left.folder / "data").iterdir())
    assert [part.name for part in parts] == [file["file"] for file in left.report["files"]] and 4 <= len(parts) <= 6
    spans = [pq.read_table(part)["ts"].cast(pa.int64()).to_numpy() for part in parts]
    assert [(own[0], own[-1], len(own)) for own in spans] == [
        (f["first"], f["last"], f["rows"]) for f in left.report["files"]
    ]


def test_whole_numbers_are_packed_where_no_column_is_of_bytes(prepare):
    """Bytes that do not repeat would be decoded half as fast where numbers are packed."""
    count = range(3000)
    columns = {"ts": count, "n": count, "text": [f"{i}x" for i in count], "bytes": [b"%d" % i for i in count]}
    columns["decimal"] = [Decimal(i) for i in count]
    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    file = pa.BufferOutputStream()
    pq.write_table(table.set_column(4, "decimal", table["decimal"].cast(pa.decimal128(30, 2))), file)
    for further in ("", "text", "bytes", "decimal"):
        names = ["ts", "n", further] if further else ["ts", "n"]
        arguments = ("--unit", "s", "--columns", ",".join(names), "--overwrite")
        left = prepare({"a.parquet": file.getvalue().to_pybytes()}, *arguments)
        part = next((left.folder / "data").iterdir())
        assert ["DELTA_BINARY_PACKED" in encodings(part, name) for name in ("ts", "n")] == [not further] * 2
        assert not any("DELTA_BYTE_ARRAY" in encodings(part, name) for name in names)
        assert [list(row[1:]) for row in left.rows] == [[columns[name][i] for name in names[1:]] for i in count]


def test_any_column_names(prepare):
    left = prepare(
        {"a.csv": "k.1;ts;`x` y;K.1;__;\xe9,=\n1;2;3;4;5;6\n".replace("__", "_")},
        "--unit",
        "s",
        "--delimiter",
        ";",
        "--key",
        "k.1",
        "--columns",
        "k.1:string,`x` y:int,K.1,_",
        "--dedup-on",
        "k.1",
        "--where",
        "`é,=` = 6",
    )
    assert left.table.schema.names == ["k.1", "ts", "`x` y", "K.1", "_"] and left.rows == [("1", at(2), 3, 4, 5)]


def test_one_time_for_all_rows_still_makes_several_files(prepare):
    left = prepare(
        {"a.csv": "ts,n\n" + "".join(f"5,{i}\n" for i in range(1000))}, "--unit", "s", "--rows-per-file", "300"
    )
    assert left.table["n"].to_pylist() == list(range(1000)) and len(left.report["files"]) >= 3


def test_no_rows(prepare):
    left = prepare({"a.csv": "ts,k\n"}, "--unit", "s")
    assert left.rows == [] and left.table.schema.names == ["ts", "k"] and left.report["time"]["first"] is None
    left = prepare({"a.csv": "ts,k\n1,a\n"}, "--unit", "s", "--where", "k = 'b'", "--overwrite")
    assert left.rows == [] and left.report["rows"]["filtered"] == 1


def test_a_broken_call_leaves_nothing_and_replaces_nothing(prepare, tmp_path):
    rows = b"ts,k\n" + b"".join(b"%d,%d\n" % (i, i * i) for i in range(50000))
    error = prepare({"a.csv.gz": gzip.compress(rows)[:-100]}, "--unit", "s", code=2)
    assert "a.csv.gz: cannot be unpacked" in error and not (tmp_path / "out").exists()
    left = prepare({"b.csv": "ts,k\n1,a\n"}, "--unit", "s")
    (left.folder / "mine.txt").write_text("x")
    assert "--overwrite" in prepare({"b.csv": "ts,k\n2,a\n"}, "--unit", "s", code=2)
    assert "none of the 1 rows can be used" in prepare({"b.csv": "ts,k\nx,a\n"}, "--unit", "s", "--overwrite", code=2)
    assert left_in(left.folder).rows == [(at(1), "a")]
    assert prepare({"b.csv": "ts,k\n3,a\n"}, "--unit", "s", "--overwrite").rows == [(at(3), "a")]
    assert sorted(path.name for path in left.folder.iterdir()) == ["data", "mine.txt", "report.json"]
    again = str(left.folder / "data")
    assert main(["prepare", again, "-o", str(left.folder), "--time", "ts", "--overwrite"]) == 2
    assert left_in(left.folder).rows == [(at(3), "a")]


def test_tabs_blanks_and_a_column_without_a_name(prepare):
    left = prepare({"a.tsv": "\tts\t key \n0\t1\ta,b\n1\t2\t c\n"}, "--unit", "s", "--key", "key")
    assert left.rows == [(0, at(1), "a,b"), (1, at(2), " c")]


def test_faults_before_spark_starts(tmp_path, capsys):
    def call(*arguments):
        assert main(["prepare", *map(str, arguments), "-o", str(tmp_path / "out")]) == 2
        assert not (tmp_path / "out").exists()
        return capsys.readouterr().err

    bad = {"--key": "a,,b", "--zone": "Mars", "--time-format": "%Y", "--rows-per-file": 0, "--columns": "a:number"}
    bad |= {"--lateness-share": 2, "--delimiter": ",,"}
    error = call(
        "x",
        "--time",
        "t",
        "--unit",
        "s",
        "--dedup",
        "--dedup-on",
        "a",
        *[word for pair in bad.items() for word in pair],
    )
    assert error.startswith("mpijoin: 9 faults") and all(f"\n  {field}" in error for field in bad)
    (tmp_path / "a.csv").write_text("ts,k\n1,a\n")
    (tmp_path / "b.csv").write_text("ts,q\n1,a\n")
    (tmp_path / "c.parquet").write_bytes(b"")
    (tmp_path / "twice.csv").write_text("ts,ts\n")
    (tmp_path / "wide.csv").write_bytes("ts,k\n".encode("utf-16"))
    assert "b.csv: its header is" in call(tmp_path / "a.csv", tmp_path / "b.csv", "--time", "ts")
    assert "several formats" in call(tmp_path, "--time", "ts")
    assert "no such file" in call(tmp_path / "gone*", "--time", "ts")
    assert "cannot be read as Parquet" in call(tmp_path / "c.parquet", "--time", "ts")
    assert 'named "ts"' in call(tmp_path / "twice.csv", "--time", "ts")
    assert "UTF-8" in call(tmp_path / "wide.csv", "--time", "ts")
    error = call(tmp_path / "a.csv", "--time", "t", "--key", "key", "--columns", "v")
    assert "3 faults" in error and "wanted one of the columns ts, k" in error


@pytest.mark.parametrize("module", [order, report])
def test_examples(module):
    found = doctest.testmod(module)
    assert found.failed == 0 and found.attempted > 0


@pytest.mark.parametrize("seed", range(50))
def test_lags_are_those_of_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    count = rng.integers(1, 60)
    rows = np.sort(rng.integers(0, 3, count)), rng.integers(0, 4, count)
    before = [order.NONE_BEFORE, 2, 3]
    if seed % 2:  # lags of centuries, which int64 does not hold
        rows, before = (rows[0], (rows[1] - 2) * 2**62), [order.NONE_BEFORE, 0, 2**62]
    wanted, longest, newest, last = Counter(), Counter(), None, None
    for piece, time in zip(*map(np.ndarray.tolist, rows)):
        newest, last = max(before[piece] if piece != last else newest, time), piece
        wanted[order.ALL, int(order.bins(np.array([newest - time], np.uint64))[0])] += 1
        wanted[piece, 0] += newest > time
        longest[piece] = max(longest[piece], newest - time)
    cuts = [0, *np.sort(rng.integers(0, count, 2)), count]  # as Spark cuts them, anywhere
    batches = [pa.record_batch([own[a:b] for own in rows], ["piece", "time"]) for a, b in itertools.pairwise(cuts)]
    found, farthest = Counter(), Counter()
    for batch in order._count_lags([0, 1, 2], before, iter(batches)):
        for row in batch.to_pylist():
            found[row["file"], row["bin"]] += row["rows"]
            farthest[row["file"]] = max(farthest[row["file"]], row["longest"])
    assert found == wanted and farthest == longest


def shuffled_csv(name, folder, rng):
    """Writes the real stream as text in random order into three files, one of which is packed."""
    table = pq.read_table(f"{DATA}/{name}.parquet")
    order = rng.permutation(table.num_rows)
    folder.mkdir()
    columns = [table[column].take(pa.array(order)).to_pylist() for column in table.column_names]
    columns[0] = [(EPOCH + timedelta(microseconds=ts)).strftime("%Y-%m-%d %H:%M:%S.%f") for ts in columns[0]]
    columns[1] = [f" {key.lower()} " for key in columns[1]]
    lines = [",".join(map(str, row)) for row in zip(*columns)]
    for i, pack in enumerate((str.encode, str.encode, lambda text: gzip.compress(text.encode()))):
        text = "\r\n".join([",".join(table.column_names), *lines[i::3]])
        (folder / f"{i}.csv{'.gz' if i == 2 else ''}").write_bytes(pack(text))


def test_real_data_from_text_to_a_verified_run(prepare, tmp_path):
    rng = np.random.default_rng(7)
    streams = {}
    for name in ("left", "right"):
        shuffled_csv(name, tmp_path / f"raw-{name}", rng)
        left = prepare(
            {}, str(tmp_path / f"raw-{name}"), "--key", "key", "--trim", "--lower", "--rows-per-file", "9000", out=name
        )
        original = pq.read_table(f"{DATA}/{name}.parquet")
        assert left.table["ts"].cast(pa.int64()).equals(original["ts"]) and left.report["disorder"]["rows"] > 30000
        assert sorted(left.table["weight"].to_pylist()) == sorted(original["weight"].to_pylist()) and not left.rejected
        streams[name] = {"path": str(left.folder / "data"), "time": "ts", "key": "key", "window": "20 s"}
    done = mpijoin.run({**streams, "output": {"path": str(tmp_path / "run")}}, slaves=2)
    assert (
        done.results == 53_869
        and done.summary["streams"]["left"]["late"] == done.summary["streams"]["right"]["late"] == 0
    )
    assert main(["verify", str(tmp_path / "run")]) == 0


def test_a_quote_that_is_never_closed(prepare, tmp_path):
    """Spark's parser would close it at the file's end, without a word."""
    cut = b'ts,k,v\n1,a,"x\ny"\n2,b,z\n3,c,"said\n""so""\n'
    for name, content in ("a.csv", cut), ("b.csv.gz", gzip.compress(cut)):
        error = prepare({name: content}, "--unit", "s", "--multiline", code=2)
        assert f"{name}:5: the quote that opens here is never closed" in error and not (tmp_path / "out").exists()
    error = prepare({"c.csv.gz": gzip.compress(cut)[:-20]}, "--unit", "s", "--multiline", code=2)
    assert "c.csv.gz: cannot be unpacked" in error
    left = prepare({"a.csv": cut + b'"'}, "--unit", "s", "--multiline")
    assert [row[1:] for row in left.rows] == [("a", "x\ny"), ("b", "z"), ("c", 'said\n"so"\n')]
    left = prepare({"a.csv": cut}, "--unit", "s", "--overwrite")
    assert left.rows == [(at(2), "b", "z")] and [row["line"] for row in left.rejected] == [2, 3, 5, 6]
    assert left.rejected[2]["reason"] == "line: a quote is not closed (line breaks between quotes need --multiline)"


def test_quotes_are_closed_where_the_parser_closes_them(spark, tmp_path):
    """Spark's parser, with a further row behind each file: the quote is open if that row is not read as one."""
    rng, opened = random.Random(7), Counter()
    for delimiter in ",", "¦":
        texts = {}
        for number in range(400):
            letters = f'""{delimiter}\n\r ax{delimiter.encode().decode("latin-1")}'
            texts[tmp_path / f"{ord(delimiter)}_{number}.csv"] = "".join(rng.choices(letters, k=rng.randrange(14)))
        for path, text in texts.items():
            path.write_text(f"{text}\nlast{delimiter}row\n", encoding="utf-8", newline="")
        options = read.multiline_options(Source("csv", (), (), 0, ("a", "b"), delimiter=delimiter))
        with conf_set(spark, {"spark.sql.files.openCostInBytes": "1b"}):
            rows = spark.read.schema("a string, b string").options(**options, header=False).csv([*map(str, texts)])
            rows = rows.select("a", "b", F.input_file_name(), F.monotonically_increasing_id().alias("row"))
            last = {file.rsplit("/")[-1]: values for *values, file, _ in rows.orderBy("row").collect()}
        for path, text in texts.items():
            path.write_text(text, encoding="utf-8", newline="")
            closed = open_quote(str(path), delimiter) is None
            assert closed == (last[path.name] == ["last", "row"]), repr(text)
            opened[closed] += 1
    assert min(opened.values()) > 100
