"""GPT-2 and RoBERTa, without a stack and with each, keep the promises of all models."""

import pytest
from tests.contracts.model_cases import HUGGINGFACE_CASES
from tests.contracts.model_promises import PROMISES, promises_of

# transformers reads no empty batches
CHECKED = [case for case in promises_of(HUGGINGFACE_CASES) if case.values[1] != "empty"]


@pytest.mark.parametrize(("name", "promise"), CHECKED)
def test_promises(transformers, name, promise):
    PROMISES[promise](HUGGINGFACE_CASES[name])
