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


def test_what_a_mechanism_has_besides_is_in_the_details():
    """Of each head and source, as the weights: those of the head. Others are as given; padding is left out."""
    probabilities, gate = torch.rand(1, 5, 2, 5), torch.rand(1, 5)
    details = {"actions": torch.rand(1, 5, 3), "probabilities": probabilities, "gate": gate, "whole": torch.rand(1)}
    records = records_of(Explanation("hard", torch.rand(1, 2, 5, 5), details=details), TOKENS)
    for head, record in enumerate(records):
        assert list(record.details) == ["probabilities", "gate"]
        np.testing.assert_array_equal(record.details["probabilities"], probabilities[0, :3, head, :3])
        np.testing.assert_array_equal(record.details["gate"], gate[0, :3])
    assert not records_of(nondeterministic(), TOKENS)[0].details


def test_actions_have_names():
    (stack,), (plain,) = records_of(nondeterministic(), TOKENS), records_of(softmax(heads=1), TOKENS)
    assert stack.action_names == ("push", "replace", "pop")
    assert plain.action_names == ()


def test_the_representation_is_one_line_with_shapes_in_place_of_numbers():
    (record,) = records_of(replace(nondeterministic(), layer=2, sublayer="stack"), TOKENS)
    assert repr(record) == (
        "Record('nondeterministic', stack of layer 2: weights (3, 4), actions (3, 3), best_run (3, 3))"
    )
    gate = {"gate": torch.rand(1, 3)}
    second = records_of(replace(softmax(heads=2), details=gate), TOKENS, side="decoder")[1]
    assert repr(second) == "Record('softmax', attention of layer 0 of the decoder, head 1: weights (3, 3), gate (3,))"
