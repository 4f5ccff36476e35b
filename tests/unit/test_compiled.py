import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
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
