import os
import signal
import threading

import pytest

from structattn.training.distributed import World
from structattn.training.run import StopRequested, stop_on_signals


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP"])
def test_signal_only_sets_the_flag(name):
    with stop_on_signals() as flag:
        flag.check()
        os.kill(os.getpid(), getattr(signal, name))
        with pytest.raises(StopRequested, match=name):
            flag.check()


def test_second_interrupt_is_not_handled():
    before = signal.getsignal(signal.SIGINT)  # a process started in the background ignores it
    with stop_on_signals():
        os.kill(os.getpid(), signal.SIGINT)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL
    assert signal.getsignal(signal.SIGINT) is before


def test_the_first_interrupt_says_at_once_what_it_waits_for(capfd):
    with stop_on_signals(after_sigint="stops after this update; a second Ctrl-C ends it at once"):
        assert capfd.readouterr().err == ""
        os.kill(os.getpid(), signal.SIGINT)
        assert capfd.readouterr().err == "structattn: stops after this update; a second Ctrl-C ends it at once\n"
    with stop_on_signals(World(rank=1, size=2)):
        os.kill(os.getpid(), signal.SIGINT)
    assert capfd.readouterr().err == ""


def test_under_nohup_a_closed_terminal_stops_nothing():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stop_on_signals() as flag:
            os.kill(os.getpid(), signal.SIGHUP)
            flag.check()
    finally:
        signal.signal(signal.SIGHUP, before)


def test_signal_handlers_are_restored():
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signals():
        assert signal.getsignal(signal.SIGTERM) is not before
    assert signal.getsignal(signal.SIGTERM) is before


def test_no_handlers_are_set_outside_the_main_thread():
    before, flags = signal.getsignal(signal.SIGTERM), []

    def work():
        with stop_on_signals() as flag:
            flags.append((flag.number, signal.getsignal(signal.SIGTERM)))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert flags == [(0, before)]
