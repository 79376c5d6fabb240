"""Explanations of pairs: the right symbols on both axes, the same alone and in a batch."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from structattn.explorer import recording, searched_text
from structattn.explorer.head_locality import explain_all_pairs
from structattn.explorer.recording import receptive_field_records
from structattn.explorer.recording_files import read_recording
from structattn.explorer.run_analysis import analyze_run
from structattn.explorer.searched_text import default_examples, example_batch
from structattn.loading.records import layer_records
from structattn.loading.runs import load
from structattn.loading.trained_run import TrainedRun
from structattn.settings.run import resolve_settings
from structattn.support.errors import DataError, UsageError
from structattn.tasks.model import build_model_for
from structattn.tasks.translation.explain import PairExplainer
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.prepared import open_prepared

MODELS = {
    "softmax": {},
    "hard-coded": {
        "encoder": {"layers": "2xgaussian"},
        "decoder": {"layers": "2xgaussian", "cross_attention": "none.gaussian"},
    },
    "hard": {"encoder": {"layers": "2xhard"}, "decoder": {"layers": "2xhard", "cross_attention": "hard.softmax-1"}},
    "stacks": {
        "encoder": {"layers": "1.superposition-3"},
        "decoder": {"layers": "nondeterministic-1-2-3.1+stack_pointer"},
    },
    "two streams": {"kind": "two_stream_encoder_decoder", "num_layers": 2},
    "nothing but across": {"encoder": {"layers": "2xnone"}, "decoder": {"layers": "2xnone"}},
}


def places(records):
    return {(record.side, record.layer, record.sublayer, record.head) for record in records}


def pair_records(run, split, example):
    return layer_records(PairExplainer(run), example_batch(run, split, example))


@pytest.mark.parametrize("model", MODELS)
def test_rows_and_columns_are_the_symbols_of_the_sides(translation_run, model):
    run = translation_run(**MODELS[model])
    pairs, sides = run.prepared.pairs("test"), run.prepared.sides
    source = (*sides.source.decode(pairs[3][0]).split(), "<eos>")
    target = ("<bos>", *sides.target.decode(pairs[3][1]).split())
    records = pair_records(run, "test", 3)
    assert records
    for record in records:
        bottom = ("(bottom)",) * (len(record.sources) - len(source if record.side == "encoder" else target))
        assert record.tokens == (source if record.side == "encoder" else target)
        if record.sublayer == "cross":
            assert record.sources == source
        else:
            assert record.sources == (*bottom, *record.tokens)
        assert record.weights.shape == (len(record.tokens), len(record.sources))


def test_every_head_of_every_layer_has_its_record(translation_run):
    attention, cross, heads, layers = "attention", "cross", (0, 1), (0, 1)
    assert places(pair_records(translation_run(), "test", 0)) == {
        (side, layer, sublayer, head)
        for side, sublayer in (("encoder", attention), ("decoder", attention), ("decoder", cross))
        for layer in layers
        for head in heads
    }
    one = translation_run(
        encoder={"layers": "2xnone"}, decoder={"layers": "2xnone", "cross_attention": "none.softmax-1"}
    )
    assert places(pair_records(one, "test", 0)) == {("decoder", 1, "cross", None)}


@pytest.mark.parametrize("model", MODELS)
def test_a_pair_in_a_batch_is_explained_as_alone(translation_run, model):
    run, seen = translation_run(**MODELS[model]), []
    for batch, found in explain_all_pairs(run, "test", batch_tokens=60):
        for row, example in enumerate(batch.examples):
            alone = pair_records(run, "test", example)
            explanations = [*found.encoder, *found.decoder]
            together = [head for each in explanations for head in each.weights[row].numpy()]
            assert len(alone) == len(together)
            for record, weights in zip(alone, together, strict=True):
                time, sources = record.weights.shape
                np.testing.assert_allclose(weights[:time, :sources], record.weights, atol=1e-5)
                assert not weights[time:].any(), "past the length"
            seen.append(example)
    assert sorted(seen) == list(range(24))


def test_weights_depend_on_the_true_prefix_only(translation_run):
    """Teacher forcing: rows of two pairs with one source agree up to where their targets part."""
    run = translation_run()
    source = torch.tensor([[4, 5, 6, 2]])
    first, second = (run.model.explain(source, torch.tensor([target])) for target in ([1, 5, 6, 7], [1, 5, 7, 7]))
    for one, other in zip(first.decoder, second.decoder, strict=True):
        torch.testing.assert_close(one.weights[:, :, :2], other.weights[:, :, :2])
        if one.layer:
            assert not torch.allclose(one.weights[:, :, 2], other.weights[:, :, 2], atol=1e-3)


def test_the_records_of_pairs_are_in_one_file(translation_run):
    run = translation_run()
    path = analyze_run(run, "test", [2, 5])
    examples = read_recording(path).examples
    assert [(each.example, len(each.records)) for each in examples] == [(2, 3 * 2 * 2 + 2), (5, 3 * 2 * 2 + 2)]
    places = [(each.side, each.sublayer, each.layer, each.head) for each in examples[1].records]
    cross = examples[1].records[places.index(("decoder", "cross", 1, 0))]
    assert (cross.tokens, cross.sources) == (examples[1].tokens, examples[1].source)
    assert cross.sources[-1] == "<eos>"
    np.testing.assert_allclose(cross.weights.sum(1), 1, atol=1e-4)
    assert ("encoder", "attention", 0, 1) in places


@pytest.mark.parametrize("model", MODELS)
def test_receptive_fields_of_pairs_are_recorded(translation_run, model):
    run = translation_run(**MODELS[model])
    run.model.train()
    records = receptive_field_records(run, example_batch(run, "test", 3), 1)
    assert run.model.training
    assert len(records) == (0 if model == "stacks" else 2)
    source, target = (
        text.split() for text in run.prepared.texts("test", "source")[3:4] + run.prepared.texts("test", "target")[3:4]
    )
    for record, inputs in zip(records, (("<bos>", *target), (*source, "<eos>")), strict=bool(records)):
        assert (record.side, record.layer, record.mechanism) == ("decoder", 1, "receptive_field")
        assert record.tokens == ("<bos>", *target)
        assert record.sources == inputs
        assert record.weights.shape == (len(record.tokens), len(inputs))
        assert ((record.weights >= 0) & (record.weights <= 1)).all()
    if records:
        assert (np.diag(records[0].weights) == 1).all()
        assert (np.triu(records[0].weights, 1) == 0).all()


def test_missing_and_too_long_examples_are_refused(translation_run, monkeypatch):
    run = translation_run()
    assert len(default_examples(run, "test", 99)) == 24
    with pytest.raises(UsageError, match="no example 24; expected 0 to 23"):
        analyze_run(run, "test", [24])
    monkeypatch.setattr(searched_text, "MAX_TOKENS", 2)
    with pytest.raises(UsageError, match="at most 2"):
        pair_records(run, "test", 0)
    with pytest.raises(DataError, match="no split"):
        list(explain_all_pairs(run, "elsewhere"))


def test_default_examples_are_not_too_long(tmp_path):
    lines = {"de": ["ein " * 450, "a b", "c d " * 20], "en": ["one", "two " * 399, "three " * 10]}
    files = [tmp_path / f"text.{side}" for side in lines]
    for file, its in zip(files, lines.values(), strict=True):
        file.write_text("".join(line.strip() + "\n" for line in its))
    prepare_parallel(tmp_path / "data", {"train": files, "valid": files}, tokenizer=TokenizerSettings("word"))
    model, training = {"kind": "encoder_decoder", "d_model": 8}, {"batches": {"kind": "pairs", "max_tokens": 100}}
    tree = {"task": "translation", "data": str(tmp_path / "data"), "model": model, "training": training}
    settings, prepared = resolve_settings(tree), open_prepared(tmp_path / "data")
    run = TrainedRun(tmp_path, settings, prepared, build_model_for(settings.model, prepared).eval(), 0)
    assert default_examples(run, "valid", 9) == [2, 1]
    assert analyze_run(run, "valid", default_examples(run, "valid", 9))


def test_a_translation_cut_at_the_last_position_is_explained(translation_run):
    run = translation_run(positions={"kind": "learned", "max_positions": 14})
    with torch.no_grad():
        for weights in run.model.parameters():
            weights.mul_(3)  # draws that do not end
    text = run.prepared.sides.source.decode(run.prepared.pairs("test")[0][0])
    evaluation = run.settings.evaluation.changed({"search": "you-2020"})
    searching = replace(run, settings=run.settings.model_copy(update={"evaluation": evaluation}))
    batch, search = searched_text.searched_pair(searching, text, 1)
    assert not search.finished[search.best]
    assert search.steps[search.best] == 14
    for records in (run.explain([text])[0], layer_records(PairExplainer(run), batch)):
        assert len(records[-1].tokens) == 14


def test_an_example_beyond_the_learned_positions_is_refused(translation_run):
    run = translation_run(positions={"kind": "learned", "max_positions": 8})
    lengths = [max(map(len, pair)) + 1 for pair in run.prepared.pairs("test")]
    for example, length in enumerate(lengths[:6]):
        if length <= 8:
            recording.record(run, examples=[example], depths=0)
        else:
            message = f"^example {example} of test has {length} tokens; the model has 8 learned positions"
            with pytest.raises(UsageError, match=message):
                recording.record(run, examples=[example], depths=0)
    assert min(lengths[:6]) <= 8 < max(lengths[:6])


def test_a_text_that_is_too_long_is_not_translated(run_dir, monkeypatch):
    monkeypatch.setattr(searched_text, "make_translator", None)
    with pytest.raises(UsageError, match="text 1 has 1025 tokens; expected at most 1024"):
        recording.record(load(run_dir("translation")), ["eins " * 1024])
