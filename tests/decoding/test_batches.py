"""Batches of many items, limits by source lengths, and the choice of the best."""

import math

import pytest
import torch

from structattn.decoding import batches_by_length, in_batches, length_limits, padded
from structattn.decoding.logits import log_normalizer, top


def test_batches_keep_to_their_size_and_lose_nothing():
    lengths = torch.randint(0, 30, (200,), generator=torch.Generator().manual_seed(0)).tolist()
    batches = batches_by_length(lengths, 64)
    assert sorted(index for batch in batches for index in batch) == list(range(200))
    assert all(len(batch) * max(lengths[index] for index in batch) <= 64 for batch in batches)
    assert [lengths[index] for batch in batches for index in batch] == sorted(lengths, reverse=True)
    assert len(batches) < 1.4 * sum(lengths) / 64


def test_an_item_that_is_too_long_is_alone():
    assert batches_by_length([9, 3, 9, 2], 6) == [[0], [2], [1, 3]]
    assert batches_by_length([], 6) == []
    assert batches_by_length([0, 0, 0], 2) == [[0, 1], [2]]
    with pytest.raises(ValueError, match="tokens=0"):
        batches_by_length([1], 0)


def test_results_come_in_the_order_of_the_items():
    items, asked = ["ccc", "a", "", "bb", "dddd"], []

    def decode(batch):
        asked.append(list(batch))
        return [item.upper() for item in batch]

    assert in_batches(items, [len(item) for item in items], 4, decode) == ["CCC", "A", "", "BB", "DDDD"]
    assert asked == [["dddd"], ["ccc"], ["bb", "a"], [""]]
    with pytest.raises(ValueError, match="2 lengths for 1 items"):
        in_batches(["a"], [1, 1], 4, decode)
    with pytest.raises(ValueError, match=r"zip\(\)"):
        in_batches(["a"], [1], 4, lambda batch: [])


def test_limits():
    lengths = torch.tensor([0, 3, 10])
    assert length_limits(lengths).tolist() == [50, 53, 60]
    assert length_limits(lengths, ratio=1.5, extra=1, most=9).tolist() == [1, 5, 9]
    assert length_limits(lengths, ratio=0.0, extra=256).tolist() == [256] * 3


def test_padded():
    ids, lengths = padded([(3, 4), (), (5,)])
    assert ids.tolist() == [[3, 4], [0, 0], [5, 0]]
    assert lengths.tolist() == [2, 0, 1]
    assert padded([])[0].shape == (0, 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_top_is_the_beginning_of_a_stable_sort(dtype):
    generator = torch.Generator().manual_seed(0)
    for width in (1, 2, 7, 63, 1000):
        for kinds in (2, 5, 10**6):
            scores = torch.randint(kinds, (9, width), generator=generator).to(dtype)
            expected = scores.sort(dim=1, descending=True, stable=True)
            for count in {1, min(4, width), width}:
                values, indices = top(scores, count)
                assert torch.equal(values, expected.values[:, :count])
                assert torch.equal(indices, expected.indices[:, :count])


def test_top_of_few_possible():
    values, indices = top(torch.tensor([[-math.inf, 2.0, -math.inf, 3.0, -math.inf]]), 4)
    assert values.tolist() == [[3.0, 2.0, -math.inf, -math.inf]]
    assert indices[0, :2].tolist() == [3, 1]


def test_all_forbidden_stays_forbidden():
    logits = torch.tensor([[-math.inf, -math.inf], [0.0, -math.inf]])
    assert (logits - log_normalizer(logits)[:, None]).tolist() == [[-math.inf, -math.inf], [0.0, -math.inf]]
