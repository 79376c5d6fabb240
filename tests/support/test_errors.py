"""Who says in which words that memory ran out."""

import pytest
import torch

from structattn.support.errors import is_out_of_memory


def test_torch_says_so_in_an_error_of_another_kind():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("1 GB"))
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))
    assert not is_out_of_memory(ValueError("out of memory"))
