"""Signals as a flag, or raised at once where nobody else waits."""

import os
import signal
import threading
import time
from contextlib import suppress

import pyarrow as pa
import pytest

from mpijoin.data.schema import Column
from mpijoin.errors import Interrupted
from mpijoin.signals import REPEAT_S, SignalFlag, Terminated, terminable
from mpijoin.sources.files import open_file


@pytest.fixture(autouse=True)
def usual():
    """No handler but the system's, whatever ran in this process before, and whether or not it was started by nohup."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def flag(usual):
    flag = SignalFlag()
    flag.install()
    yield flag
    flag.restore()


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 143)])
def test_a_signal_is_told_at_the_next_check(flag, number, code):
    flag.check()
    os.kill(os.getpid(), number)
    with pytest.raises(Interrupted) as caught:
        flag.check()
    assert caught.value.exit_code == code


def test_the_first_signal_counts_and_one_key_press_may_come_twice(flag):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGINT):
        os.kill(os.getpid(), number)
    with pytest.raises(Interrupted, match="SIGTERM"):
        flag.check()


def test_a_signal_that_saves_is_not_lost_where_it_comes_before_that_is_known(flag):
    os.kill(os.getpid(), signal.SIGUSR2)
    os.kill(os.getpid(), signal.SIGUSR1)
    assert flag.asked is None
    flag.save_at(["SIGUSR1"])
    assert flag.asked == signal.SIGUSR1
    with pytest.raises(Interrupted) as caught:
        flag.check_before_start()
    assert caught.value.exit_code == 75


def test_a_lost_terminal_saves_where_sigterm_does(flag):
    flag.save_at(["SIGTERM"])
    os.kill(os.getpid(), signal.SIGHUP)
    flag.check()
    assert flag.asked == signal.SIGTERM


def test_nohup_is_left_alone():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    flag = SignalFlag()
    flag.install()
    try:
        os.kill(os.getpid(), signal.SIGHUP)
        flag.check()
    finally:
        flag.restore()
        assert signal.signal(signal.SIGHUP, before) == signal.SIG_IGN


def test_a_second_ctrl_c_later_cannot_wait(flag):
    os.kill(os.getpid(), signal.SIGINT)
    flag._first_s -= REPEAT_S
    with pytest.raises(KeyboardInterrupt):
        os.kill(os.getpid(), signal.SIGINT)


def test_another_thread_may_end_a_run_which_is_told_at_the_next_check_or_saves():
    flag = SignalFlag()
    with flag.at_once():
        flag.end("stop()")
    with pytest.raises(Interrupted, match=r"^stopped by stop\(\)$") as caught:
        flag.check()
    assert caught.value.exit_code == 130
    saving = SignalFlag()
    saving.save_at(["SIGINT"])
    saving.end("stop()")
    saving.check()
    assert saving.asked == signal.SIGINT


def test_inside_at_once_it_is_raised_where_it_comes(flag):
    with pytest.raises(Interrupted), flag.at_once():
        os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("went on")
    with pytest.raises(Interrupted), flag.at_once():
        pytest.fail("a signal that came before is told as well")


def test_inside_at_once_it_is_raised_again_where_foreign_code_has_caught_it(flag):
    with pytest.raises(Interrupted), flag.at_once():
        with suppress(Interrupted):
            signal.raise_signal(signal.SIGTERM)
        time.sleep(10)


def test_inside_at_once_it_is_told_where_foreign_code_has_made_another_fault_of_it(flag):
    """As Enum does of what is raised while its members are made."""
    with pytest.raises(Interrupted), flag.at_once():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        except Interrupted as error:
            raise TypeError("_value_ not set in __new__, unable to create it") from error
    with pytest.raises(TypeError), SignalFlag().at_once():
        raise TypeError


def test_csv_is_parsed_to_its_end_while_signals_come(flag, tmp_path):
    """Arrow gives up what the main thread parses; the run may want to go on until there is a checkpoint."""
    path, rows = tmp_path / "a.csv", 300_000
    path.write_text("ts,name\n" + "".join(f"{row},row {row}\n" for row in range(rows)))
    ended = threading.Event()

    def read():
        reader = open_file(str(path), [Column("ts", pa.int64()), Column("name", pa.string())])
        assert sum(block.num_rows for block in reader.blocks()) == rows
        reader.close()

    def send():
        for _ in range(40):  # not without end, since on a busy machine none might find time to parse
            if not ended.wait(0.02):
                os.kill(os.getpid(), signal.SIGTERM)
        ended.set()

    read()  # loads the kernels
    thread = threading.Thread(target=send)
    thread.start()
    try:
        while not ended.is_set():
            read()
    finally:
        ended.set()
        thread.join()
    with pytest.raises(Interrupted, match="SIGTERM"):
        flag.check()


def test_the_handlers_before_come_back_and_other_threads_install_none(flag):
    assert signal.getsignal(signal.SIGTERM) == flag._handle
    flag.restore()
    other = SignalFlag()
    thread = threading.Thread(target=other.install)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_what_fails_after_sigterm_ends_as_terminated():
    """As where Java, which got the signal too, is gone when the command wants to tell it to stop."""
    with pytest.raises(Terminated), terminable():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(5)
        finally:
            raise ConnectionRefusedError
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
