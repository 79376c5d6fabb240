"""Every public layer takes ``device=`` and ``dtype=``, as torch's layers do."""

import pytest
import torch
from torch import nn

from structattn import attention
from structattn.attention import positions

D, H = 8, 2
LAYERS = {
    attention.CrossGaussianAttention: lambda **k: attention.CrossGaussianAttention(D, [0.0], num_learned_heads=1, **k),
    attention.CrossHardAttention: lambda **k: attention.CrossHardAttention(D, H, **k),
    attention.CrossSoftmaxAttention: lambda **k: attention.CrossSoftmaxAttention(D, H, **k),
    attention.CrossTwoStreamAttention: lambda **k: attention.CrossTwoStreamAttention(D, H, **k),
    attention.DeltaProductAttention: lambda **k: attention.DeltaProductAttention(D, H, **k),
    attention.GaussianAttention: lambda **k: attention.GaussianAttention(D, [-1.0], num_learned_heads=1, **k),
    attention.HardAttention: lambda **k: attention.HardAttention(D, H, **k),
    attention.NondeterministicStackAttention: lambda **k: attention.NondeterministicStackAttention(D, 2, 3, 4, **k),
    attention.SoftmaxAttention: lambda **k: attention.SoftmaxAttention(D, H, **k),
    attention.StackPointerAttention: lambda **k: attention.StackPointerAttention(D, bottom="learned", **k),
    attention.StackTransAttention: lambda **k: attention.StackTransAttention(D, 8, **k),
    attention.SuperpositionStackAttention: lambda **k: attention.SuperpositionStackAttention(D, 4, **k),
    attention.TwoStreamAttention: lambda **k: attention.TwoStreamAttention(D, H, **k),
    positions.AlibiPositions: lambda **k: positions.AlibiPositions(H, **k),
    positions.LearnedPositions: lambda **k: positions.LearnedPositions(D, 5, **k),
    positions.RelativePositions: lambda **k: positions.RelativePositions(D, H, **k),
    positions.RotaryPositions: lambda **k: positions.RotaryPositions(D, **k),
    positions.SinusoidalPositions: lambda **k: positions.SinusoidalPositions(D, **k),
}
IN_FLOAT64 = positions.AlibiPositions, positions.RotaryPositions  # whatever the dtype
each_layer = pytest.mark.parametrize("make", LAYERS.values(), ids=[kind.__name__ for kind in LAYERS])


def tensors(module):
    return dict([*module.named_parameters(), *module.named_buffers()])


def made(make, **arguments):
    torch.manual_seed(3)
    return make(**arguments)


def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in found.items():
        assert tensor.dtype == expected[name].dtype
        assert torch.equal(tensor, expected[name])


def test_no_public_layer_is_left_out():
    public = [getattr(package, name) for package in (attention, positions) for name in package.__all__]
    kinds = {kind for kind in public if isinstance(kind, type) and issubclass(kind, nn.Module)}
    assert kinds - {attention.SelfAttention} == LAYERS.keys()  # which makes no tensors


@each_layer
def test_on_the_meta_device(make):
    found = tensors(make(device="meta"))
    assert found
    assert all(tensor.is_meta for tensor in found.values())


@each_layer
def test_a_device_alone_changes_no_number(make):
    assert_same(tensors(made(make, device="cpu")), tensors(made(make)))


@each_layer
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_dtype_is_as_good_as_torchs_default(make, dtype):
    """Random numbers are those that torch draws in this dtype: not those of float32, cast."""
    layer = made(make, dtype=dtype)
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        expected = made(make)
    finally:
        torch.set_default_dtype(before)
    assert_same(tensors(layer), tensors(expected))
    assert {tensor.dtype for tensor in tensors(layer).values()} == {
        torch.float64 if isinstance(layer, IN_FLOAT64) else dtype
    }


@each_layer
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_what_is_not_random_is_as_after_a_cast(make, dtype):
    assert_same(dict(made(make, dtype=dtype).named_buffers()), dict(made(make).to(dtype).named_buffers()))
