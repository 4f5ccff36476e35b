"""Values at and beyond the ends of what numbers, texts and tables can be, in every field: nothing is worse than a fault
that names the field."""

from math import inf, nan

import pytest

from mpijoin.config.check import resolve
from mpijoin.config.fields import SECTIONS, SOURCE_FIELDS, STREAM_FIELDS, SYNTHETIC_FIELDS
from mpijoin.config.load import read_job
from mpijoin.errors import JobError
from mpijoin.launch.setup import launch_faults

NUMBERS = (0, -1, 1, 2**31, 2**63 - 1, 2**63, -(2**63), 10**400, 1e308, -1e308, 1e-308, inf, -inf, nan)
TEXTS = (
    *("", "\0", "\udcff", "é" * 999),
    *("inf s", "nan s", "-1 s", "9223372036854775807 ns", "106752 d", "9000000000 GiB"),
)
REST = (True, [], {}, [0], [[]], [{}], {"": ""}, {"1": 2**63}, {"-1": 1}, {str(10**30): 0.5}, {"²": 1}, {"1" * 5000: 1})
SYNTHETIC = {"kind": "synthetic", "rate": 1000, "tuples": 50}
INSTEAD_OF = {"duration": ("tuples",), "path": tuple(SYNTHETIC), "table": tuple(SYNTHETIC)}


def faults_of(document):
    job, faults = read_job(document, [])
    try:
        resolve(job, [*faults, *launch_faults(job)])
    except JobError as error:
        return error.faults
    return []


def document_of(section, field, value):
    streams = {name: dict(SYNTHETIC) for name in ("a", "b", "c")}
    document = {"streams": streams, "output": {"path": "/there/is/no/such/folder/yet"}}
    if section == "b":
        streams["b"][field] = value
        for other in INSTEAD_OF.get(field, ()):
            del streams["b"][other]
    elif section == "aggregate":
        document["streams"] = {"a": dict(SYNTHETIC, payload_bytes=8)}
        document["aggregate"] = {"history": "5 rows", "columns": {"n": "count()"}, field: value}
    else:
        document.setdefault(section, {})[field] = value
    return document


FIELDS = [(section, field.name) for section, (_, fields) in SECTIONS.items() for field in fields]
FIELDS += [("b", field.name) for field in (*SOURCE_FIELDS, *STREAM_FIELDS, *SYNTHETIC_FIELDS)]


@pytest.mark.parametrize("section, field", FIELDS)
def test_no_value_of_a_field_is_worse_than_a_fault_that_names_it(section, field):
    called = "[streams.b]" if section == "b" else f"[{section}]"
    for value in (*NUMBERS, *TEXTS, *REST):
        for fault in faults_of(document_of(section, field, value)):
            named, _, said = fault.partition(": ")
            assert called in named and field in named and said, (value, fault)


def test_the_job_itself_has_no_fault():
    assert faults_of(document_of("run", "seed", 3)) == []
