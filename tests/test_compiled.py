import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from mpijoin import linking
from mpijoin.compiled import Kernel, kernel
from mpijoin.data.batch import read_only
from mpijoin.partitioning.hashing import _hash_keys, hash_keys

ROOT = Path(__file__).parents[1]
RUN = {"timeout": 60, "check": True, "capture_output": True, "text": True}
HASH = "import numpy; from mpijoin.partitioning.hashing import hash_keys; print(hash_keys(numpy.array([0]))[0])"

LOADED = f"{HASH}; import sys; print('numba' in sys.modules)"


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


def test_kernels_from_the_cache_do_not_load_the_compiler(tmp_path):
    cache = tmp_path / "cache"
    hash_then, compiling = hashed(ROOT, cache, LOADED).split()
    hash_now, loading = hashed(ROOT, cache, LOADED).split()
    assert (compiling, loading) == ("True", "False") and hash_now == hash_then


def test_damaged_code_is_compiled_again(tmp_path):
    cache = tmp_path / "cache"
    then = hashed(ROOT, cache, LOADED)
    path = next(cache.rglob("*_hash_keys*.o"))
    whole = path.read_bytes()
    for damaged in (b"", whole[:-100], whole[:-1] + bytes([whole[-1] ^ 1]), b"no line\n" * 3):
        path.write_bytes(damaged)
        assert hashed(ROOT, cache, LOADED) == then and path.read_bytes()[:64] == whole[:64]


def test_without_the_compiler_kernels_are_python_functions():
    environ = dict(os.environ, PYTHONPATH=str(ROOT), NUMBA_DISABLE_JIT="1")
    done = subprocess.run([sys.executable, "-c", LOADED], env=environ, **RUN)
    assert done.stdout.split() == [str(hash_keys(np.array([0]))[0]), "False"]


@kernel
def measure(numbers, more, factor, is_wanted):
    total = 0.0
    for row in range(numbers.shape[0]):
        for column in range(numbers.shape[1]):
            total += numbers[row, column] * factor
    more.out[0] = total
    return total, numbers.shape[1], not is_wanted, np.uint64(more.least) - np.uint64(1)


class More(NamedTuple):
    out: np.ndarray
    least: int


def unaligned(numbers):
    octets = np.frombuffer(b"x" + numbers.tobytes(), np.uint8)
    return octets[1:].view(np.float64).reshape(numbers.shape)


SLICES = [lambda numbers: numbers[::2, 1::2], lambda numbers: numbers[:0]]


@pytest.mark.parametrize("of", [np.copy, np.transpose, unaligned, read_only, *SLICES])
def test_a_kernel_takes_any_array_numbers_and_tuples(of):
    numbers, out = of(np.arange(24.0).reshape(4, 6)), np.zeros(1)
    answer = measure(numbers, More(out, 0), 0.5, True)
    assert answer == (numbers.sum() / 2, numbers.shape[1], False, (1 << 64) - 1)
    assert list(map(type, answer)) == [float, int, bool, int] and out[0] == answer[0]


def test_a_kernel_writes_nothing_that_is_read_only():
    with pytest.raises(Exception, match="setitem"):
        measure(np.zeros((1, 1)), More(read_only(np.zeros(1)), 0), 1.0, True)


@pytest.mark.parametrize("argument", [None, "text", np.float32(1), [1]])
def test_a_kernel_refuses_what_is_no_number(argument):
    with pytest.raises(TypeError, match="kernels take numbers, arrays and tuples"):
        measure(argument, More(np.zeros(1), 0), 1.0, True)


@kernel
def weigh(state, numbers, factor):
    total = 0.0
    for i in range(len(numbers)):
        total += numbers[i] * factor
    state.out[0] = total
    return total, state.least


class Count(NamedTuple):
    """Has the fields of More: only its name tells them apart."""

    out: np.ndarray
    least: int


KINDS = [np.float64, np.uint16]


def test_a_bound_kernel_looks_at_its_further_arguments_at_each_call():
    out = np.zeros(1)
    bound = weigh.bound(More(out, 7))
    for dtype in KINDS * 2:
        numbers = np.array([1, 2, 250], dtype)
        for given in (numbers, numbers[::2]):
            for factor in (2, 0.5):
                wanted = given.sum(dtype=np.float64) * factor
                assert bound(given, factor) == (wanted, 7) and out[0] == wanted


def test_a_tuple_with_another_array_is_another_to_a_kernel():
    numbers, outs = np.arange(4.0), [np.zeros(1, dtype) for dtype in (*KINDS, np.float64)]
    states = [kind(out, least) for least, out in enumerate(outs) for kind in (More, Count)]
    bound = [weigh.bound(state) for state in states]
    for turn in range(1, 4):
        for state, weigh_bound in zip(states, bound):
            assert weigh(state, numbers, turn) == weigh_bound(numbers, turn) == (6 * turn, state.least)
            assert state.out.tolist() == [6 * turn]
            state.out[0] = 0
    again = weigh.bound(states[0]._replace(out=outs[2]))
    assert again(numbers, 5) == (30, 0) and outs[2].tolist() == [30] and not outs[0].any()
    with pytest.raises(Exception, match="setitem"):
        weigh.bound(More(read_only(outs[0]), 0))(numbers, 1)


def test_a_bound_array_may_move_and_grow():
    numbers, out = np.ones(2), np.zeros(1)
    bound = measure.bound(numbers.reshape(1, 2), More(out, 0))
    grown = np.ones((2, 2))
    of_grown = measure.bound(grown, More(out, 0))
    assert bound(1.0, True)[:2] == (2, 2) and of_grown(1.0, True)[:2] == (4, 2)
    grown.resize((1000, 3), refcheck=False)
    grown[:] = 1
    assert of_grown(1.0, True)[:2] == (3000, 3)


def test_a_bound_kernel_keeps_its_arrays():
    bound = [weigh.bound(More(np.zeros(1), least)) for least in range(100)]
    numbers = [np.full(1, float(index)) for index in range(100)]  # would take the place of arrays that are gone
    assert [one(numbers[index], 2) for index, one in enumerate(bound)] == [(2 * i, i) for i in range(100)]
    assert [one[0] for one in numbers] == list(range(100))


def test_bound_kernels_share_their_code(monkeypatch):
    loads = []
    monkeypatch.setattr(linking, "address_of", lambda *code, load=linking.address_of: loads.append(code) or load(*code))
    weighing = Kernel(weigh.py_func)
    for _ in range(3):
        assert weighing.bound(More(np.zeros(1), 3))(np.ones(2), 0.5) == (1, 3)
        assert weighing(More(np.zeros(1), 3), np.ones(2), 0.5) == (1, 3)
    assert len(loads) == 1


@kernel
def raising(numbers):
    if numbers[0] > 1:
        raise ValueError
    return numbers[0]


def test_a_function_that_raises_is_no_kernel():
    with pytest.raises(TypeError, match="may neither raise nor allocate"):
        raising(np.zeros(1))


def test_threads_that_call_a_kernel_for_the_first_time_get_the_same_code(monkeypatch):
    loads = []
    monkeypatch.setattr(linking, "address_of", lambda *code, load=linking.address_of: loads.append(code) or load(*code))
    hashing, keys = Kernel(_hash_keys.py_func), read_only(np.arange(5))
    answers = [np.zeros(5, np.uint64) for _ in range(8)]
    threads = [threading.Thread(target=hashing, args=(keys, out)) for out in answers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(loads) == 1 and all((out == hash_keys(keys)).all() for out in answers)


@pytest.fixture(scope="module")
def own_cache(tmp_path_factory):
    """A folder of compiled code, and what the code answers."""
    folder = tmp_path_factory.mktemp("compiled") / "cache"
    return folder, hashed(ROOT, folder)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    """The code of another hash, and what that answers."""
    folder = tmp_path_factory.mktemp("other")
    shutil.copytree(ROOT / "mpijoin", folder / "package/mpijoin", ignore=shutil.ignore_patterns("__pycache__"))
    source = folder / "package/mpijoin/partitioning/hashing.py"
    source.write_text(source.read_text().replace("0x9E3779B97F4A7C15", "0x9E3779B97F4A7C17"))
    answer = hashed(folder / "package", folder / "cache")
    return next((folder / "cache").rglob("*_hash_keys*.o")), answer


def plant(own_cache, folder, other):
    """What another user may leave in a folder whose name can be guessed: a cache of this package, but for what it
    does."""
    shutil.copytree(own_cache[0], folder)
    for path in folder.rglob("*_hash_keys*.o"):
        shutil.copy(other[0], path)


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
def test_a_cache_folder_that_others_may_have_filled_is_not_used(own_cache, other, tmp_path, taken):
    shared, temporary = tmp_path / "shared", tmp_path / "tmp"
    for folder in (shared, temporary):
        folder.mkdir()
    cache = shared / f"mpijoin-{os.getuid()}"
    plant(own_cache, cache, other)
    taken(cache)
    environ = {"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    usual = {"NUMBA_CACHE_DIR": str(cache), "TMPDIR": str(temporary)}  # as batch scripts say it
    assert run_with({**environ, **usual}) == own_cache[1]
    assert [path.name for path in temporary.iterdir()] == [f"mpijoin-{os.getuid()}"]
    without_home = {"XDG_CACHE_HOME": os.devnull, "TMPDIR": str(shared)}  # as a node without the user's home says it
    assert run_with({**environ, **without_home}) == own_cache[1]
    assert {path.name for path in shared.iterdir()} <= {cache.name, "elsewhere"}, (
        "a private folder goes with its process"
    )


def run_with(environ):
    return subprocess.run([sys.executable, "-c", HASH], env=environ, **RUN).stdout.strip()


def test_a_plant_that_is_believed_would_be_seen(own_cache, other, tmp_path):
    """Of the test above: in a folder of one's own it does what it was planted for."""
    plant(own_cache, tmp_path / "cache", other)
    answer = run_with({"PYTHONPATH": str(ROOT), "NUMBA_CACHE_DIR": str(tmp_path / "cache")})
    assert answer == other[1] != own_cache[1]


def test_a_cache_folder_is_made_for_its_user_alone(own_cache):
    folder, _ = own_cache
    assert {path.stat().st_mode & 0o777 for path in (folder, *folder.iterdir())} == {0o700}
