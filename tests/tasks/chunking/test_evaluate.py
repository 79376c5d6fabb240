"""The chunking probe: the published baseline, separable features, held-out data, and the command with its report."""

import json
import random
from pathlib import Path

import numpy as np
import pytest
from tests.program import invoke, succeed

from structattn.settings.run import resolve_settings
from structattn.support.errors import DataError
from structattn.tasks.chunking.evaluate import (
    LabelledFeatures,
    majority_scores,
    read_chunked_corpus,
    train_linear_probe,
)
from structattn.text.reading import Notices
from structattn.training.run_training import train

CONLL = Path(__file__).resolve().parents[4] / "shared/data/conll2000"
WORDS = {"eins": "B-NP", "zwei": "I-NP", "drei": "B-VP", "vier": "O", "fünf": "B-PP"}


def test_training_ends_with_the_weights_of_the_lowest_held_out_loss():
    generator = np.random.default_rng(1)
    centres = generator.normal(size=(4, 6)).astype(np.float32) * 100
    classes = generator.integers(0, 4, 100)
    features = centres[classes] + generator.normal(size=(100, 6)).astype(np.float32)
    features[:, 0] = 7.0  # constant
    data = LabelledFeatures(features, classes)
    epochs = []
    probe = train_linear_probe(data, data, 4, 1, lambda: epochs.append(1))
    assert (probe.predict(features) == classes).all()
    assert probe.epoch == len(epochs) == 100, "the loss of separable data falls to the end"
    opposite = LabelledFeatures(features, (classes + 1) % 4)
    assert train_linear_probe(data, opposite, 4, 1, lambda: epochs.append(1)).epoch == 1
    assert len(epochs) == 100 + 1 + 3, "three epochs without improvement end the training"


@pytest.mark.skipif(not CONLL.is_dir(), reason="../shared/data/conll2000 is not there")
def test_the_baseline_has_its_published_scores():
    scores = majority_scores(read_chunked_corpus(CONLL, Notices()))
    found = [round(100 * each, 2) for each in (scores.overall.precision, scores.overall.recall, scores.overall.f1)]
    assert found == [72.58, 82.14, 77.07]
    assert scores.words == 47_377


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Sentences of four words that begin with a noun phrase of one or two."""
    folder, generator = tmp_path_factory.mktemp("chunks"), random.Random(3)
    for name, count in (("train", 60), ("test", 20)):
        sentences = [["eins", "zwei", *generator.choices(["eins", "drei", "vier", "fünf"], k=2)] for _ in range(count)]
        rows = ["".join(f"{word} {word[0]} {WORDS[word]}\n" for word in words) for words in sentences]
        (folder / f"{name}.txt").write_text("\n".join(rows))
    return folder


def test_a_corpus_needs_a_sentence_to_hold_out(tmp_path):
    (tmp_path / "train.txt").write_text("a DT O\n")
    (tmp_path / "test.txt").write_text("a DT O\n")
    with pytest.raises(DataError, match="has one sentence"):
        read_chunked_corpus(tmp_path, Notices())


@pytest.mark.usefixtures("without_drawing")
def test_the_command_probes_each_stream_and_the_report_shows_it(parallel_data, corpus, tmp_path):
    model = {"kind": "two_stream_encoder_decoder", "d_model": 8, "num_heads": 2, "d_ff": 8, "num_layers": 1}
    training = {"batches": {"kind": "pairs", "max_tokens": 100}, "max_updates": 1, "max_epochs": None}
    tree = {"task": "translation", "data": str(parallel_data), "model": model, "training": training}
    train(resolve_settings(tree), tmp_path / "run")
    shown = succeed("evaluate", tmp_path / "run", "--suite", "chunking", "--file", corpus)
    assert "syntactic" in shown.output
    kept = json.loads((tmp_path / "run/analyses/chunking.json").read_text())
    assert [each["stream"] for each in kept["streams"]] == ["syntactic", "semantic"]
    assert kept["streams"][0]["scores"]["words"] == 80
    assert invoke("report", tmp_path / "run", "-o", tmp_path / "page").exit_code == 0
    page = (tmp_path / "page/index.html").read_text()
    assert f"{100 * kept['streams'][1]['scores']['overall']['f1']:.2f}" in page
    assert "87.40" in page, "the published score of the syntactic stream"
