"""Records hold what explanations say, with the symbol of every row and column."""

from dataclasses import replace

import numpy as np
import torch

from structattn.attention.protocols import Explanation
from structattn.loading.records import BOTTOM, records_of

TOKENS = ("<bos>", "0", "#")


def nondeterministic():
    generator = torch.Generator().manual_seed(4)
    return Explanation(
        mechanism="nondeterministic",
        weights=torch.rand(1, 1, 3, 4, generator=generator).double(),
        first_source=1,
        details={
            "actions": torch.rand(1, 3, 3, generator=generator).double(),
            "best_run": torch.tensor([[[0, 1, 2], [1, 0, 1], [2, 0, 0]]]),
        },
    )


def softmax(heads):
    return Explanation("softmax", torch.rand(1, heads, 3, 3), 0, {})


def test_a_stack_has_one_record_including_its_bottom():
    explanation = nondeterministic()
    (record,) = records_of(replace(explanation, layer=2), TOKENS)
    assert (record.tokens, record.sources) == (TOKENS, (BOTTOM, *TOKENS))
    assert (record.layer, record.sublayer, record.head) == (2, "attention", None)
    np.testing.assert_array_equal(record.weights, explanation.weights[0, 0])
    np.testing.assert_array_equal(record.actions, explanation.details["actions"][0])
    np.testing.assert_array_equal(record.best_run, explanation.details["best_run"][0])


def test_each_head_has_a_record():
    explanation = softmax(heads=2)
    records = records_of(explanation, TOKENS)
    assert [(record.head, record.sources, record.actions) for record in records] == [
        (0, TOKENS, None),
        (1, TOKENS, None),
    ]
    for record, weights in zip(records, explanation.weights[0], strict=True):
        np.testing.assert_array_equal(record.weights, weights)


def test_a_single_head_needs_no_number():
    (record,) = records_of(softmax(heads=1), TOKENS)
    assert record.head is None
