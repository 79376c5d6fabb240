"""Embeddings of words: rows of the tables, neighbours, agreement, plot and export, for every kind of model."""

import json

import numpy as np
import pytest
import torch
from tests.program import invoke

from structattn.explorer import word_embeddings
from structattn.explorer.word_embeddings import neighbours_of, t_sne, tag_agreement
from structattn.loading.trained_run import TrainedRun
from structattn.loading.word_vectors import WordVectors, word_vectors
from structattn.settings.run import resolve_settings
from structattn.support.errors import UsageError
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.tasks.model import build_model_for
from structattn.text.folders.prepared import open_prepared
from structattn.training.run_training import train

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 8}
TWO_STREAMS = {"kind": "two_stream_encoder_decoder", "num_layers": 1}


def row(embedding, token):
    """The embedding of one token, by the definition of ``Embedding.forward`` without positions."""
    if isinstance(embedding, torch.nn.Embedding):
        return embedding.weight[token].detach().numpy()
    with torch.no_grad():
        positions, embedding.positions = embedding.positions, None
        found = embedding(torch.tensor([[token]]))[0, 0] / 8**0.5
        embedding.positions = positions
    return found.numpy()


@pytest.mark.parametrize("tied", ["none", "two-way"])
def test_words_of_translation_runs(translation_run, tied):
    run = translation_run(tied_embeddings=tied)
    for side, embedding, example in (("source", run.model.source, "fünf"), ("target", run.model.target, "five")):
        vectors = word_vectors(run, side)
        tokenizer = getattr(run.prepared.sides, side)
        assert sorted(vectors.words) == sorted(set(tokenizer.vocabulary.symbols[3:]) - {"<unk>"})
        np.testing.assert_allclose(
            vectors.streams[None][vectors.index(example)], row(embedding, *tokenizer.encode(example)), rtol=1e-6
        )
    assert word_vectors(run).words == word_vectors(run, "source").words


def test_words_are_ordered_by_frequency(translation_run):
    run = translation_run()
    text = run.prepared.pairs("train").source
    ids = np.concatenate([text[index] for index in range(len(text))])
    symbols = run.prepared.sides.source.vocabulary.symbols
    counts = {symbols[token]: count for token, count in zip(*np.unique(ids, return_counts=True), strict=True)}
    expected = sorted(counts, key=lambda word: (-counts[word], word))
    assert list(word_vectors(run).words) == expected
    assert list(word_vectors(run, max_words=2, also=[expected[4]]).words) == [*expected[:2], expected[4]]


def test_both_streams_have_their_own_table(translation_run):
    run = translation_run(**TWO_STREAMS)
    vectors = word_vectors(run, "target")
    token = run.prepared.sides.target.encode("five")[0]
    for name in ("syntactic", "semantic"):
        expected = row(getattr(run.model.target, name), token)
        np.testing.assert_allclose(vectors.streams[name][vectors.index("five")], expected, rtol=1e-6)


def text_run(folder, model, level="word"):
    (folder / "text").write_text("the cat sat\nthe dog sat down\nthe cat ran low lower\n")
    settings = TextSettings(level=level, vocabulary_size=14)
    prepare_language_modeling(folder / "data", folder / "text", folder / "text", None, settings)
    task = "masked_language_modeling" if model.get("kind") == "masked" else "language_modeling"
    tree = {"task": task, "data": str(folder / "data"), "model": model, "training": {}}
    resolved, prepared = resolve_settings(tree), open_prepared(folder / "data")
    return TrainedRun(folder, resolved, prepared, build_model_for(resolved.model, prepared).eval(), 0)


@pytest.mark.parametrize(
    "model",
    [
        {**SIZES, "layers": "1"},
        {**SIZES, "layers": "1", "tied_embeddings": True},
        {**SIZES, "layers": "1", "embedding": {"kind": "c2w"}},
        {"kind": "lstm", "hidden_size": 6, "embedding_size": 8},
        {**SIZES, "kind": "two_stream", "num_layers": 1},
        {**SIZES, "kind": "masked", "layers": "1"},
        pytest.param({**SIZES, "kind": "gpt2", "num_layers": 1}, marks=pytest.mark.slow),
    ],
)
def test_language_models(tmp_path, model):
    run = text_run(tmp_path, model)
    vectors = word_vectors(run)
    assert vectors.words[0] == "the"
    embedding = run.model.embedding
    for name, table in vectors.streams.items():
        of_stream = embedding if name is None else getattr(embedding, name)
        np.testing.assert_allclose(table[0], row(of_stream, *run.prepared.tokenizer.encode("the")), rtol=1e-5)


def test_subwords_that_are_no_words_are_left_out(tmp_path):
    run = text_run(tmp_path, {**SIZES, "layers": "1"}, level="bpe")
    words = word_vectors(run).words
    assert set(words) < {"the", "cat", "sat", "dog", "down", "ran", "low", "lower"}
    assert "the" in words
    with pytest.raises(UsageError, match="the word 'lower' is not one token of the vocabulary"):
        word_vectors(run, also=["lower"])


def test_runs_without_such_words_are_refused(tmp_path, translation_run):
    with pytest.raises(UsageError, match="one-hot"):
        word_vectors(text_run(tmp_path, {"kind": "lstm", "hidden_size": 6}))
    with pytest.raises(UsageError, match="the word 'sechs' is not one token"):
        word_vectors(translation_run(), also=["sechs"])


VECTORS = WordVectors(
    ("cat", "dog", "sat", "ran", "of"), {None: np.array([[1, 0.1], [1, 0], [0, 1], [0.1, 1], [-1, -1]])}
)


def test_neighbours_and_agreement(monkeypatch):
    assert [each.word for each in neighbours_of(VECTORS, "cat", 2)[None]] == ["dog", "ran"]
    with pytest.raises(UsageError, match="'cow' is not among the 5 words"):
        neighbours_of(VECTORS, "cow")
    tags = {"cat": "NN", "dog": "NN", "sat": "VBD", "ran": "VBD"}
    monkeypatch.setattr(word_embeddings, "NUM_NEIGHBOURS", 1)
    found = tag_agreement(VECTORS, tags)[None]
    assert (found.count, found.value) == (4, 1.0)
    with pytest.raises(UsageError, match="known part of speech"):
        tag_agreement(VECTORS, {"cat": "NN"})


def test_t_sne_keeps_clusters_apart_and_depends_on_the_seed_alone():
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    generator = np.random.default_rng(1)
    vectors = (np.repeat(np.eye(3), 8, axis=0) + generator.normal(size=(24, 3)) * 0.05).astype(np.float32)
    points = t_sne(vectors, 1)
    np.testing.assert_array_equal(points, t_sne(vectors, 1))
    centres = points.reshape(3, 8, 2).mean(axis=1)
    nearest = np.linalg.norm(points[:, None] - centres, axis=2).argmin(axis=1)
    assert nearest.tolist() == [0] * 8 + [1] * 8 + [2] * 8
    with pytest.raises(UsageError, match="at least 4 words"):
        t_sne(vectors[:3], 1)


def test_the_command(parallel_data, tmp_path):
    pytest.importorskip("sklearn", reason="scikit-learn is not installed")
    training = {"batches": {"kind": "pairs", "max_tokens": 100}, "max_updates": 1, "max_epochs": None}
    model = {**SIZES, **TWO_STREAMS}
    tree = {"task": "translation", "data": str(parallel_data), "model": model, "training": training}
    train(resolve_settings(tree), tmp_path / "run")
    (tmp_path / "tags").write_text("eins NN O\nzwei NN O\ndrei VB O\nvier VB O\n")
    plot, export = tmp_path / "new/plot.svg", tmp_path / "new/vectors.txt"

    def run(*arguments):
        return invoke("inspect", tmp_path / "run", *arguments)

    two_tables, a_folder, below_a_file = (export, 2), (tmp_path, 1), (tmp_path / "tags/vectors.txt", 1)
    for refused, code in (two_tables, a_folder, below_a_file):
        shown = run("--tags", tmp_path / "tags", "--export", refused)
        assert shown.exit_code == code
        assert "neighbours of" not in shown.output
    tags, once = tmp_path / "tags", tmp_path / "new/words.svg"
    shown = run("--plot", once, "--export", tmp_path / "new/../new/words.svg", "--stream", "semantic")
    assert (shown.exit_code, "--plot writes this file; expected another one" in shown.output) == (2, True)
    shown = run("--tags", tags, "--export", tags, "--stream", "semantic")
    assert (shown.exit_code, "--tags reads this file; expected another one" in shown.output) == (2, True)
    assert not once.parent.exists()
    assert not list(tmp_path.glob("run/analyses/neighbours*"))
    shown = run("--neighbours", "eins", "--count", 3, "--tags", tmp_path / "tags", "--plot", plot)
    assert shown.exit_code == 0, shown.output
    assert shown.output.count("of 4 words have the part of speech") == 2
    assert b"<svg" in plot.read_bytes()
    kept = json.loads((tmp_path / "run/analyses/neighbours-source.json").read_text())
    one = run("--tags", tmp_path / "tags", "--stream", "semantic")
    assert one.output.count("of 4 words have the part of speech") == 1
    assert json.loads((tmp_path / "run/analyses/neighbours-source.json").read_text()) == kept
    assert [each["stream"] for each in kept["streams"]] == ["syntactic", "semantic"]
    assert kept["streams"][0]["chance"] == pytest.approx(1 / 3)
    assert run("--export", export, "--stream", "semantic", "--side", "target").exit_code == 0
    header, *rows = export.read_text().splitlines()
    assert header == "5 8"
    assert sorted(line.split(" ")[0] for line in rows) == ["five", "four", "one", "three", "two"]
    assert all(len(list(map(float, line.split(" ")[1:]))) == 8 for line in rows)
    assert run("--plot", tmp_path / "plot.gif").exit_code == 2
    assert "--count needs --neighbours" in run("--count", 3).output
