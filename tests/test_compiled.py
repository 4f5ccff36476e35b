import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUN = {"timeout": 60, "check": True, "capture_output": True, "text": True}
HASH = "import numpy; from mpijoin.partitioning.hashing import hash_keys; print(hash_keys(numpy.array([0]))[0])"

LOADED = f"{HASH}; import sys; print('numba.np.arraymath' in sys.modules)"


def hashed(package, cache, code=HASH):
    environ = {"PYTHONPATH": str(package), "NUMBA_CACHE_DIR": str(cache), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], env=environ, cwd=cache.parent, **RUN)
    return done.stdout.strip()


def test_a_change_in_a_file_that_a_kernel_only_calls_is_not_answered_by_old_code(tmp_path):
    package, cache = tmp_path / "package", tmp_path / "cache"
    shutil.copytree(ROOT / "mpijoin", package / "mpijoin", ignore=shutil.ignore_patterns("__pycache__"))
    before = hashed(package, cache)
    assert hashed(package, cache) == before and len(list(cache.iterdir())) == 1
    (package / "mpijoin" / "clock.py").write_text("# another file altogether\n")
    assert hashed(package, cache) == before
    assert len(list(cache.iterdir())) == 2, "every state of the package has a folder of its own"


def test_kernels_from_the_cache_do_not_load_what_only_compiling_needs(tmp_path):
    cache = tmp_path / "cache"
    hash_then, compiling = hashed(ROOT, cache, LOADED).split()
    hash_now, loading = hashed(ROOT, cache, LOADED).split()
    assert (compiling, loading) == ("True", "False") and hash_now == hash_then


class Planted:
    """Unpickled, it leaves a mark."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return os.mkdir, (self.mark,)


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory):
    """A folder of compiled code, and what the code answers."""
    folder = tmp_path_factory.mktemp("compiled") / "cache"
    return folder, hashed(ROOT, folder)


def plant(own_cache, folder, mark):
    """What another user may leave in a folder whose name can be guessed: a cache of this package, but for what it
    does."""
    shutil.copytree(own_cache[0], folder)
    for path in folder.rglob("*.nbi"):
        path.write_bytes(pickle.dumps(Planted(str(mark))))


def open_to_all(folder):
    folder.chmod(0o777)


def open_inside(folder):
    for path in folder.iterdir():
        path.chmod(0o777)


def open_above(folder):
    folder.parent.chmod(0o777)


def a_link(folder):
    folder.rename(folder.with_name("elsewhere"))
    folder.symlink_to(folder.with_name("elsewhere"))


def of_another(folder):
    if os.getuid():
        pytest.skip("only root can give a folder away")
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 12345, -1)


def of_another_inside(folder):
    of_another(folder)
    os.chown(folder, 0, -1)


@pytest.mark.parametrize("taken", [open_to_all, open_inside, open_above, a_link, of_another, of_another_inside])
def test_a_cache_folder_that_others_may_have_filled_is_not_used(own_cache, tmp_path, taken):
    shared, mark, temporary = tmp_path / "shared", tmp_path / "mark", tmp_path / "tmp"
    for folder in (shared, temporary):
        folder.mkdir()
    cache = shared / f"mpijoin-{os.getuid()}"
    plant(own_cache, cache, mark)
    taken(cache)
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    usual = {"NUMBA_CACHE_DIR": str(cache), "TMPDIR": str(temporary)}  # as batch scripts say it
    assert run_with({**environ, **usual}) == own_cache[1] and not mark.exists()
    assert [path.name for path in temporary.iterdir()] == [f"mpijoin-{os.getuid()}"]
    without_home = {"XDG_CACHE_HOME": os.devnull, "TMPDIR": str(shared)}  # as a node without the user's home says it
    assert run_with({**environ, **without_home}) == own_cache[1] and not mark.exists()
    assert {path.name for path in shared.iterdir()} <= {cache.name, "elsewhere"}, (
        "a private folder goes with its process"
    )


def run_with(environ):
    return subprocess.run([sys.executable, "-c", HASH], env=environ, **RUN).stdout.strip()


def test_a_plant_that_is_believed_would_be_seen(own_cache, tmp_path):
    """Of the test above: in a folder of one's own it does what it was planted for."""
    plant(own_cache, tmp_path / "cache", tmp_path / "mark")
    subprocess.run(
        [sys.executable, "-c", HASH],
        env={"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        timeout=60,
    )
    assert (tmp_path / "mark").exists()


def test_a_cache_folder_is_made_for_its_user_alone(own_cache):
    folder, _ = own_cache
    assert {path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())} == {0o700}
