"""Batches by length, maximum target lengths, padding, and stable top-k."""

import math

import pytest
import torch

from structattn.decoding import batches_by_length, map_in_batches, max_target_lengths, pad_sequences
from structattn.decoding.continuations import stable_topk, with_log_normalizer


def test_batches_hold_all_items_and_respect_the_maximum_size():
    lengths = torch.randint(0, 30, (200,), generator=torch.Generator().manual_seed(0)).tolist()
    batches = batches_by_length(lengths, 64)
    assert sorted(index for batch in batches for index in batch) == list(range(200))
    assert all(len(batch) * max(lengths[index] for index in batch) <= 64 for batch in batches)
    assert [lengths[index] for batch in batches for index in batch] == sorted(lengths, reverse=True)
    assert len(batches) < 1.4 * sum(lengths) / 64


def test_an_item_longer_than_the_maximum_is_a_batch_alone():
    assert batches_by_length([9, 3, 9, 2], 6) == [[0], [2], [1, 3]]
    assert batches_by_length([], 6) == []
    assert batches_by_length([0, 0, 0], 2) == [[0, 1], [2]]
    with pytest.raises(ValueError, match="max_tokens=0"):
        batches_by_length([1], 0)


def test_results_are_in_the_order_of_the_items():
    items, asked = ["ccc", "a", "", "bb", "dddd"], []

    def decode(batch):
        asked.append(list(batch))
        return [item.upper() for item in batch]

    assert map_in_batches(items, [len(item) for item in items], 4, decode) == ["CCC", "A", "", "BB", "DDDD"]
    assert asked == [["dddd"], ["ccc"], ["bb", "a"], [""]]
    with pytest.raises(ValueError, match="2 lengths for 1 items"):
        map_in_batches(["a"], [1, 1], 4, decode)
    with pytest.raises(ValueError, match=r"zip\(\)"):
        map_in_batches(["a"], [1], 4, lambda batch: [])


def test_max_target_lengths():
    lengths = torch.tensor([0, 3, 10])
    assert max_target_lengths(lengths).tolist() == [50, 53, 60]
    assert max_target_lengths(lengths, ratio=1.5, extra=1, maximum=9).tolist() == [1, 5, 9]
    assert max_target_lengths(lengths, ratio=0.0, extra=256).tolist() == [256] * 3
    hundred = torch.tensor([100, 1_000_000])
    assert max_target_lengths(hundred, ratio=1.15, extra=0).tolist() == [115, 1_150_000]
    assert max_target_lengths(hundred, ratio=1 / 3, extra=0).tolist() == [33, 333_333]


def test_pad_sequences():
    ids, lengths = pad_sequences([(3, 4), (), (5,)])
    assert ids.tolist() == [[3, 4], [0, 0], [5, 0]]
    assert lengths.tolist() == [2, 0, 1]
    assert pad_sequences([])[0].shape == (0, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_stable_topk_is_the_beginning_of_a_stable_sort(dtype):
    generator = torch.Generator().manual_seed(0)
    for width in (1, 2, 7, 63, 1000):
        for kinds in (2, 5, 10**6):
            scores = torch.randint(kinds, (9, width), generator=generator).to(dtype)
            expected = scores.sort(dim=1, descending=True, stable=True)
            for count in {1, min(4, width), width}:
                values, indices = stable_topk(scores, count)
                assert torch.equal(values, expected.values[:, :count])
                assert torch.equal(indices, expected.indices[:, :count])


def test_stable_topk_with_few_finite_scores():
    values, indices = stable_topk(torch.tensor([[-math.inf, 2.0, -math.inf, 3.0, -math.inf]]), 4)
    assert values.tolist() == [[3.0, 2.0, -math.inf, -math.inf]]
    assert indices[0, :2].tolist() == [3, 1]


def test_log_probabilities_stay_minus_infinity_where_all_classes_are_forbidden():
    logits = torch.tensor([[-math.inf, -math.inf], [0.0, -math.inf]])
    same, log_normalizer = with_log_normalizer(logits)
    assert (same - log_normalizer[:, None]).tolist() == [[-math.inf, -math.inf], [0.0, -math.inf]]
