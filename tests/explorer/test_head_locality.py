"""Locality of heads: known offsets of hard-coded heads, and a recount in plain Python."""

import json

import numpy as np
import pytest
import torch

from structattn.explorer.head_locality import argmax_offsets, locality, write_locality
from structattn.explorer.searched_text import example_batch
from structattn.loading.records import layer_records
from structattn.tasks.translation.explain import PairExplainer

HARD_CODED = {
    "encoder": {"layers": "2xgaussian"},
    "decoder": {
        "layers": [{"attention": "gaussian", "kernel": "index", "offsets": [-1, -3]}],
        "cross_attention": "softmax",
    },
}


def test_the_first_maximum_counts_and_all_zero_weights_do_not():
    weights = torch.tensor([[0.1, 0.9, 0], [0.5, 0.5, 0], [0, 0, 0], [1, 0, 0]])[None, None]
    offsets, counted = argmax_offsets(weights, torch.tensor([3]))
    assert counted.tolist() == [[[True, True, False, False]]]
    assert offsets[counted].tolist() == [1, -1]


def by_hand(run, split):
    """Place -> layer -> head -> offsets of every pair, from the records."""
    found = {}
    for example in range(len(run.prepared.pairs(split))):
        for record in layer_records(PairExplainer(run), example_batch(run, split, example)):
            if record.actions is None:
                kind = "cross" if record.sublayer == "cross" else record.side
                offsets = [int(np.argmax(row)) - i for i, row in enumerate(record.weights) if row.max() > 0]
                found.setdefault((kind, record.layer, record.head or 0), []).append(offsets)
    return found


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    "model", [{}, HARD_CODED, {"decoder": {"layers": "1.superposition-3", "cross_attention": "2"}}]
)
@pytest.mark.parametrize("batch_tokens", [1, 70])
def test_locality_agrees_with_counting(translation_run, model, batch_tokens):
    run = translation_run(**model)
    found, expected = locality(run, "test", batch_tokens), by_hand(run, "test")
    assert {(head.kind, head.layer, head.head) for head in found.heads} == set(expected)
    for head in found.heads:
        offsets = [offset for pair in expected[head.kind, head.layer, head.head] for offset in pair]
        assert head.positions == len(offsets)
        assert head.mean == pytest.approx(np.mean(offsets))
        assert head.absolute == pytest.approx(np.mean(np.abs(offsets)))
    for kind, values in found.off_diagonality.items():
        heads = [pairs for key, pairs in expected.items() if key[0] == kind]
        for pair, value in enumerate(values):
            away = [np.mean([abs(offset) >= 2 for offset in head[pair]]) for head in heads if head[pair]]
            assert value == pytest.approx(np.mean(away) if away else 0)


def test_hard_coded_heads_have_their_offsets(translation_run):
    found = locality(translation_run(**HARD_CODED), "test")
    heads = {(head.kind, head.layer, head.head): head for head in found.heads}
    assert {head.mechanism for head in found.heads if head.kind != "cross"} == {"gaussian"}
    assert -1 < heads["encoder", 0, 0].mean < -0.5, "the first position has none to its left"
    assert heads["decoder", 0, 1].mean == -3
    assert heads["decoder", 0, 1].positions < heads["decoder", 0, 0].positions
    assert not found.off_diagonality["encoder"].any()
    assert set(found.off_diagonality["decoder"]) <= {0, 0.5}


def test_locality_is_written_to_the_run_folder(translation_run):
    run = translation_run()
    content = json.loads(write_locality(run, "test").read_text())
    assert (run.run_dir / "analyses/test-attention.json").exists()
    assert (content["kind"], content["split"], len(content["heads"])) == ("attention", "test", 12)
    assert [len(content["off_diagonality"][kind]) for kind in ("encoder", "decoder")] == [24, 24]
