"""The README and the pages beside the code: links lead somewhere, commands exist, examples run."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest

from mpijoin import cli
from mpijoin.config.check import resolve
from mpijoin.config.load import load_job

ROOT = Path(__file__).parents[1]
FOLDERS = ("mpijoin", "scripts", "slurm")
PAGES = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in [
    ROOT / "README.md", *sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("README.md"))
]}  # fmt: skip
README = PAGES["README.md"]
README_BYTES_MAX = 9_000
LINE_MAX = 100

COMMAND = re.compile(r"mpijoin ([a-z][a-z-]*)(?![\w.@/'])((?: [^`\n#]*)?)")
PROGRAM = re.compile(r"(?:python|bash|sbatch[^`\n]*?) ((?:scripts|slurm)/[\w./-]+)([^`\n#]*)")
SHELL = r"```\n(.*?)```"


@pytest.fixture(params=PAGES, ids=str)
def page(request) -> str:
    return request.param


def commands_of(text: str) -> list[tuple[str, str]]:
    """Each `mpijoin COMMAND ...` that stands in a code span or block: the command and what follows it."""
    spans = re.findall(r"(?<!`)`([^`]+)`(?!`)", text) + re.findall(SHELL, text, re.DOTALL)
    return [pair for span in spans for pair in COMMAND.findall(span.replace("\n--", " --"))]


def test_there_is_a_page_beside_each_part_that_the_readme_sends_to():
    assert {"slurm/README.md", "scripts/README.md", "mpijoin/pipeline/README.md", "mpijoin/report/README.md"} <= set(
        PAGES
    )


def test_the_readme_is_a_door_and_every_page_can_be_reached_from_it():
    assert len(README.encode()) <= README_BYTES_MAX
    reached, waiting = set(), {"README.md"}
    while waiting:
        name = waiting.pop()
        reached.add(name)
        folder = (ROOT / name).parent
        targets = {str((folder / link.partition("#")[0]).resolve().relative_to(ROOT)) for link in links_of(PAGES[name])}
        waiting |= (targets & set(PAGES)) - reached
    assert reached == set(PAGES)


def links_of(text: str) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]


def test_relative_links_lead_somewhere(page):
    for link in links_of(PAGES[page]):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert not path.startswith("/") and target.exists(), link
        if anchor:
            assert anchor in anchors_of(target.read_text(encoding="utf-8")), link


def anchors_of(text: str) -> set[str]:
    """What GitHub makes of headings."""
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_prose_wraps(page):
    prose = re.sub(r"```.*?```", "", PAGES[page], flags=re.DOTALL)
    for line in prose.splitlines():
        assert len(line) <= LINE_MAX or line.startswith("|"), line


def test_commands_exist_with_their_options(page, capsys):
    for command, rest in commands_of(PAGES[page]):
        with pytest.raises(SystemExit) as ended:
            cli.main([command, "--help"])
        assert ended.value.code == 0, f"there is no mpijoin {command}"
        helped = capsys.readouterr().out
        for option in re.findall(r"--[a-z][\w-]*", rest):
            assert option in helped, f"mpijoin {command} has no {option}"


def test_scripts_that_are_named_exist_and_know_the_options(page):
    for script, rest in PROGRAM.findall(PAGES[page]):
        path = ROOT / script
        assert path.exists(), script
        if path.suffix == ".py" and not (ROOT / "mpijoin").samefile(path.parent):
            text = path.read_text(encoding="utf-8")
            for option in re.findall(r"--[a-z][\w-]*", rest):
                assert option in text or option == "--help", f"{script} has no {option}"


def test_every_script_is_described_on_the_page_of_scripts():
    own = {path.name for path in (ROOT / "scripts").glob("*.py") if "argparse" in path.read_text(encoding="utf-8")}
    own |= {path.name for path in (ROOT / "slurm").glob("*.sbatch")}
    described = PAGES["scripts/README.md"] + PAGES["slurm/README.md"]
    assert {name for name in own if name not in described} == set()


def toml_of(name: str) -> list[dict]:
    return [tomllib.loads(block) for block in re.findall(r"```toml\n(.*?)```", PAGES[name], re.DOTALL)]


def test_the_job_of_the_readme_is_a_job():
    (shown,) = toml_of("README.md")
    job = load_job(shown)
    assert (
        job.streams[0].window_ns == 20_000_000_000
        and job.streams[0].columns == ("amplitude",)
        and job.output.results == "parquet"
    )


def test_the_made_up_stream_is_sound():
    (shown,) = toml_of("mpijoin/pipeline/README.md")
    job = load_job({"left": shown["left"], "right": shown["left"], "output": {"results": "count"}})
    resolve(job)
    assert job.streams[0].source.tuples == 5_000_000 and len(job.streams[0].source.changes) == 2


def test_the_paced_example_is_sound():
    (made_up,), (shown,) = toml_of("mpijoin/pipeline/README.md"), toml_of("mpijoin/policy/README.md")
    job = load_job({"left": made_up["left"], "right": made_up["left"], "output": {"results": "count"}} | shown)
    resolve(job)
    assert job.run.speed == 1 and job.balance.policy == "balance" and job.inject.slow[0].rank == 2


def test_the_examples_of_spilling_are_sound():
    (made_up,), shown = toml_of("mpijoin/pipeline/README.md"), toml_of("mpijoin/spill/README.md")
    sides = {"left": made_up["left"], "right": made_up["left"], "output": {"results": "count"}}
    memory, inject = (load_job(sides | one) for one in shown)
    resolve(memory), resolve(inject)
    assert memory.memory.limit_bytes == 2 * 10**9 and memory.memory.spill == "generations"
    assert inject.inject.memory[0].limit_bytes == 64 * 10**6


def test_the_python_example_runs(capsys):
    (example,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    exec(compile(example, "README.md", "exec"), {})
    assert capsys.readouterr().out.startswith("1 [{'key': 'NRCA', 'left_time': 1000, 'right_time': 3500")


LITTLE = """
[left]
kind = "synthetic"
rate = 1000
tuples = 5000
domain = 100
window = "1 s"
"""


def test_the_example_of_a_reader_runs(tmp_path, monkeypatch, capsys):
    (example,) = re.findall(r"```python\n(.*?)```", PAGES["mpijoin/report/README.md"], re.DOTALL)
    (tmp_path / "job.toml").write_text(LITTLE + LITTLE.replace("left", "right") + '[output]\npath = "out"\n')
    monkeypatch.chdir(tmp_path)
    exec(compile(example, "README.md", "exec"), {})
    *batches, last = capsys.readouterr().out.splitlines()
    assert last == f"all {sum(int(line.partition(' ')[0]) for line in batches)}" and batches


def test_shell_examples_parse(page):
    for block in re.findall(SHELL, PAGES[page], re.DOTALL):
        lines = [
            line
            for line in block.splitlines()
            if re.match(r"(mpijoin|mpirun|srun|sbatch|bash|pip|python|scancel) ", line)
        ]
        for line in lines:
            assert shlex.split(line, comments=True)
            assert subprocess.run(["bash", "-nc", line], timeout=60).returncode == 0
