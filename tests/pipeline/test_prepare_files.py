"""`mpijoin prepare` before Spark: what files are called, and what stands in their heads."""

import gzip
import json
from pathlib import Path

import pytest

from mpijoin.errors import InputError
from mpijoin.pipeline.prepare.files import find_source
from mpijoin.pipeline.prepare.options import Wanted, column_faults


def source(*paths, **options):
    return find_source(Wanted(tuple(map(str, paths)), Path("out"), "ts", **options))


def test_a_file_called_tsv_has_tabs(tmp_path):
    (tmp_path / "a.tsv").write_text("ts\tkey, of a kind\n")
    (tmp_path / "b.tsv.gz").write_bytes(gzip.compress(b"ts\tkey, of a kind\n"))
    (tmp_path / "c.csv").write_text("ts;key\n")
    found = source(tmp_path / "a.tsv", tmp_path / "b.tsv.gz")
    assert (found.names, found.delimiter) == (("ts", "key, of a kind"), "\t")
    assert source(tmp_path / "c.csv", delimiter=";").names == ("ts", "key")
    with pytest.raises(InputError, match=r"a.tsv and .*c.csv: one is called .tsv, one not: wanted --delimiter"):
        source(tmp_path / "a.tsv", tmp_path / "c.csv")


@pytest.mark.parametrize(
    "head, names",
    [
        (" ts, key ,\tvalue", ("ts", "key", "value")),
        (',ts,key', ("column1", "ts", "key")),  # as pandas writes its index
        ('"",ts," key"', ("column1", "ts", "key")),
        ("ts,key,", ("ts", "key", "column3")),
        ('ts, "a, b"', ("ts", "a, b")),
    ],
)
def test_headers_as_programs_write_them(tmp_path, head, names):
    (tmp_path / "a.csv").write_text(head + "\n1,2,3\n")
    assert source(tmp_path / "a.csv").names == names


def test_two_columns_of_one_name_are_refused(tmp_path):
    for head in ("ts, ts", ",column1"):
        (tmp_path / "a.csv").write_text(head + "\n")
        with pytest.raises(InputError, match="not twice there"):
            source(tmp_path / "a.csv")


@pytest.mark.parametrize("sign", [";", "\t", "|"])
def test_a_head_of_one_column_that_another_delimiter_would_part_says_so(sign):
    wanted = Wanted(("a.csv",), Path("out"), "ts")
    (told,) = column_faults(wanted, [f"ts{sign}k"])
    assert told.endswith(f": a single one, or --delimiter {json.dumps(sign)}?")
    (told,) = column_faults(wanted, ["time", f"a{sign}k"])
    assert "--delimiter" not in told
