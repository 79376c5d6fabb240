"""Formal languages, transductions and tasks of plugins."""

from dataclasses import replace

import numpy as np
import pytest

import structattn
from structattn.cli.listing import choices
from structattn.settings.run import RunSettings, resolve_settings
from structattn.support.errors import SettingsError, UsageError
from structattn.tasks import TASKS, FormalLanguage, TaskKind, Transduction, require_trainable
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.formal_languages.registry import formal_language
from structattn.tasks.language_modeling.task import formal_language_task
from structattn.tasks.recognition.prepare import prepare_recognition
from structattn.tasks.transductions.prepare import TransductionSizes, prepare_transduction
from structattn.tasks.transductions.registry import transduction
from structattn.text.folders.prepared import open_prepared
from structattn.training.run_training import train


class Repeats:
    """a^n, of length n with probability 2^-n."""

    name, variant, alphabet = "repeats", "faithful", ("a",)

    def valid_lengths(self, low, high):
        return list(range(max(low, 1), high + 1))

    def log_length_probability(self, length):
        return -length * np.log(2)

    def sample_each(self, lengths, generator):
        return [np.zeros(length, dtype=np.int64) for length in lengths]

    def log_probabilities(self, strings, advance=lambda count: None):
        return np.array([self.log_length_probability(len(string)) for string in strings])


def test_a_language_is_prepared_with_its_probabilities(tmp_path):
    structattn.register(FormalLanguage(Repeats(), "a, n times"))
    assert isinstance(formal_language("repeats"), Repeats)
    with pytest.raises(UsageError, match=r"recognition of repeats: its alphabet is \('a',\); expected two symbols"):
        transduction("recognise:repeats:1")
    prepare_formal_language(tmp_path / "data", "repeats", sizes=FormalLanguageSizes(5, 5, 1, (2, 4), (2, 6)))
    valid = open_prepared(tmp_path / "data").split("valid")
    assert (valid.log_probabilities == 0).all()  # of the only string of each length


@pytest.mark.parametrize(
    ("method", "change", "message"),
    [
        ("sample_each", lambda drawn: drawn[1:], "sample_each returns 4 strings for 5 lengths"),
        (
            "sample_each",
            lambda drawn: [each[1:] for each in drawn],
            r"returns \[.*\]; expected \d integers from 0 to 0",
        ),
        (
            "sample_each",
            lambda drawn: [each + 1 for each in drawn],
            r"returns \[1, .*\]; expected \d integers from 0 to 0",
        ),
        ("sample_each", lambda drawn: [each + 0.5 for each in drawn], "expected . integers"),
        ("log_probabilities", lambda log_p: 0.0, r"log_probabilities has shape \(\); expected \(5,\)"),
        ("log_probabilities", lambda log_p: log_p - np.inf, "a string that was drawn has log-probability -inf"),
        (
            "log_probabilities",
            lambda log_p: log_p + 0.1,
            "expected finite ones, of the string at most that of its length",
        ),
        ("log_length_probability", lambda log_p: 1.0, "its length 1.0; expected finite ones"),
    ],
)
def test_strings_and_probabilities_that_do_not_fit_the_language_are_refused(tmp_path, method, change, message):
    class Wrong(Repeats):
        pass

    right = getattr(Repeats(), method)
    setattr(Wrong, method, lambda self, *arguments: change(right(*arguments)))
    structattn.register(FormalLanguage(Wrong(), "a, n times"))
    with pytest.raises(UsageError, match=f"formal language 'repeats'.*{message}"):
        prepare_formal_language(tmp_path / "data", "repeats", sizes=FormalLanguageSizes(5, 5, 1, (2, 4), (2, 6)))
    assert not (tmp_path / "data").exists()


def test_a_language_with_a_name_of_flare_is_not_taken_for_it(tmp_path):
    class Majority(Repeats):
        name = "majority"

    structattn.register(FormalLanguage(Majority(), "a, n times"))
    with pytest.raises(UsageError, match=r"language 'majority' is one of FLaRe and one of the plugin test_tasks\.py"):
        prepare_recognition(tmp_path / "data", "majority")
    assert "test_tasks.py" not in choices()["languages to recognize (prepare recognition)"]["majority"]


def test_a_run_records_the_plugin_of_its_language(tmp_path, tree):
    structattn.register(FormalLanguage(Repeats(), "a, n times"))
    prepare_formal_language(tmp_path / "data", "repeats", sizes=FormalLanguageSizes(5, 5, 1, (2, 4), (2, 6)))
    settings = resolve_settings(tree(data=str(tmp_path / "data"), model={"d_model": 8, "num_heads": 2, "layers": 1}))
    train(settings, tmp_path / "run")
    assert [each["name"] for each in structattn.load(tmp_path / "run").metadata["plugins"]] == ["test_tasks.py"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: (x, x - 1), "y has integers from -1 to 0; expected integers from 0 to 1 of shape \\(4, n\\)"),
        (lambda x: (x + 2, x), "x has integers from 2 to 3; expected integers from 0 to 1 of shape \\(4, 3\\)"),
        (lambda x: (x, x + 0.5), "y has dtype float64"),
        (lambda x: (x, x[1:]), "y has shape \\(3, 3\\)"),
        (lambda x: (x[:, 1:], x), "x has shape \\(4, 2\\)"),
        (lambda x: (x, x[0]), "y is array"),
        (lambda x: (x, x.tolist()), "y is \\[\\["),
        (lambda x: (x, x[:, :0]), "y has length 0; expected at least one symbol, or a greater min_length"),
        (lambda x: x, "returns ndarray; expected a tuple of x and y"),
    ],
)
def test_strings_that_are_no_indices_are_refused(change, message):
    strings = np.array([[0, 1, 0], [1, 1, 0], [0, 0, 0], [1, 0, 1]])
    task = Transduction("own", "", ("a", "b"), ("a", "b"), lambda length, count, generator: change(strings), "regular")
    with pytest.raises(UsageError, match=f"transduction 'own': draw\\(3, 4, generator\\).*{message}"):
        task.sample(3, 4, np.random.default_rng(1))


def last_b(length, count, generator):
    """y is x up to its last b, padded to the longest of the draw."""
    x = generator.integers(0, 2, size=(count, length))
    ends = (np.arange(1, length + 1) * x).max(axis=1)
    return x, np.where(np.arange(ends.max()) < ends[:, None], x[:, : ends.max()], 2)


def test_an_output_whose_length_depends_on_the_data_is_refused(tmp_path):
    structattn.register(Transduction("last-b", "", ("a", "b"), ("a", "b", "PAD"), last_b, "regular"))
    message = r"'last-b': draw\(\d+, \d+, generator\): y has length \d+, and in another draw \d+; expected a length"
    with pytest.raises(UsageError, match=message):
        prepare_transduction(tmp_path / "data", "last-b", sizes=TransductionSizes((4, 6), (7, 8), 1, 1))
    assert not (tmp_path / "data").exists()


def test_a_language_without_a_method_is_refused():
    class Half:
        name, variant, alphabet = "half", "faithful", ("a",)

    with pytest.raises(
        UsageError, match="has no valid_lengths; expected name, variant, alphabet, valid_lengths, log_len"
    ):
        structattn.register(FormalLanguage(Half(), "nothing"))
    Repeats.name = "dyck"
    try:
        with pytest.raises(UsageError, match="formal language 'dyck' is built in; expected another name"):
            structattn.register(FormalLanguage(Repeats(), "nothing"))
    finally:
        Repeats.name = "repeats"


@pytest.mark.parametrize(
    ("symbols", "complaint"),
    [(("a", "a"), "'a' occurs twice"), (("a", "<pad>"), "'<pad>' occurs twice"), (("", "a"), "symbol 3 is empty")],
)
def test_symbols_that_no_vocabulary_has_are_refused(symbols, complaint, tmp_path, monkeypatch):
    monkeypatch.setattr(Repeats, "name", "own")
    monkeypatch.setattr(Repeats, "alphabet", symbols)
    with pytest.raises(UsageError, match=f"formal language 'own': alphabet: .*{complaint}; expected distinct symbols"):
        structattn.register(FormalLanguage(Repeats(), "nothing"))
    structattn.register(Transduction("own", "", symbols, ("a", "b"), first, "regular"))
    with pytest.raises(UsageError, match=f"transduction 'own': .*{complaint}; expected distinct symbols"):
        prepare_transduction(tmp_path / "data", "own", sizes=TransductionSizes((4, 6), (7, 8), 1, 1))


def first(length, count, generator):
    x = generator.integers(0, 2, size=(count, length))
    return x, x[:, :1]


def test_transductions():
    task = Transduction("first", "the first symbol", ("a", "b"), ("a", "b"), first, "regular")
    structattn.register(task)
    assert transduction("first") is task
    with pytest.raises(UsageError, match=r"transduction 'fist' is unknown; expected one of .*, first, recognise"):
        transduction("fist")
    with pytest.raises(
        UsageError, match="transduction 'a b': expected a name of letters, digits, underscores and hyphens"
    ):
        structattn.register(replace(task, name="a b"))
    with pytest.raises(UsageError, match="transduction 'parity-check' is built in"):
        structattn.register(replace(task, name="parity-check"))
    with pytest.raises(UsageError, match=r"'last': draw: .*expected a function of \(length, count, generator\)"):
        structattn.register(replace(task, name="last", draw=lambda length: None))


def doubled(prepared, settings):
    """Minimize twice the loss of strings of a formal language."""
    task = formal_language_task(prepared, settings)
    return replace(task, criterion=lambda model, batch: 2 * task.criterion(model, batch))


@pytest.fixture
def own():
    structattn.register(TaskKind("doubled", "twice the loss", ("transformer", "lstm"), doubled))


@pytest.mark.usefixtures("own")
def test_a_task_trains_and_is_evaluated(tmp_path, tree):
    settings = resolve_settings(tree(task="doubled", model={"d_model": 8, "num_heads": 2, "layers": 1}))
    train(settings, tmp_path / "run")
    run = structattn.load(tmp_path / "run")
    assert run.settings.task == "doubled"
    assert run.metadata["plugins"][0]["name"] == "test_tasks.py"
    assert structattn.evaluate(tmp_path / "run", "valid").cross_entropy > 0
    (generated,) = run.generate(n=2, max_length=5)
    assert len(generated) == 2
    (score,) = run.score([generated[0].text])
    assert score.num_tokens > 0
    with pytest.raises(
        SettingsError, match=r"model.kind: the task 'doubled' trains 'transformer' or 'lstm', got 'rnn'"
    ):
        require_trainable("doubled", "rnn")


@pytest.mark.usefixtures("own")
def test_names_of_tasks_are_those_that_are_registered():
    assert RunSettings.model_json_schema()["properties"]["task"] == {
        "description": "task, as listed by `structattn list`",
        "enum": list(TASKS),
        "title": "Task",
        "type": "string",
    }
    known = "'translation' or 'doubled', got 'dubled'; did you mean doubled?; one of your own "
    with pytest.raises(SettingsError) as caught:
        resolve_settings({"task": "dubled", "data": "data"})
    assert str(caught.value).startswith("settings: task: expected 'formal_language', 'language_modeling', ")
    assert known in str(caught.value)


def test_incomplete_tasks_are_refused():
    with pytest.raises(UsageError, match="task 'translation' is built in; expected another name"):
        structattn.register(TaskKind("translation", "", ("transformer",), doubled))
    with pytest.raises(UsageError, match=r"task 'own': build: .*expected a function of \(prepared, settings\)"):
        structattn.register(TaskKind("own", "", ("transformer",), lambda: None))
    assert "own" not in TASKS
