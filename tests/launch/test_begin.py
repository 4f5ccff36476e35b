"""The setup of a run travels as plain data: what is sent is what arrives, and what is no setup is refused by name."""


from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from mpijoin.config.load import load_job
from mpijoin.data.schema import Column, JoinSchema, StreamSchema
from mpijoin.errors import ProtocolError
from mpijoin.launch.begin import begin_of, setup_in
from mpijoin.launch.roles import Roles, RunSetup
from mpijoin.messages import encode_message, parse
from mpijoin.rundir import RunDirectory

NAMES = ("p", "s", "third_one")
TYPES = (pa.timestamp("us", "UTC"), pa.string(), pa.decimal128(20, 3), pa.dictionary(pa.int32(), pa.string()))


def setup(streams=3, directory=True):
    names = NAMES[:streams]
    side = {"kind": "synthetic", "rate": 10, "tuples": 5, "window": "3 s"}
    job = load_job({"streams": {name: dict(side) for name in names}, "output": {"path": "/runs/a", "results": "count"}})
    time, *columns = (Column(f"c{at}", kind) for at, kind in enumerate(TYPES))
    schemas = tuple(
        StreamSchema(name, time, 1000, tuple(columns[:2]), True, tuple(columns[2:]), name != "p") for name in names
    )
    folder, checkpoints = (RunDirectory(Path("/runs/a")), Path("/runs/a/checkpoint")) if directory else (None, None)
    return RunSetup(job, JoinSchema(schemas, "ns"), Roles(4, True), folder, checkpoints, directory)


@pytest.mark.parametrize("streams", [1, 2, 3])
@pytest.mark.parametrize("directory", [False, True])
def test_a_setup_arrives_as_it_was_sent_without_its_locks(streams, directory):
    sent = setup(streams, directory)
    assert setup_in(parse(encode_message(begin_of(sent._replace(locks=("a lock",)))))) == sent


def changed(**values):
    begin = begin_of(setup())
    return begin._replace(setup={**begin.setup, **values})


def without(name):
    begin = begin_of(setup())
    return begin._replace(setup={key: value for key, value in begin.setup.items() if key != name})


@pytest.mark.parametrize("name", begin_of(setup()).setup)
def test_a_setup_without_a_field_or_with_another_kind_of_value_is_refused(name):
    for begin in (without(name), changed(**{name: None}), changed(**{name: 3.5}), changed(**{name: [[]]})):
        with pytest.raises(ProtocolError, match="the setup of the run that came from the master cannot be used: "):
            setup_in(parse(encode_message(begin)))


@pytest.mark.parametrize(
    "values, said",
    [
        ({"format": 99}, "got format 99, wanted 3"),
        ({"job": "x = "}, "TOMLDecodeError"),
        ({"job": "[run]\nspeed = 7\n"}, "JobError"),
        ({"unit": "days"}, "got unit 'days', wanted one of s, ms, us, ns"),
        ({"streams": [["p", 1, True, False, 1]]}, "got columns of 3 streams, wanted p, s, third_one"),
        ({"streams": [[name, 1, True, None, 2] for name in NAMES]}, "null_keys None"),
        ({"streams": [[name, 1, True, False, 99] for name in NAMES]}, "99 keys"),
    ],
)
def test_a_foreign_setup_is_refused_by_what_is_wrong_with_it(values, said):
    with pytest.raises(ProtocolError, match=said):
        setup_in(changed(**values))


def test_damaged_columns_are_refused():
    begin = begin_of(setup())
    whole = begin.columns[1]
    for octets in (whole[:7], whole[: len(whole) // 2], np.zeros(64, np.uint8), np.empty(0, np.uint8)):
        with pytest.raises(ProtocolError, match="cannot be used"):
            setup_in(begin._replace(columns=(begin.columns[0], octets, begin.columns[2])))
