"""The choice of implementation: a pure function of the device, of what is installed, and of what the operator has."""

import pytest
import torch

from structattn.operators.common import gpu
from structattn.operators.common.implementation import chosen_implementation
from structattn.support.errors import ImplementationUnavailableError

CUDA = torch.device("cuda")


@pytest.fixture
def triton_is_there(monkeypatch):
    monkeypatch.setattr(gpu, "_triton_missing", lambda: False)


def test_auto_takes_the_gpu_kernel_for_cuda_tensors(triton_is_there):
    assert chosen_implementation("stack", "auto", CUDA, gpu_kernel=True) == "gpu"
    assert chosen_implementation("stack", "gpu", CUDA, gpu_kernel=True) == "gpu"
    assert chosen_implementation("stack", "reference", CUDA, gpu_kernel=True) == "reference"


@pytest.mark.parametrize(("device", "gpu_kernel"), [("cuda", False), ("mps", True)])
def test_auto_takes_the_definition_where_no_kernel_can_run(triton_is_there, device, gpu_kernel):
    assert chosen_implementation("stack", "auto", torch.device(device), gpu_kernel=gpu_kernel) == "reference"


def test_without_triton_auto_takes_the_definition_and_the_choice_says_why(monkeypatch):
    monkeypatch.setattr(gpu, "_triton_missing", lambda: True)
    assert chosen_implementation("stack", "auto", CUDA, gpu_kernel=True) == "reference"
    with pytest.raises(ImplementationUnavailableError, match=r"stack: .*'gpu' cannot run: Triton is not installed"):
        chosen_implementation("stack", "gpu", CUDA, gpu_kernel=True)


def test_a_choice_that_cannot_run_says_why(triton_is_there, monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(ImplementationUnavailableError, match="'cpu' cannot run: the tensors are on cuda"):
        chosen_implementation("stack", "cpu", CUDA)
    with pytest.raises(ImplementationUnavailableError, match="the operator has no GPU kernel"):
        chosen_implementation("stack", "gpu", CUDA)
    with pytest.raises(ImplementationUnavailableError, match="'gpu' cannot run: the tensors are on cpu"):
        chosen_implementation("stack", "gpu", torch.device("cpu"), gpu_kernel=True)
    with pytest.raises(ValueError, match="implementation='tpu'"):
        chosen_implementation("stack", "tpu", CUDA)


def test_interpreted_kernels_take_tensors_on_a_cpu(triton_is_there, monkeypatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    cpu = torch.device("cpu")
    assert chosen_implementation("stack", "gpu", cpu, gpu_kernel=True) == "gpu"
    assert chosen_implementation("stack", "auto", cpu, gpu_kernel=True) != "gpu"
