"""Detection of out-of-memory errors."""

import errno
import resource

import pytest
import torch

from structattn.support.environment import is_out_of_memory, out_of_memory_message


def test_out_of_memory_errors_of_python_and_torch():
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**60)
    assert is_out_of_memory(caught.value)
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("1 GB"))
    assert not is_out_of_memory(RuntimeError("shapes do not fit"))
    assert not is_out_of_memory(ValueError("out of memory"))


class PanicException(BaseException):
    pass


@pytest.mark.parametrize(
    "error",
    [
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
        OSError("libgomp.so: failed to map segment from shared object"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        PanicException("called `Result::unwrap()` on an `Err` value: PyErr { type: <class 'MemoryError'> }"),
    ],
)
def test_out_of_memory_errors_of_libraries_and_the_operating_system(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error", [ImportError("No module named x"), OSError(errno.ENOSPC, "full"), PanicException("index out of bounds")]
)
def test_other_errors_of_libraries_and_the_operating_system(error):
    assert not is_out_of_memory(error)


def test_system_errors_mean_a_lack_of_memory_only_under_a_limit(monkeypatch):
    error = SystemError("error return without exception set")
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY,) * 2)
    assert not is_out_of_memory(error)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1 << 31, 1 << 31))
    assert is_out_of_memory(error)
    assert "raise the limit on address space (2048 MiB; ulimit -v)" in out_of_memory_message(error)
