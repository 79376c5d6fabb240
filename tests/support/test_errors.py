"""Detection of out-of-memory errors."""

import pytest
import torch

from structattn.support.errors import is_out_of_memory


def test_out_of_memory_errors_of_python_and_torch():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("1 GB"))
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))
    assert not is_out_of_memory(ValueError("out of memory"))
