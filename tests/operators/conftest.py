"""Where the GPU kernels run in tests."""

import pytest
import torch

from structattn.operators.common.gpu import interpreted


@pytest.fixture
def cuda():
    """A real device."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if interpreted():
        pytest.skip("TRITON_INTERPRET is set: kernels would not run on the device")
    return torch.device("cuda")


@pytest.fixture
def unwritten_memory_is_nan():
    """What a kernel reads before anybody has written it shows."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture(params=["interpreted", pytest.param("cuda", marks=pytest.mark.gpu)])
def gpu(request):
    """A real device, or a CPU that stands in for one; Triton must know from its import on that it is to interpret."""
    if request.param == "cuda":
        return request.getfixturevalue("cuda")
    if not interpreted():
        pytest.skip("needs TRITON_INTERPRET=1; common/test_gpu_kernels.py runs this in a process of its own")
    request.getfixturevalue("unwritten_memory_is_nan")
    return torch.device("cpu")
