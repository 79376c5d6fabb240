"""Who says in which words that memory ran out."""

import pytest
import torch

from structattn.support.memory import memory_ran_out


def test_torch_says_so_in_an_error_of_another_kind():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert memory_ran_out(caught.value)
    assert memory_ran_out(MemoryError())
    assert memory_ran_out(torch.OutOfMemoryError("1 GB"))
    assert not memory_ran_out(RuntimeError("shapes do not fit"))
    assert not memory_ran_out(ValueError("out of memory"))
