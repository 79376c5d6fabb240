"""Blank positions after a string: the definition written out, language modeling, training, refusals."""

import math

import pytest
import torch

from structattn.loading.description import describe_model
from structattn.loading.evaluate import evaluate
from structattn.loading.runs import load
from structattn.settings.run import resolve_settings
from structattn.support.errors import SettingsError
from structattn.tasks.model import build_model_for
from structattn.tasks.recognition.losses import recognition_logits
from structattn.tasks.recognition.prepare import RecognitionSizes, prepare_recognition
from structattn.text.folders.prepared import open_prepared
from structattn.training.run_training import train

LOOPS = {"count": "log", "padding": 2, "padding_per_symbol": 3}
MODEL = {"layers": 2, "d_model": 8, "d_ff": 8, "num_heads": 2, "positions": "none", "loops": LOOPS, "dropout": 0.0}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "copy"
    prepare_recognition(path, "marked-copy", "hard", sizes=RecognitionSizes(40, 20, 4, 13, 15, 17))
    return path


def settings_of(folder, task="recognition", **model):
    training = {"batches": {"kind": "tokens", "max_tokens": 64}, "max_epochs": 1}
    if task == "recognition":
        training["recognition"] = {"language_modeling": 1.0}
    return resolve_settings({"task": task, "data": str(folder), "model": MODEL | model, "training": training})


@pytest.fixture
def model(folder):
    torch.manual_seed(1)
    settings = settings_of(folder)
    made = build_model_for(settings.model, open_prepared(folder), recognition=settings.training.recognition)
    for parameter in made.parameters():
        torch.nn.init.uniform_(parameter, -0.7, 0.7)
    return made.double().eval()


def strings(*sizes):
    generator = torch.Generator().manual_seed(2)
    return [torch.cat([torch.ones(1, dtype=torch.long), torch.randint(3, 6, (n,), generator=generator)]) for n in sizes]


def repeated(layers, x, size):
    """Return X_R of a string of some positions and its blanks, which do not count for R."""
    y, counts = x, torch.tensor([math.ceil(math.log2(min(p, size) + 1)) for p in range(1, x.shape[1] + 1)])
    for k in range(int(counts.max())):
        y = torch.where((k < counts)[:, None], layers.looped(y + x), y)
    return layers.coda(y)


@torch.no_grad()
def test_the_label_is_read_after_the_blanks(model):
    for tokens in strings(0, 1, 5):
        n = len(tokens) - 1
        blanks = math.sqrt(8) * model.layers.blank.expand(2 + 3 * n, 8)
        filled = torch.cat([model.embedding(tokens[None], 0, None)[0], blanks])[None]
        whole = model.output.split(model.output(repeated(model.layers.layers, filled, n + 1)))
        logits = recognition_logits(model, tokens[None], None)
        assert logits.label.shape == (1, n + 1)
        assert logits.label[0, n].item() == pytest.approx(whole.label[0, -1].item(), rel=1e-12)
        torch.testing.assert_close(logits.label[:, :n], whole.label[:, :n])
        torch.testing.assert_close(logits.language_modeling, whole.language_modeling[:, : n + 1])


@torch.no_grad()
def test_the_end_of_a_string_is_not_given_away(model):
    """Without blanks, the outputs of language modeling are the same, as are those of steps."""
    (tokens,) = strings(5)
    logits = recognition_logits(model, tokens[None], None)
    state, outputs = model.initial_state(1), []
    for token in tokens:
        output, state = model.step(token[None], state)
        outputs.append(output)
    steps = model.output.split(torch.stack(outputs, 1))
    torch.testing.assert_close(steps.language_modeling, logits.language_modeling)


def test_blanks_have_one_embedding_that_learns(model):
    (tokens,) = strings(5)
    recognition_logits(model, tokens[None], None).label[0, -1].backward()
    assert model.layers.blank.shape == (8,)
    assert model.layers.blank.grad.abs().sum() > 0


def test_a_run(folder, tmp_path):
    train(settings_of(folder), tmp_path / "run")
    scores = evaluate(tmp_path / "run", "test")
    run = load(tmp_path / "run")
    texts = ["01#01", "0#0", "#"]
    alone = [run.predict([text])[0] for text in texts]
    for answer, single in zip(run.predict(texts), alone, strict=True):
        assert answer.text == single.text
        assert answer.log_probability == pytest.approx(single.log_probability, rel=1e-4)
    assert scores.recognition.members is not None
    assert describe_model(run.settings.model) == "d 8: (2 softmax) x log n, 3 n + 2 blanks"


@pytest.mark.parametrize(
    ("task", "model", "message"),
    [
        ("language_modeling", {}, r"model\.loops\.padding: needs the task 'recognition'"),
        ("recognition", {"positions": "sinusoidal"}, "blank positions need positions that act on attention scores"),
        ("recognition", {"positions": "learned"}, "blank positions need positions that act on attention scores"),
    ],
)
def test_where_blanks_mean_nothing_they_are_refused(folder, task, model, message):
    with pytest.raises(SettingsError, match=message):
        settings_of(folder, task, **model)
