"""Progress with and without a terminal."""

import io
import time

from structattn.support import progress as module
from structattn.support.progress import progress, progress_in_worker


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


def test_a_note_is_a_line_at_once_with_loss_and_tokens_per_second(monkeypatch, capsys):
    clock = [100.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: clock[0])
    with progress("training", 8, "updates") as advance:
        advance(tokens=3000, loss=2.5)
        clock[0] += 2
        advance(tokens=5000, loss=1.25)
        assert capsys.readouterr().err == ""
        advance(0, "perplexity 3")
        assert capsys.readouterr().err == "training: 2 of 8 updates, 1.0/s, 4,000 tokens/s, loss 1.2500, perplexity 3\n"


def test_the_rate_names_what_it_counts(monkeypatch, capsys):
    with progress("training", 8, "updates", counted="strings") as advance:
        advance(1, "accuracy 50%", tokens=3)
    assert " strings/s, accuracy 50%\n" in capsys.readouterr().err


def test_the_bar_on_a_terminal_is_labelled(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", terminal)
    monkeypatch.setenv("COLUMNS", "200")
    with progress("training", 8, "updates") as advance:
        for number in range(3):
            time.sleep(0.01)
            advance(tokens=3000, loss=2.5 - number)
        advance(0, "perplexity 3")
    shown = terminal.getvalue()
    for label in ("3/8", "updates", "tokens/s, loss 0.5000", "elapsed", "remaining", "perplexity 3"):
        assert label in shown


def test_short_work_is_silent(capsys):
    with progress("reading", None) as advance:
        advance()
    assert capsys.readouterr().err == ""


def test_lines_of_a_worker_carry_its_name(capsys):
    with progress_in_worker("Tf #1"), progress("training", 8, "updates") as advance:
        advance(2, "epoch 1")
    with progress("training", 8, "updates") as advance:
        advance(2, "epoch 1")
    named, plain = capsys.readouterr().err.splitlines()
    assert named.startswith("Tf #1, training: 2 of 8 updates")
    assert plain.startswith("training: 2 of 8 updates")


def test_a_worker_draws_nothing_on_the_terminal_of_its_command(monkeypatch):
    terminal = io.StringIO()
    terminal.isatty = lambda: True
    monkeypatch.setattr("sys.stderr", terminal)
    with progress_in_worker("Tf #1"), progress("training", 8, "updates") as advance:
        advance(2, "epoch 1", tokens=10, loss=1.0)
    assert terminal.getvalue() == ""
