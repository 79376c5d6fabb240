"""Records hold what explanations say, with the symbol of every row and column."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from structattn.attention.explanation import Explanation
from structattn.inference.records import records_of, write_record

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


def test_a_stack_has_one_record_including_its_bottom(tmp_path):
    explanation = nondeterministic()
    (record,) = records_of(replace(explanation, layer=2), TOKENS)
    path = write_record(tmp_path, record, "test", 7)
    assert path.name == "test-7-layer-3.json"
    content = json.loads(path.read_text())
    assert content["tokens"] == list(TOKENS)
    assert content["sources"] == ["(bottom)", *TOKENS]
    assert content["action_names"] == ["push", "replace", "pop"]
    assert content["best_run"] == [[0, 1, 2], [1, 0, 1], [2, 0, 0]]
    np.testing.assert_allclose(content["weights"], explanation.weights[0, 0], atol=1e-6)
    np.testing.assert_allclose(content["actions"], explanation.details["actions"][0], atol=1e-6)
    assert (content["format_version"], content["split"], content["example"], content["layer"]) == (1, "test", 7, 2)


def test_each_head_has_a_record(tmp_path):
    records = records_of(softmax(heads=2), TOKENS)
    assert [write_record(tmp_path, record, "valid", 0).name for record in records] == [
        "valid-0-layer-1-head-1.json",
        "valid-0-layer-1-head-2.json",
    ]
    content = json.loads((tmp_path / "valid-0-layer-1-head-2.json").read_text())
    assert content["head"] == 1
    assert content["sources"] == list(TOKENS)
    assert "actions" not in content


def test_a_single_head_needs_no_number():
    (record,) = records_of(softmax(heads=1), TOKENS)
    assert record.head is None


def test_an_added_stack_is_distinguished_from_the_attention_of_its_layer(tmp_path):
    (record,) = records_of(replace(nondeterministic(), sublayer="stack"), TOKENS)
    path = write_record(tmp_path, record, "test", 0)
    assert path.name == "test-0-layer-1-stack.json"
    assert json.loads(path.read_text())["sublayer"] == "stack"


def test_non_finite_numbers_are_rejected(tmp_path):
    explanation = Explanation("softmax", torch.full((1, 1, 3, 3), torch.nan), 0, {})
    (record,) = records_of(explanation, TOKENS)
    with pytest.raises(ValueError, match="JSON"):
        write_record(tmp_path, record, "test", 0)
    assert list(tmp_path.iterdir()) == []
