"""CSV files: what quotes, leading zeros, long lines, encodings and empty files mean, and where it is told what is
wrong."""

import csv
import gzip
import io
import re
import tomllib

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mpijoin.checkpoint.identity import check_identity, identity_of
from mpijoin.config.check import resolve
from mpijoin.config.dump import dump_job
from mpijoin.config.load import load_job, read_job
from mpijoin.data.csv_records import first_padded, may_be_padded, split
from mpijoin.data.files import expand_files, file_schema, stream_schema
from mpijoin.data.schema import Column
from mpijoin.errors import InputError, JobError
from mpijoin.sources import csv_reader
from mpijoin.sources.files import open_file

TS, KEY = Column("ts", pa.int64()), Column("key", pa.string())


def read(path, columns=(TS, KEY), typed=()):
    return [row for block in open_file(str(path), columns, typed=typed).blocks() for row in block.to_pylist()]


def keys(path, kind=pa.string(), typed=()):
    return [row["key"] for row in read(path, (TS, Column("key", kind)), typed)]


def faults(tmp_path, left, right=None, **fields):
    """What check says of a job of these two CSV files."""
    side = {"time": "ts", "time_unit": "s", "key": "key", "window": "5 s"}
    sides = {"left": {"path": str(left), **side, **fields}, "right": {"path": str(right or left), **side}}
    job, found = read_job({**sides, "output": {"path": str(tmp_path / "run")}}, ())
    try:
        resolve(job, found)
    except JobError as error:
        return error.faults
    return []


@pytest.fixture
def small(monkeypatch):
    """Pieces of 64 bytes: everything straddles one."""
    monkeypatch.setattr(csv_reader, "PIECE_BYTES", 64)


@pytest.mark.parametrize("tail", ["", "\n"])
def test_a_quote_that_is_never_closed_is_told_with_its_line(tmp_path, tail):
    path = tmp_path / "picks.csv"
    path.write_text('ts,key\n1,a\n2,"b\n3,c\n4,d' + tail)
    with pytest.raises(InputError, match="picks.csv: line 3: the quote that opens here is never closed") as error:
        read(path)
    assert error.value.exit_code == 2


def test_a_quote_that_the_next_one_closes_is_told(tmp_path):
    path = tmp_path / "picks.csv"
    path.write_text('ts,key\n1,a\n2,"b\n3,c\n4,"d"\n')
    with pytest.raises(InputError, match="picks.csv: line 5: got text behind a closing quote, wanted a comma"):
        read(path)


def test_an_open_quote_does_not_read_a_large_file_into_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(csv_reader, "RECORD_BYTES_MAX", 4000)
    monkeypatch.setattr(csv_reader, "PIECE_BYTES", 500)
    path = tmp_path / "picks.csv"
    path.write_text('ts,key\n1,"a\n' + "2,b\n" * 100_000)
    with pytest.raises(
        InputError, match="picks.csv: line 2: a record of more than .* begins here: is a quote not closed"
    ):
        read(path)


def test_values_over_several_lines_and_long_lines_are_read_as_they_are(tmp_path, small):
    path = tmp_path / "picks.csv"
    wanted = ["a\nb", "plain", 'said "so"', "x" * 5000, "", "one\r\ntwo,three", "5\" pipe", "last\n\n"]
    with open(path, "w", newline="") as file:
        file.write("ts,key\r\n")
        for row, value in enumerate(wanted * 9):
            quoted = value if value == '5" pipe' else '"' + value.replace('"', '""') + '"'
            file.write(f"{row},{quoted}\n" + "\n" * (row % 3 == 0))
    assert keys(path) == wanted * 9


@settings(max_examples=150, deadline=None)
@given(
    rows=st.lists(st.lists(st.text(alphabet='a0,"\n\r ', max_size=6), min_size=2, max_size=2), min_size=1, max_size=8),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    quoting=st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    piece=st.integers(1, 40),
)
def test_pieces_are_whole_records_however_they_are_quoted(rows, end, quoting, piece):
    if quoting == csv.QUOTE_MINIMAL:  # which leaves line ends bare where they are not its own
        rows = [[re.sub("[\r\n]", "", value) for value in row] for row in rows]
    file = io.StringIO(newline="")
    csv.writer(file, lineterminator=end, quoting=quoting).writerows(rows)
    text, rest, found = file.getvalue().encode(), b"", []
    for start in range(0, len(text), piece):
        rest += text[start : start + piece]
        cut = split(rest)
        assert cut.behind < 0
        if cut.end:
            found += list(csv.reader(io.StringIO(rest[: cut.end].decode(), newline="")))
            rest = rest[cut.end :]
    assert split(rest).open_quote < 0
    found += list(csv.reader(io.StringIO(rest.decode(), newline="")))
    assert [row for row in found if row] == rows


def test_keys_with_leading_zeros_are_strings(tmp_path):
    path = tmp_path / "picks.csv"
    path.write_text("ts,key,n,half\n1,007,0,0.5\n2,7,10,00.5\n3,-3,-1,1\n")
    assert file_schema(str(path)).types == [pa.int64(), pa.string(), pa.int64(), pa.float64()]
    assert keys(path) == ["007", "7", "-3"]
    assert file_schema(str(path), {"key": "int64"}).field("key").type == pa.int64()
    assert keys(path, pa.int64(), typed={"key"}) == [7, 7, -3]


@pytest.mark.parametrize("late", ["007", "-00", '"-07"', " 01"])
def test_leading_zeros_behind_the_first_rows_are_told_and_not_lost(tmp_path, late):
    path = tmp_path / "picks.csv"
    path.write_text("ts,key\n" + "".join(f"{i},{i % 97}\n" for i in range(300_000)) + f"300000,{late}\n300001,7\n")
    kind = file_schema(str(path)).field("key").type
    assert kind == pa.int64()
    with pytest.raises(InputError, match="picks.csv: line 300002: column 'key': got .* would lose its zeros") as error:
        keys(path, kind)
    assert 'types = {key = "string"}, or "int64" if it is one' in str(error.value)
    assert keys(path)[-2:] == [late.strip('"'), "7"]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["0", "7", "00", "07", "-07", "+0", "-0", "0.5", "a07", '"08"', " 03", "  004", "12-05", "1 05", ""]
        ),
        max_size=6,
    )
)
def test_no_field_with_leading_zeros_escapes_the_quick_look(values):
    padded = [at for at, value in enumerate(values) if re.match(r'"? *[+-]?0\d', value)]
    text = ("7,7\n\n\n" + ",".join(values) + "\n").encode()
    assert may_be_padded(memoryview(b"\n\n" + text)) or not padded
    for looked_at in (np.ones(6, bool), np.arange(6) % 2 == 1):
        wanted = next(((1, at) for at in padded if looked_at[at]), (-1, -1))
        assert first_padded(text, looked_at) == wanted


def test_compressed_files_are_read_as_the_others(tmp_path, small):
    text = "ts,key\n" + "".join(f'{i},"k{i % 5}"\n' for i in range(2000))
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "a.csv").write_text(text)
    path = tmp_path / "a.CSV.gz"
    path.write_bytes(gzip.compress(text[:9000].encode()) + gzip.compress(text[9000:].encode()))
    assert expand_files(str(tmp_path)) == [str(path)]
    assert read(path) == read(tmp_path / "plain" / "a.csv") and file_schema(str(path)).types == [
        pa.int64(),
        pa.string(),
    ]
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(InputError, match="a.CSV.gz: cannot be read as CSV: Truncated compressed stream"):
        read(path)


def test_other_compressed_files_are_no_csv(tmp_path):
    (tmp_path / "a.parquet.gz").write_bytes(b"")
    with pytest.raises(InputError, match="got extension '.parquet.gz', wanted one of .* .csv .csv.gz"):
        expand_files(str(tmp_path / "a.parquet.gz"))


def test_a_file_without_rows_does_not_decide_types(tmp_path):
    (tmp_path / "a.csv").write_text("ts,key,v")
    (tmp_path / "b.csv").write_text("ts,key,v\n1,x,\n")
    (tmp_path / "c.csv").write_text("ts,key,v\n2,y,7\n")
    files = expand_files(str(tmp_path))
    assert stream_schema(files, {}).types == [pa.int64(), pa.string(), pa.int64()]
    assert faults(tmp_path, tmp_path) == []
    (tmp_path / "c.csv").unlink()
    (fault, other) = faults(tmp_path, tmp_path)
    assert fault.startswith(
        '[left] columns: column "v" has no value in the first rows of any file; say what it is, such as types = {v ='
    )
    assert faults(tmp_path, tmp_path, types={"v": "double"}) == [other] and other.startswith("[right]")
    (tmp_path / "b.csv").unlink()
    advised = [re.search("types = {(.*)}", fault)[1] for fault in faults(tmp_path, tmp_path)]
    assert advised[:2] == ['ts = "int64"', 'key = "string"']


def test_a_later_file_whose_values_do_not_fit_is_told_before_the_run(tmp_path):
    (tmp_path / "a.csv").write_text("ts,key\n1,7\n")
    (tmp_path / "b.csv").write_text("ts,key\n2,007\n")
    told = (
        f'[left] path: {tmp_path}/b.csv: column "key" has values that are string, in the first file int64; say what'
        " it is"
    )
    assert faults(tmp_path, tmp_path)[0].startswith(told)


@pytest.mark.parametrize("rows", [0, 3])
def test_a_key_that_is_not_utf8_is_told_with_its_line(tmp_path, rows):
    path = tmp_path / "picks.csv"
    path.write_bytes(b"ts,key\n" + b"1,fine\n\n" * rows + b"2,Forl\xec\n3,fine\n")
    told = (
        f"path: {path}: line {2 + 2 * rows}: column 'key': got the byte 0xec behind 'Forl'; wanted UTF-8: convert the"
        " file"
    )
    assert [fault.partition("] ")[2].startswith(told) for fault in faults(tmp_path, path)] == [True, True]
    with pytest.raises(
        InputError, match=f"picks.csv: line {2 + 2 * rows}: column 'key': got the byte 0xec behind 'Forl'"
    ):
        read(path)
    assert [row["key"] for row in read(path, (TS, Column("key", pa.binary())), {"key"})][-2:] == [b"Forl\xec", b"fine"]


def test_a_header_that_is_not_utf8_is_told_with_its_line(tmp_path):
    path = tmp_path / "picks.csv"
    path.write_bytes(b"\nts,key,citt\xe0\n1,a,b\n")
    for fault in faults(tmp_path, path):
        assert f"{path}: line 2: got the byte 0xe0 behind 'ts,key,citt' in the header; wanted UTF-8" in fault


def test_a_row_of_the_wrong_length_is_told_with_its_line(tmp_path, small):
    path = tmp_path / "picks.csv"
    path.write_text("ts,key\n" + '1,"a\nb"\n\n' * 50 + "2\n3,c\n")
    with pytest.raises(InputError, match="picks.csv: line 152: got 1 values, wanted 2 as in the header"):
        read(path)


def test_types_are_checked_as_every_other_field(tmp_path):
    path = tmp_path / "picks.csv"
    path.write_text("ts,key,v\n1,007,2\n")
    found = faults(tmp_path, path, types={"kye": "string", "v": "strng"})
    assert [fault.partition(",")[0] for fault in found] == [
        '[left] types: got "strng" for column "v"',
        '[left] types: no column "kye"',
    ]
    assert faults(tmp_path, path, types=3) == [
        '[left] types: got 3, wanted a table of column = type, such as {station = "string"}'
    ]
    (fault,) = faults(tmp_path, path, types={"key": "int64"})
    assert '"key" is int64 and "key" is string, wanted one type' in fault and fault.endswith('types = {key = "string"}')
    assert (
        "conversion error to timestamp[us]: invalid value '1'"
        in faults(tmp_path, path, path, types={"ts": "timestamp[us]"})[0]
    )


def test_types_are_written_out_and_kept_by_checkpoints():
    types = {"a b": "string", "n": "int64"}
    document = {"left": {"path": "/l.csv", "types": types}, "right": {"path": "/r.csv"}, "output": {"path": "/run"}}
    job = load_job(document)
    assert load_job(tomllib.loads(dump_job(job))) == job and job.streams[0].types == {"a b": "string", "n": "int64"}
    other = load_job({**document, "left": {"path": "/l.csv"}})
    with pytest.raises(JobError, match=r"\[left\] types: got"):
        check_identity(other, identity_of(job))
