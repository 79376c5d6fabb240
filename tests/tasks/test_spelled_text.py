"""Language models of words by their characters, from a text file to scores."""

import math

import pytest
import torch

from structattn.loading.evaluate import evaluate
from structattn.models import SpelledEmbedding
from structattn.settings.run import resolve_settings
from structattn.support.errors import SettingsError
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.tasks.model import build_model_for
from structattn.text.folders.prepared import open_prepared
from structattn.training.run_training import train

TEXT = "".join(f"{word}{end} {word}\n" for word in ("ab", "ba", "aab", "bba") for end in ("", "s", "ed"))


def prepare(folder, level="word", **options):
    (folder / "text.txt").write_text(TEXT)
    files = [folder / "text.txt"] * 2
    prepare_language_modeling(folder / "data", *files, settings=TextSettings(level, **options))
    return open_prepared(folder / "data")


def settings(model, **training):
    return resolve_settings(
        {
            "task": "language_modeling",
            "data": "data",
            "model": model,
            "training": {"batches": {"kind": "tokens", "max_tokens": 60}, "max_epochs": None, **training},
        }
    )


TRANSFORMER = {
    "d_model": 8,
    "num_heads": 2,
    "layers": 1,
    "dropout": 0.0,
    "embedding": {"kind": "c2w", "hidden_size": 6},
}
LSTM = {"kind": "lstm", "hidden_size": 8, "embedding_size": 5, "embedding": {"kind": "c2w", "hidden_size": 6}}
MODELS = pytest.mark.parametrize("model", [TRANSFORMER, LSTM], ids=["transformer", "lstm"])


@pytest.mark.parametrize("min_count", [1, 2])
def test_all_words_of_the_vocabulary_are_spelled(tmp_path, min_count):
    prepared = prepare(tmp_path, min_count=min_count)
    model = build_model_for(settings(TRANSFORMER).model, prepared)
    assert isinstance(model.embedding, SpelledEmbedding)
    special = 3 + (min_count == 2)
    assert model.embedding.first_composed == special
    words = prepared.vocabulary.symbols[special:]
    assert (model.embedding.spellings != 0).sum(1).tolist() == [len(word) + 2 for word in words]


@MODELS
def test_a_run_learns_and_is_scored(tmp_path, monkeypatch, model):
    prepare(tmp_path, min_count=2)
    monkeypatch.chdir(tmp_path)
    summary = train(settings(model, max_updates=30, optimizer={"learning_rate": 0.02}), tmp_path / "run")
    scores = evaluate(tmp_path / "run", "valid", baselines=False)
    assert scores.cross_entropy == pytest.approx(summary.best_cross_entropy, rel=1e-5)
    assert scores.cross_entropy < 1.5


@MODELS
def test_only_words_are_spelled(tmp_path, model):
    prepared = prepare(tmp_path, "character")
    with pytest.raises(SettingsError, match=r"model\.\w+: the data have no characters of words"):
        build_model_for(settings(model).model, prepared)


RARE = {"kind": "c2w", "words": "rare"}


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (TRANSFORMER | {"tied_embeddings": True}, "tied_embeddings needs table embeddings; got c2w"),
        (TRANSFORMER | {"embedding": RARE}, "words: rare is for the source"),
        (LSTM | {"embedding": RARE}, "words: rare is for the source"),
        (LSTM | {"embedding_size": None}, "c2w needs embedding_size"),
    ],
)
def test_settings_that_do_not_fit_are_refused(model, message):
    with pytest.raises(SettingsError, match=message):
        settings(model)


@torch.no_grad()
def test_an_lstm_reads_words_by_their_characters(tmp_path):
    lm = build_model_for(settings(LSTM).model, prepare(tmp_path, min_count=2)).double().eval()
    ids = torch.tensor([[1, 4, 6, 3, 4]])
    whole, state = lm(ids), lm.initial_state(1)
    for t in range(5):
        logits, state = lm.step(ids[:, t], state)
        torch.testing.assert_close(logits, whole[:, t], rtol=1e-10, atol=1e-12)
    spelled = lm.embedding.composition(lm.embedding.spellings[ids[0, 1:3] - 4].long()) * math.sqrt(5)
    torch.testing.assert_close(lm.embedding(ids)[0, 1:3], spelled)
