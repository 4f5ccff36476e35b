"""`mpijoin sweep`: points, what is done stays done, failures are recorded, capacity is searched."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from mpijoin.cli import main
from mpijoin.errors import JobError
from mpijoin.lock import take
from mpijoin.sweep.run import REASON, RESULT
from mpijoin.sweep.spec import load_sweep
from mpijoin.sweep.table import write_table
from report_runs import MEMORY, make_run

ROOT = Path(__file__).parents[2]
JOB = """
[left]
kind = "synthetic"
tuples = 2000
domain = 50
window = "100 ms"
[right]
kind = "synthetic"
tuples = 2000
domain = 50
window = "50 ms"
[output]
path = "out"
results = "count"
"""
PACE = '[run]\nspeed = 1\n'
PACED = (
    JOB.replace("tuples = 2000", 'duration = "1500 ms"\nrate = 100')
    + PACE
    + '[cluster]\ndistribution_epoch = "100 ms"\n'
)
SWEEP = """
job = "job.toml"
output = "sweep"
repeats = 2
[grid]
"left.tuples" = [500, 1000]
"tuning.theta" = ["auto", "off"]
"""
SEARCH = "[capacity]\nlow = 200\nhigh = 1000\n"


@pytest.fixture
def sweep_file(tmp_path):
    (tmp_path / "job.toml").write_text(JOB)
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP)
    return path


def call(*arguments, timeout=240):
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "mpijoin", "sweep", *map(str, arguments)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout)


def test_points_are_the_grid_times_seeds_and_repeats(sweep_file):
    points = load_sweep(sweep_file).points
    assert [(point.values["left.tuples"], point.values["tuning.theta"], point.repeat) for point in points] == [
        (tuples, theta, repeat) for tuples in (500, 1000) for theta in ("auto", "off") for repeat in (0, 1)
    ]
    assert points[2].settings == ("left.tuples=500", 'tuning.theta="off"')
    assert points[3].name.startswith("left.tuples=500,tuning.theta=off,1-")
    sweep_file.write_text("seeds = [4, 5]\n" + SWEEP)
    assert [point.values["run.seed"] for point in load_sweep(sweep_file).points][:4] == [4, 4, 5, 5]


def test_fields_of_streams_of_any_name_are_swept(sweep_file):
    job = JOB.replace("[left]", "[streams.picks]").replace("[right]", "[streams.S_2]")
    (sweep_file.parent / "job.toml").write_text(job + PACE)
    with pytest.raises(JobError, match="--set left.tuples=500: no such stream, there are picks S_2"):
        load_sweep(sweep_file)
    sweep_file.write_text(SWEEP.replace("left.tuples", "streams.picks.tuples") + "[capacity]\nlow = 3\nhigh = 4")
    sweep = load_sweep(sweep_file)
    assert {point.settings[0] for point in sweep.points} == {f"streams.picks.tuples={count}" for count in (500, 1000)}
    assert sweep.capacity.rates == ("streams.picks.rate", "streams.S_2.rate")
    (sweep_file.parent / "job.toml").write_text(JOB + PACE)
    sweep_file.write_text(SWEEP.replace("left.tuples", "streams.left.tuples") + "[capacity]\nlow = 3\nhigh = 4")
    assert load_sweep(sweep_file).capacity.rates == ("left.rate", "right.rate")


def test_another_job_or_number_of_ranks_are_other_points(sweep_file):
    def names():
        return {point.name for point in load_sweep(sweep_file).points}

    first = names()
    (sweep_file.parent / "job.toml").write_text(JOB + "\n# only a comment\n")
    assert names() == first and len(first) == 8
    (sweep_file.parent / "job.toml").write_text(JOB.replace("domain = 50", "domain = 51"))
    other = names()
    sweep_file.write_text("ranks = 3\n" + SWEEP)
    assert not first & other and not names() & (first | other)


def test_the_table_has_columns_about_spilling_if_a_point_may_spill(sweep_file):
    sweep_file.write_text(
        SWEEP.replace("repeats = 2", "").replace('"tuning.theta" = ["auto"', '"memory.spill" = ["generations"')
    )
    sweep = load_sweep(sweep_file)
    for point in sweep.points:
        folder = sweep.folder_of(point)
        job = {"memory": {"spill": point.values["memory.spill"], "limit": "10 MB"}}
        make_run(folder / "run", summary={"memory": {**MEMORY, "spilled_bytes": 7}}, job=job, spills=True)
        (folder / RESULT).write_text(json.dumps({"run": "run"}))
    rows = {row["memory.spill"]: row for row in write_table(sweep).to_pylist()}
    assert (rows["generations"]["spilled_bytes"], rows["generations"]["cleanup_s"]) == (7, 0.0)
    assert rows["off"]["spilled_bytes"] is None and rows["off"]["results"] == 1234


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "job: missing"),
        (SWEEP + "\n[more]", "more: no such field, there are job, output"),
        (SWEEP.replace("[500, 1000]", "500"), "[grid]: wanted lists of values"),
        ("ranks = 1\n" + SWEEP, "ranks: got 1, wanted 0 (local), or 2 or more"),
        ("timeout = \"x\"\n" + SWEEP, 'timeout: got "x"'),
        ("seeds = [1.5]\n" + SWEEP, "seeds: got [1.5]"),
        (SWEEP.replace('"off"]', '"of"]'), "left.tuples=500, tuning.theta=\"of\": [tuning] theta: got \"of\""),
        (SWEEP + "[capacity]\nlow = 3\nhigh = 2", "[capacity] low, high: got 3 and 2"),
        (SWEEP + "[capacity]\nlow = 3", "[capacity] high: missing"),
        (SWEEP + "[capacity]\nlow = 3\nhigh = 4\nstep = 1", "[capacity] step: got 1"),
        ("not toml", "sweep.toml:"),
        (SWEEP.replace('"job.toml"', "3"), "job: got 3, wanted a path in quotes"),
        ("seeds = 3\n" + SWEEP, "seeds: got 3"),
        ("capacity = 3\n" + SWEEP, "[capacity]: got 3, wanted a table"),
        (SWEEP + '[capacity]\nlow = "a"\nhigh = 2', "[capacity] low: got 'a', wanted a number"),
        (SWEEP + "[capacity]\nlow = 1\nhigh = 2\nrates = 3", "[capacity] rates: got 3, wanted fields"),
        (SWEEP + SEARCH, '"off": [capacity]: got [run] speed = "max", wanted a number'),
        (SWEEP + SEARCH + 'rates = ["left.rats"]', "[left] rats: no such field, did you mean rate?"),
        (SWEEP.replace("500", "2024-01-01"), "left.tuples=2024-01-01"),
        (SWEEP.replace("500", "1000"), "left.tuples=1000, tuning.theta=\"auto\": got it twice, wanted each point once"),
        ("seeds = [1, 1]\n" + SWEEP, "run.seed=1: got it twice"),
        (SWEEP + '"output.path" = ["a"]\n', "[grid] output.path: leave it out"),
    ],
)
def test_faults_are_told_before_anything_runs(sweep_file, text, problem):
    sweep_file.write_text(text)
    with pytest.raises(JobError) as error:
        load_sweep(sweep_file)
    assert any(problem in fault for fault in error.value.faults), error.value.faults


def test_a_table_that_cannot_be_written_is_told(sweep_file, capsys):
    (sweep_file.parent / "sweep").write_text("")
    assert main(["sweep", "table", str(sweep_file)]) == 3
    assert "cannot be written" in capsys.readouterr().err


def test_a_sweep_runs_goes_on_and_leaves_a_table_and_a_report(sweep_file):
    """The folder's name has a letter that two escapes of JSON stand for, and one field has words and numbers."""
    sweep_file = sweep_file.parent.rename(sweep_file.parent.with_name("e\U0001f600")) / "sweep.toml"
    text = SWEEP.replace("repeats = 2", "").replace("tuning.theta", "cluster.slaves_min")
    text, folder = text.replace('["auto", "off"]', '["all", 1]'), sweep_file.parent / "sweep"
    sweep_file.write_text(text)
    first = call("run", sweep_file)
    assert first.returncode == 0 and "4 of 4 points to run" in first.stderr, first.stderr
    table = pq.read_table(folder / "table.parquet").to_pylist()
    assert [row["state"] for row in table] == ["done"] * 4 and (folder / "table.csv").exists()
    assert [row["cluster.slaves_min"] for row in table] == ["all", "1"] * 2
    results = {row["left.tuples"]: row["results"] for row in table}
    assert 0 < results[500] < results[1000] and len({(row["left.tuples"], row["results"]) for row in table}) == 2
    assert (folder / "report/report.html").exists() and "cleanup_s" not in table[0]
    sweep_file.write_text(text.replace("[500, 1000]", "[500, 1000, 1500]"))
    assert "2 of 6 points to run" in call("run", sweep_file).stderr
    assert "6 done" in call("table", sweep_file).stdout


def test_a_failed_point_is_recorded_and_the_rest_runs(sweep_file):
    sweep_file.write_text(
        SWEEP.replace("repeats = 2", "").replace('"tuning.theta" = ["auto", "off"]', '"inject.fail" = [{"1" = 0}, {}]')
    )
    done = call("run", sweep_file)
    rows = pq.read_table(sweep_file.parent / "sweep/table.parquet").to_pylist()
    assert done.returncode == 3 and [row["state"] for row in rows] == ["failed", "done", "failed", "done"], done.stderr
    assert "epoch 0 has come" in rows[0]["reason"] and rows[1]["reason"] is None
    page = (sweep_file.parent / "sweep/report/report.html").read_text()
    assert "Not here: 2 of 4 points failed, such as " in page and "did not run yet" not in page
    (next((sweep_file.parent / "sweep/points").glob(f"*/{REASON}"))).unlink()
    assert call("table", sweep_file).returncode == 0
    page = (sweep_file.parent / "sweep/report/report.html").read_text()
    assert "1 of 4 points failed, such as " in page and "Not here: 1 of 4 points did not run yet." in page
    assert "1 of 4 points to run" in call("run", sweep_file).stderr
    assert "0 of 4 points to run" in call("run", sweep_file).stderr
    assert "2 of 4 points to run" in call("run", sweep_file, "--again").stderr


def test_a_quiet_sweep_says_what_failed_and_where_the_table_is(sweep_file):
    sweep_file.write_text(SWEEP.replace("repeats = 2", "repeats = 1").replace("[500, 1000]", "[500]"))
    done = call("run", sweep_file, "--quiet")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout == f"2 done: {sweep_file.parent / 'sweep/table.csv'}\n"
    fail = SWEEP.replace("repeats = 2", "").replace('"tuning.theta" = ["auto", "off"]', '"inject.fail" = [{"1" = 0}]')
    sweep_file.write_text(fail)
    done = call("run", sweep_file, "--quiet")
    assert done.returncode == 3 and len(done.stderr.splitlines()) == 2, done.stderr
    assert all(": failed: " in line for line in done.stderr.splitlines())


def test_a_run_that_takes_too_long_is_ended(sweep_file):
    sweep_file.write_text(
        'timeout = "1 s"\n' + SWEEP.replace("repeats = 2", "").replace("[500, 1000]", "[2000]").replace(', "off"', "")
    )
    (sweep_file.parent / "job.toml").write_text(JOB + "[run]\nspeed = 0.001\n")
    done = call("run", sweep_file)
    assert done.returncode == 3 and "failed: not done after 1 s" in done.stderr


def test_ctrl_c_keeps_what_is_done(sweep_file):
    (sweep_file.parent / "job.toml").write_text(JOB + "[run]\nspeed = 1\n")
    sweep_file.write_text(
        SWEEP.replace("[500, 1000]", "[500, 500_000]").replace("repeats = 2", "").replace(', "off"', "")
    )
    command = [sys.executable, "-m", "mpijoin", "sweep", "run", str(sweep_file)]
    points = sweep_file.parent / "sweep/points"
    # A process started in the background may ignore Ctrl-C; one for this test must not.
    with subprocess.Popen(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.PIPE, text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler), start_new_session=True,
    ) as process:
        deadline_s = time.monotonic() + 120
        while len(list(points.glob("*/log.txt"))) < 2 and time.monotonic() < deadline_s:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[1]
    assert process.returncode == 130 and "the same command goes on" in said, said
    assert [path.parent.name[:15] for path in points.glob("*/point.json")] == ["left.tuples=500"]
    assert len(list(points.iterdir())) == 1


def test_the_capacity_is_the_highest_rate_that_is_sustained(sweep_file):
    (sweep_file.parent / "job.toml").write_text(PACED)
    search = SEARCH + 'step = 2\ndelay = "10 s"\n'
    sweep_file.write_text(
        SWEEP.replace("repeats = 2", "").replace('"left.tuples" = [500, 1000]', "").replace(', "off"', "") + search
    )
    done = call("run", sweep_file)
    assert done.returncode == 0, done.stderr
    row = pq.read_table(sweep_file.parent / "sweep/table.parquet").to_pylist()[0]
    assert row["capacity"] in [pytest.approx(200 * 5**share) for share in (0, 0.5, 0.75, 1)]
    assert row["capacity_at_least"] == (row["capacity"] == 1000) == ("high = 1000 is sustained" in done.stdout)
    run = json.loads((next((sweep_file.parent / "sweep/points").iterdir()) / "point.json").read_text())["run"]
    assert run == f"rate-{row['capacity']:.0f}"


def test_submitting_where_there_is_no_slurm_says_what_else_to_do(sweep_file, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(sweep_file.parent))
    assert main(["sweep", "submit", str(sweep_file), "--", "-t", "30"]) == 2
    out, err = capsys.readouterr()
    assert "--ntasks 1 -t 30 " in out and "sbatch does not start" in err and "`mpijoin sweep run`" in err
    assert main(["sweep", "table", str(sweep_file), "--", "-t", "30"]) == 2
    assert "-- -t 30: what follows -- goes to sbatch, which only `submit` calls" in capsys.readouterr().err


ONE_POINT = 'job = "job.toml"\noutput = "sweep"\n[grid]\n"left.domain" = [50]\n'


def point_of(sweep_file):
    sweep_file.write_text(ONE_POINT)
    sweep = load_sweep(sweep_file)
    return sweep.folder_of(sweep.points[0])


def test_a_point_that_somebody_runs_is_left_alone(sweep_file, capsys):
    """A sweep that is killed leaves its run, which goes on."""
    folder = point_of(sweep_file)
    with held(folder / "run"):
        assert main(["sweep", "run", str(sweep_file)]) == 2
        assert f"{folder}/run is in use by process {os.getpid()} on" in capsys.readouterr().err
        assert list((folder / "run").iterdir()), "its files are still there"
    with held(folder):
        assert main(["sweep", "run", str(sweep_file)]) == 2
        assert f"{folder} is in use by process {os.getpid()} on" in capsys.readouterr().err
    assert main(["sweep", "run", str(sweep_file), "--quiet"]) == 0


@contextmanager
def held(folder):
    lock = take(folder, "[output] path")
    try:
        yield
    finally:
        lock.release()


@pytest.mark.parametrize("harm", ["damaged", "gone"])
def test_a_point_whose_result_is_damaged_or_gone_is_run_again(sweep_file, harm):
    folder = point_of(sweep_file)
    assert main(["sweep", "run", str(sweep_file), "--quiet"]) == 0
    if harm == "damaged":
        (folder / RESULT).write_text("{")
    else:
        shutil.rmtree(folder / "run")
    assert main(["sweep", "table", str(sweep_file), "--quiet"]) == 0
    assert write_table(load_sweep(sweep_file))["state"].to_pylist() == ["missing"]
    assert main(["sweep", "run", str(sweep_file), "--quiet"]) == 0
    assert write_table(load_sweep(sweep_file))["state"].to_pylist() == ["done"]


def test_a_point_that_failed_before_is_told_again(sweep_file, capsys):
    folder = point_of(sweep_file)
    folder.mkdir(parents=True)
    (folder / REASON).write_text('{"reason": "no luck"}')
    assert main(["sweep", "run", str(sweep_file)]) == 3
    assert "0 of 1 point to run; 1 failed before: --again runs them again" in capsys.readouterr().err
    (folder / REASON).write_text("{")
    assert write_table(load_sweep(sweep_file))["reason"].to_pylist() == ["no reason recorded"]


@pytest.mark.parametrize(
    "launcher, said", [("nosuchlauncher -n 2", "nosuchlauncher is not found"), ("'open", "No closing quotation")]
)
def test_a_launcher_that_cannot_start_is_a_fault(sweep_file, capsys, launcher, said):
    assert main(["sweep", "run", str(sweep_file), "--launcher", launcher]) == 2
    assert said in capsys.readouterr().err
