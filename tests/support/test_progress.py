"""Progress without a terminal."""

from structattn.support import progress as module
from structattn.support.progress import progress


def test_a_log_gets_one_line_per_interval(monkeypatch, capsys):
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with progress("training", 50, "updates", done=10) as advance:
        advance(5)
        assert capsys.readouterr().err == ""
        clock[0] += 60
        advance(7, "epoch 1")
        assert capsys.readouterr().err == "training: 22 of 50 updates, 0.2/s, epoch 1\n"
        advance(1)
        clock[0] += 61
        advance(0)
        assert capsys.readouterr().err == "training: 23 of 50 updates, 0.0/s, epoch 1\n"


def test_short_work_is_silent(capsys):
    with progress("reading", None) as advance:
        advance()
    assert capsys.readouterr().err == ""
