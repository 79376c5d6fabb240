"""``structattn doctor FILE.py`` checks what a plugin registers."""

import json
from pathlib import Path

import pytest
import torch

from structattn.attention.contract import BrokenContractError, require_close_gradients

DECAY, WINDOW = (Path(__file__).with_name(name) for name in ("decay.py", "window.py"))


def test_the_doctor_finds_what_breaks_the_contract(tmp_path, structattn):
    done = structattn("doctor", DECAY, "--json")
    assert done.exit_code == 0, done.output
    assert [each["problem"] for each in json.loads(done.output)] == [""] * 12
    broken = DECAY.read_text().replace("(1 - rate) * x_t", "x_t").replace('Explanation("decay"', 'Explanation("else"')
    (tmp_path / "broken.py").write_text(broken.replace('"decay"]', '"broken"]'))
    done = structattn("doctor", tmp_path / "broken.py", "--json")
    assert done.exit_code == 1
    problems = {each["check"]: each["problem"] for each in json.loads(done.stdout) if each["problem"]}
    assert problems.keys() == {"steps", "steps in float32", "states", "names"}
    assert problems["steps"].startswith("an output of a step differs from that of the whole sequence: relative error ")
    assert problems["names"] == "explain returns the mechanism 'else'; expected 'broken'"
    assert "4 of 12 checks fail" in done.stderr


def test_small_gradients_keep_their_tolerance():
    """A hundredth of the largest is the least that they are measured against."""
    expected = [torch.ones(1), torch.full((1,), 1e-3), torch.zeros(1)]
    names, found = ["a", "b", "c"], [expected[0], expected[1], torch.full((1,), 1e-16)]
    require_close_gradients(names, found, "others", [each.double() for each in expected], 1e-7)
    for place, error in ((0, 1e-4), (1, 1e-6), (2, 1e-6)):
        wrong = [each + error * (place == k) for k, each in enumerate(found)]
        with pytest.raises(BrokenContractError, match=f"the gradient of {names[place]} differs from others"):
            require_close_gradients(names, wrong, "others", expected, 1e-5)
    require_close_gradients([], [], "others", [], 1e-5)


def test_the_doctor_measures_zero_gradients_against_others(tmp_path, structattn):
    """That of the keys' bias is 0 but for rounding; another one that is wrong is named."""
    done = structattn("doctor", WINDOW, "--json")
    assert {each["problem"] for each in json.loads(done.stdout)} == {""}
    broken = WINDOW.read_text().replace(
        "query, *new = self.heads(x_t[:, None])", "query, *new = self.heads(x_t[:, None]); query = query.detach()"
    )
    (tmp_path / "broken.py").write_text(broken.replace('"window"', '"broken"'))
    done = structattn("doctor", tmp_path / "broken.py", "--json")
    problems = {each["check"]: each["problem"] for each in json.loads(done.stdout) if each["problem"]}
    assert problems.keys() == {"steps", "steps in float32"}
    assert problems["steps"].startswith(
        "the gradient of the input through steps differs from that of the whole sequence"
    )


def test_the_doctor_finds_a_first_state_that_is_the_input(tmp_path, structattn):
    aliased = DECAY.read_text().replace("x_t.clone()", "x_t").replace('"decay"]', '"aliased"]')
    (tmp_path / "aliased.py").write_text(aliased)
    done = structattn("doctor", tmp_path / "aliased.py", "--json")
    problems = {each["check"]: each["problem"] for each in json.loads(done.stdout)}
    assert problems["states"].startswith(
        "a step after the input of the last one was overwritten differs from that before"
    )


@pytest.mark.parametrize(
    ("made", "check", "problem"),
    [
        ("y.double()", "steps in float32", "the whole sequence returns torch.float64; expected torch.float32"),
        ("y[..., :3]", "steps", "the output of the whole sequence has shape (3, 7, 3); expected (3, 7, 6)"),
        ("exit('y')", "steps", "SystemExit: y"),
        ("exit('\\33[2Jy')", "steps", "SystemExit: \33[2Jy"),
    ],
)
def test_the_doctor_names_what_is_wrong_with_the_whole_sequence(tmp_path, structattn, made, check, problem):
    before = "return without_padding(self.projection(self.weights(x.shape[1]) @ without_padding(x, lengths)), lengths)"
    broken = DECAY.read_text()
    assert before in broken
    broken = broken.replace(before, f"{before.replace('return', 'y =')}; return {made}")
    (tmp_path / "wrong.py").write_text(broken.replace('"decay"]', '"wrong"]'))
    done = structattn("doctor", tmp_path / "wrong.py", "--json")
    assert done.exit_code == 1
    assert problem in {each["problem"] for each in json.loads(done.stdout) if each["check"] == check}
    text = structattn("doctor", tmp_path / "wrong.py").stdout
    assert problem.replace("\33", r"\x1b") in text, "wrapped, or not as it is printed safely"


OF_SIZES = """
from pydantic import Field, model_validator

class Sized(Settings):
    kind: Literal["sized"]
    base: int = Field(default=3, ge=BASE)
    size: int = 4

    @model_validator(mode="after")
    def _check(self):
        if self.size % self.base:
            raise ValueError(f"size {self.size} is no multiple of base {self.base}")
        return self

structattn.register(Positions(Sized, scores=lambda num_heads, size, settings: None))
"""


@pytest.mark.parametrize(
    ("least", "problem"), [(2, "all: size 4 is no multiple of base 3"), (5, "base: expected at least 5")]
)
def test_the_doctor_says_what_settings_refuse(plugin, structattn, least, problem):
    done = structattn("doctor", plugin(OF_SIZES.replace("BASE", str(least))))
    assert done.exit_code == 2
    assert f"sized: the settings of the check, {{'kind': 'sized'}}, are refused: {problem}; expected" in done.stderr


OF_OTHER_KINDS = """
import numpy as np
import torch
from dataclasses import replace
from structattn.attention import CrossSoftmaxAttention
from structattn.tasks import FormalLanguage, TaskKind, Transduction
from structattn.tasks.formal_languages.registry import formal_language
from structattn.tasks.language_modeling.task import formal_language_task

class Ramp(Settings):
    kind: Literal["ramp"]

class Other(Settings):
    attention: Literal["other"]

class Mirror:
    name, variant, alphabet = "mirror", "faithful", ("(", ")", "[", "]")
    def __getattr__(self, name):
        return getattr(formal_language("dyck"), name)

class Cross(CrossSoftmaxAttention):
    def forward(self, x, memory, lengths=None, memory_lengths=None):
        return super().forward(x, memory, lengths, memory_lengths)

def first(length, count, generator):
    x = generator.integers(0, 2, size=(count, length))
    return x, x[:, :1]

def halved(prepared, settings):
    task = formal_language_task(prepared, settings)
    return replace(task, criterion=lambda model, batch: task.criterion(model, batch) / 2)

structattn.register(
    Positions(Ramp, added=lambda d, s: lambda first, count: torch.arange(first, first + count)[:, None].expand(-1, d) * 1.0),
    Mechanism(Other, cross_attention=Use(Other, lambda model, settings: Cross(model.d_model, 3))),
    FormalLanguage(Mirror(), "brackets"),
    Transduction("first", "the first symbol", ("a", "b"), ("a", "b"), first, "regular"),
    TaskKind("halved", "half the loss", ("transformer",), halved),
)
"""  # noqa: E501


def test_the_doctor_checks_all_kinds_of_entries(plugin, structattn):
    done = structattn("doctor", plugin(OF_OTHER_KINDS), "--json")
    assert done.exit_code == 0, done.output
    verdicts = json.loads(done.stdout)
    kinds = [(each["kind"], each["name"]) for each in verdicts]
    expected = {"positions": 2, "cross-attention": 11, "formal language": 3, "transduction": 4, "task": 3}
    names = {
        "positions": "ramp",
        "cross-attention": "other",
        "formal language": "mirror",
        "transduction": "first",
        "task": "halved",
    }
    assert {kind: kinds.count((kind, names[kind])) for kind in expected} == expected
    assert len(kinds) == sum(expected.values())


@pytest.mark.parametrize(
    ("old", "new", "check", "problem"),
    [
        (
            "torch.arange(first, first + count)",
            "torch.arange(count)",
            "steps",
            "a position from 3 on differs from that of",
        ),
        ("lengths, memory_lengths)\n", "lengths, memory_lengths) + memory.mean()\n", "padding", "differs from that"),
        ("x[:, :1]", "generator.integers(0, 2, size=(count, 1))", "answers", "has two outputs"),
        ("criterion(model, batch) / 2", "criterion(model, batch) * torch.rand(())", "loss", "and the second time"),
    ],
)
def test_the_doctor_finds_what_breaks_other_contracts(plugin, structattn, old, new, check, problem):
    assert old in OF_OTHER_KINDS
    done = structattn("doctor", plugin(OF_OTHER_KINDS.replace(old, new)), "--json")
    assert done.exit_code == 1
    problems = {each["check"]: each["problem"] for each in json.loads(done.stdout) if each["problem"]}
    assert problem in problems[check]


def test_the_doctor_needs_something_to_check(plugin, structattn):
    stack = "class Twice(Settings):\n    attention: Literal['twice']\n"
    use = "recurrent_stack=Use(Twice, lambda settings: None)"
    result = structattn("doctor", plugin(f"{stack}structattn.register(Mechanism(Twice, {use}))\n"))
    assert result.exit_code == 2
    assert "own.py: registers nothing that could be checked" in result.stderr


def test_the_doctor_says_that_a_task_needs_other_data(plugin, structattn):
    text = (
        "from structattn.tasks import TaskKind\n"
        "from structattn.tasks.translation.task import translation_task\n"
        "structattn.register(TaskKind('pairs', 'pairs', ('encoder_decoder',), translation_task))\n"
    )
    result = structattn("doctor", plugin(text))
    assert result.exit_code == 2
    assert "task 'pairs': cannot be checked on strings of the Dyck language: " in result.stderr


def test_an_error_in_the_code_of_a_plugin_names_the_doctor(plugin, structattn, tmp_path):
    path = plugin(
        "from structattn.tasks import Transduction\n"
        "def draw(length, count, generator): return 1 / 0\n"
        'structattn.register(Transduction("own", "", ("a",), ("a",), draw, "regular"))\n'
    )
    error = structattn("prepare", "transduction", "own", "-o", tmp_path / "data", "--plugin", path).exception
    assert isinstance(error, ZeroDivisionError)
    assert error.__notes__ == [f"`structattn doctor {path}` checks what is registered there."]
