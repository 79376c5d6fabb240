"""GPT-2 and RoBERTa, without a stack and with each, keep the promises of all models."""

import pytest
from tests.contracts.model_cases import HUGGINGFACE_CASES
from tests.contracts.model_promises import PROMISES, promises_of

PAIRS = [pair for pair in promises_of(HUGGINGFACE_CASES) if pair[1] != "empty"]  # transformers reads no empty batches


@pytest.mark.parametrize(("name", "promise"), PAIRS)
def test_promises(transformers, name, promise):
    PROMISES[promise](HUGGINGFACE_CASES[name])
