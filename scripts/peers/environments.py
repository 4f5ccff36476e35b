"""An environment for each system that is compared, this checkout of mpijoin among them: made on first use, kept for
later calls.

None has what another needs, nor what only tests need: a program may load, and then hold, whatever it finds installed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
REQUIREMENTS = {
    "mpijoin": ("--editable", f"{ROOT}[mpi]"),
    "sql": ("duckdb==2.0.0", "polars==2.1.0", "datafusion==55.0.0", "pyarrow", "numpy"),
    "spark": ("pyspark==4.3.0",),
    # Flink's jars without its Python side, which would bring a hundred packages that no join here needs.
    "flink": ("--no-deps", "apache-flink-libraries==2.3.0"),
    "pathway": ("pathway==0.33.0",),
}
JAVA_MIN = 17
INSTALL_TIMEOUT_S = 1800
FLINK_SOURCES = Path(__file__).parent / "flink"


class Absent(Exception):
    """A peer cannot be had on this machine; the message says why."""


def environment(name: str, home: Path) -> Path:
    """The Python of an environment under `home`, made if it is not there as asked for. Absent: it cannot be
    installed."""
    folder, wanted = home / name, "\n".join(REQUIREMENTS[name])
    stamp = folder / "installed"
    if not (stamp.exists() and stamp.read_text() == wanted):
        shutil.rmtree(folder, ignore_errors=True)
        print(f"making {folder}", file=sys.stderr, flush=True)
        _run(sys.executable, "-m", "venv", str(folder))
        _run(
            str(folder / "bin/python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            *REQUIREMENTS[name],
        )
        stamp.write_text(wanted)
    return folder / "bin/python"


def java(program: str = "java") -> Path:
    """`java` or `javac` of JAVA_HOME or PATH, JAVA_MIN or newer. Absent: there is none."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(program, path=str(Path(home, "bin")) if home else None)
    if not found:
        raise Absent(f"no {program} in {'JAVA_HOME' if home else 'PATH'}; it takes a JDK, {JAVA_MIN} or newer")
    said = subprocess.run([found, "-version"], capture_output=True, text=True, check=False)
    words = (said.stdout + said.stderr).replace('"', " ").split()
    version = next((word for word in words if word[0].isdigit()), "0")
    if int(version.split(".")[0]) < JAVA_MIN:
        raise Absent(f"{found} is version {version}; it takes {JAVA_MIN} or newer")
    return Path(found)


def flink_classpath(home: Path) -> str:
    """Flink's jars, and the joins in FLINK_SOURCES compiled against them, as for `java -cp`. Absent: no jars, no
    compiler."""
    site = environment("flink", home).parents[1]
    jars = sorted(str(jar) for jar in site.glob("lib/python*/site-packages/pyflink/lib/*.jar"))
    classes, sources = home / "flink-classes", sorted(FLINK_SOURCES.glob("*.java"))
    if not classes.exists() or classes.stat().st_mtime < max(source.stat().st_mtime for source in sources):
        shutil.rmtree(classes, ignore_errors=True)
        _run(
            str(java("javac")),
            "-nowarn",
            "-Xlint:none",
            "-d",
            str(classes),
            "-cp",
            os.pathsep.join(jars),
            *map(str, sources),
        )
        resources = FLINK_SOURCES / "resources"
        shutil.copytree(resources, classes, dirs_exist_ok=True)
    return os.pathsep.join([str(classes), *jars])


def _run(*line: str) -> None:
    try:
        done = subprocess.run(
            line, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=INSTALL_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Absent(str(error)) from error
    if done.returncode:
        lines = [text for text in done.stdout.splitlines() if text.strip()]
        raise Absent(f"{Path(line[0]).name} ended with {done.returncode}: {lines[-1] if lines else 'no output'}")
