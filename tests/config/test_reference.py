"""`mpijoin check --fields`: every field that a job accepts is explained, and the documentation says the same of it."""

import re
import tomllib
from pathlib import Path

import pytest

from mpijoin.cli import main
from mpijoin.config import job as job_module
from mpijoin.config.fields import SECTIONS, SOURCE_FIELDS, STREAM_FIELDS, SYNTHETIC_FIELDS
from mpijoin.config.job import SHORT_STREAMS, FileSource, Job, Query, StreamJob, SyntheticSource
from mpijoin.config.load import load_job
from mpijoin.config.queries import QUERY, QUERY_FIELDS
from mpijoin.config.reference import REQUIRED, UNSET, default_text, reference, sections, type_text

ROOT = Path(__file__).parents[2]
FIELDS = [(title, field) for title, (_, fields, _) in sections().items() for field in fields]
IDS = [f"{title}.{field.name}" for title, field in FIELDS]


@pytest.mark.parametrize("title, field", FIELDS, ids=IDS)
def test_every_field_has_a_meaning_a_type_and_a_unit(title, field):
    assert field.meaning.endswith(".") and field.meaning[:1] in field.meaning.upper() + "\"{'"
    assert field.kind.called
    if field.kind.called in ("whole number", "number"):
        assert field.unit, "a plain number has no unit of its own"
    assert field.meaning.count('"') % 2 == 0 and type_text(field)


def test_every_value_of_a_job_is_a_field_that_is_explained():
    """A field that is new in the job cannot be forgotten here."""
    own = {StreamJob: STREAM_FIELDS, SyntheticSource: SYNTHETIC_FIELDS, FileSource: SOURCE_FIELDS[:1]}
    own |= {**dict(SECTIONS.values()), Query: QUERY_FIELDS}
    besides = {"name", "source"}  # of a stream: what its section is called, and the fields of SOURCE_FIELDS
    for make, fields in own.items():
        assert set(make._fields) - besides == {field.attribute for field in fields} - besides, make
    assert set(Job._fields) == {"streams", "queries", *SECTIONS}
    sections = [one for one in vars(job_module).values() if isinstance(one, type) and issubclass(one, tuple)]
    # Python gives a named tuple without a docstring one that begins with its fields.
    assert len(sections) > 12 and not [one for one in sections if one.__doc__.startswith(f"{one.__name__}(")]


def test_the_defaults_that_are_told_are_those_of_a_job():
    """A job file in which each field has the default that is printed is the job that has none of them."""
    documents = {}
    for title, (_, fields, defaults) in sections().items():
        told = ((field.name, default_text(title, field, defaults)) for field in fields)
        text = "\n".join(f"{name} = {value}" for name, value in told if value not in (REQUIRED, UNSET))
        documents[title] = tomllib.loads(text)
    synthetic = {"kind": "synthetic", "tuples": 5}
    documents["streams"] = {
        "a": {"path": "/l.parquet", **documents["streams"]},
        "b": {**synthetic, **documents.pop("synthetic")},
    }
    streams, query = {"a": {"path": "/l.parquet"}, "b": synthetic}, documents.pop(QUERY)
    assert load_job(documents) == load_job({"streams": streams})
    assert load_job({**documents, QUERY: [{"name": "near", **query}]}) == load_job(
        {"streams": streams, QUERY: [{"name": "near"}]}
    )


@pytest.mark.parametrize("width", [50, 80, 110])
def test_no_line_is_wider_than_the_terminal_and_nothing_is_lost(width):
    text = reference("", width, colored=False)
    assert max(map(len, text.splitlines())) <= width
    words = text.split()
    for _, field in FIELDS:
        assert field.name in words
        meaning = field.meaning.split()
        assert any(words[at : at + len(meaning)] == meaning for at in range(len(words)))
    assert "\x1b" not in text and "\x1b[1m" in reference("", width, colored=True)


def test_one_section_can_be_asked_for(capsys):
    assert main(["check", "--fields", "checkpoint"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("[checkpoint]\n") and "[output]" not in out
    assert re.search(r'^  margin +"off" +duration, or "off"$', out, re.MULTILINE)
    for name in ("streams", "right"):
        assert main(["check", "--fields", name]) == 0
        assert capsys.readouterr().out.startswith("[streams.NAME], [left] and [right]\n")
    assert main(["check", "--fields", "outptu"]) == 2
    assert 'got "outptu", wanted one of left right streams synthetic cluster' in capsys.readouterr().err
    assert main(["check", "job.toml", "--fields"]) == 2


def test_a_pipe_gets_plain_text(capsys):
    assert main(["check", "--fields"]) == 0
    out = capsys.readouterr().out
    assert "\x1b" not in out and out.count("\n[") == len(sections())


# Job files in the documentation: what the pages show must be what a job accepts, and what they call a default must be
# it.
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("mpijoin/**/*.md"), *ROOT.glob("s*/**/README.md")])
BLOCKS = [
    pytest.param(block, id=f"{page.relative_to(ROOT)}-{number}")
    for page in PAGES
    for number, block in enumerate(re.findall(r"^```toml\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE))
]
EXAMPLES = {"path", "time", "time_unit", "key", "window", "columns"}  # every job has its own


def fields_of(section, values):
    """{name: (title, field)} that a section of these values may have."""
    titles = ["streams"] if section in SHORT_STREAMS or section.startswith("streams.") else [section]
    if values.get("kind") == "synthetic":
        titles = ["streams", "synthetic"]
    return {field.name: (title, field) for title in titles for field in sections()[title][1]}


@pytest.mark.parametrize("block", BLOCKS)
def test_job_files_in_the_documentation_have_fields_that_there_are(block):
    document = tomllib.loads(block)
    document |= {f"streams.{name}": values for name, values in document.pop("streams", {}).items()}
    queries = [(QUERY, values) for values in document.pop(QUERY, [])]
    for section, values in (*document.items(), *queries):
        if section not in (*SHORT_STREAMS, *SECTIONS, QUERY) and not section.startswith("streams."):
            continue  # a sweep's, for one
        known = fields_of(section, values)
        for name, value in values.items():
            assert name in known, f"[{section}] {name}"
            if name not in ("path", "table", "kind"):
                known[name][1].kind.parse(value)


@pytest.mark.parametrize("block", BLOCKS)
def test_defaults_that_the_documentation_tells_are_those_that_hold(block):
    section = ""
    for line in block.splitlines():
        if header := re.match(r"\[([\w.]+)\]", line):
            section = header[1]
        told = re.match(r"(\w+) = .*# .*\bdefault(?:s to|:)? (\S.*)", line)
        if told and (section in SHORT_STREAMS + tuple(SECTIONS) or section.startswith("streams.")):
            title, field = fields_of(section, {"kind": "synthetic"} if 'kind = "synthetic"' in block else {})[told[1]]
            default = default_text(title, field, sections()[title][2]).strip('"')
            assert default == UNSET or told[2].strip('"').startswith(default), line


def test_the_readme_shows_the_usual_fields_with_their_defaults():
    """In its job file every field is either an example of what each job has of its own, or has its default, or names
    it."""
    block = re.search(
        r"^## The job file\n.*?```toml\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE
    )[1]
    shown = tomllib.loads(block)
    for section, values in shown.items():
        for name, value in values.items():
            title, field = fields_of(section, values)[name]
            default = default_text(title, field, sections()[title][2])
            if name not in EXAMPLES and not re.search(rf"^{name} = .*default", block, re.MULTILINE):
                assert field.kind.write(field.kind.parse(value)) == default, f"[{section}] {name}"
    assert {"left", "right", "output"} <= set(shown) and EXAMPLES <= set(shown["left"])
