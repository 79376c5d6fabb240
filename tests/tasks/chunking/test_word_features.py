"""Features of words: the hidden state at the first subword, whatever the model, the tokenizer and the batch."""

from pathlib import Path

import numpy as np
import pytest
import torch

from structattn.loading.trained_run import TrainedRun
from structattn.settings.run import resolve_settings
from structattn.support.errors import DataError
from structattn.tasks.chunking.word_features import WordFeatures
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.tasks.model import build_model_for
from structattn.text.folders.prepared import open_prepared

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 8}
SENTENCES = [["eins", "zwei"], ["drei"], ["fünf", "vier", "eins"]]
TWO_STREAMS = {"kind": "two_stream_encoder_decoder", "num_layers": 2}
PLACE = Path("words.txt")


def encoded(features, sentences=SENTENCES):
    return [features.encode(words, PLACE, 1) for words in sentences]


@pytest.fixture
def text_run(tmp_path):
    def make(model, level="word", mode="sentences", text="ab c\nc ab b\n"):
        (tmp_path / "text").write_text(text)
        prepare_language_modeling(
            tmp_path / "data", tmp_path / "text", tmp_path / "text", settings=TextSettings(level, mode)
        )
        batches = {"kind": "stream", "batch_size": 1, "sequence_length": 4} if mode == "stream" else None
        tree = {"task": "language_modeling", "data": str(tmp_path / "data"), "model": model}
        tree["training"] = {"batches": batches} if batches else {}
        settings, prepared = resolve_settings(tree), open_prepared(tmp_path / "data")
        torch.manual_seed(2)
        return TrainedRun(tmp_path, settings, prepared, build_model_for(settings.model, prepared).eval(), 0)

    return make


def test_features_of_a_translation_run_are_the_output_of_its_encoder(translation_run):
    run = translation_run()
    features = WordFeatures(run)
    (only,) = features(encoded(features)).values()
    encode = run.prepared.sides.source.encode
    with torch.no_grad():
        expected = [run.model.encode(torch.tensor([[*encode(" ".join(words)), 2]]))[0, :-1] for words in SENTENCES]
    np.testing.assert_allclose(only, torch.cat(expected), atol=1e-6)


def test_both_streams_are_returned(translation_run):
    run = translation_run(**TWO_STREAMS)
    features = WordFeatures(run)
    found = features(encoded(features))
    assert list(found) == ["syntactic", "semantic"]
    with torch.no_grad():
        streams = run.model.encode(torch.tensor([[*run.prepared.sides.source.encode("drei"), 2]]))
    for name, stream in zip(found, streams, strict=True):
        np.testing.assert_allclose(found[name][2], stream[0, 0], atol=1e-6)


MODELS = [
    {**SIZES, "layers": "2"},
    {"kind": "lstm", "hidden_size": 6},
    {**SIZES, "kind": "two_stream", "num_layers": 2},
    {**SIZES, "kind": "two_stream", "num_layers": 2, "norm": "post"},
    pytest.param({**SIZES, "kind": "gpt2", "num_layers": 1}, marks=pytest.mark.slow),
]


@pytest.mark.parametrize("model", MODELS)
def test_language_models_predict_from_the_features(text_run, model):
    run = text_run(model)
    features = WordFeatures(run)
    found = features(encoded(features, [["ab", "c"]]))
    with torch.no_grad():
        expected = run.model(torch.tensor([[1, *run.prepared.tokenizer.encode("ab c")]]))[0, 1:]
        output = run.model.output if hasattr(run.model, "output") else run.model._logits
        logits = output(torch.from_numpy(found[features.streams[-1]]))
    torch.testing.assert_close(logits, expected)


def test_the_first_token_of_each_word_is_taken(text_run):
    features = WordFeatures(text_run({**SIZES, "layers": "1"}, level="character"))
    (sentence,) = encoded(features, [["ab", "c", "ab"]])
    symbols = features.run.prepared.vocabulary.symbols
    assert [symbols[sentence.inputs[index]] for index in sentence.first] == ["a", "c", "a"]
    assert len(sentence.inputs) == 1 + len("ab c ab")


def test_a_vocabulary_without_a_space_is_told_with_the_line(text_run):
    features = WordFeatures(text_run({**SIZES, "layers": "1"}, level="character", text="ab\nc\n"))
    assert features.encode(["ab"], PLACE, 3).first == (1,)
    with pytest.raises(DataError, match=r"words\.txt.*3.*the space between words"):
        features.encode(["ab", "c"], PLACE, 3)


def test_a_sentence_in_a_stream_begins_with_eos(text_run):
    features = WordFeatures(text_run({**SIZES, "layers": "1"}, mode="stream"))
    assert encoded(features, [["c"]])[0].inputs[0] == 2


def test_subwords(tmp_path, names):
    prepared = names.prepare(tmp_path, level="bpe", train=50, valid=5)
    tree = names.tree(prepared.path, embedding="table")
    tree["model"] = {"kind": "encoder_decoder", **SIZES, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
    settings = resolve_settings(tree)
    run = TrainedRun(tmp_path, settings, prepared, build_model_for(settings.model, prepared).eval(), 0)
    words = ["eins", "xabcacb", "zwei"]
    (sentence,) = encoded(WordFeatures(run), [words])
    side = run.prepared.sides.source
    assert list(sentence.inputs[:-1]) == side.encode(" ".join(words))
    ends = [*sentence.first[1:], len(sentence.inputs) - 1]
    assert [side.decode(sentence.inputs[i:j]) for i, j in zip(sentence.first, ends, strict=True)] == words


def test_out_of_vocabulary_words_are_composed_from_their_characters(tmp_path, names):
    prepared = names.prepare(tmp_path, train=300, valid=10)
    settings = resolve_settings(names.tree(prepared.path))
    run = TrainedRun(tmp_path, settings, prepared, build_model_for(settings.model, prepared).eval(), 0)
    features = WordFeatures(run)
    (found,) = features(encoded(features, [["eins", "xabcacb"], ["eins", "xcabacb"]])).values()
    assert not np.allclose(found[1], found[3])


def test_what_cannot_be_encoded_is_refused(translation_run, text_run):
    features = WordFeatures(translation_run(positions={"kind": "learned", "max_positions": 3}))
    with pytest.raises(DataError, match=r"words\.txt:7: the inputs have 4 tokens; the model has 3 positions"):
        features.encode(["eins"] * 3, PLACE, 7)
    with pytest.raises(DataError, match=r"words\.txt:7: ' ' has no tokens"):
        features.encode([" "], PLACE, 7)
    with pytest.raises(DataError, match=r"words\.txt:7: 'x': 'x' is not in the vocabulary"):
        WordFeatures(text_run({**SIZES, "layers": "1"})).encode(["x"], PLACE, 7)
