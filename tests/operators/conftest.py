"""Where the GPU kernels run in tests, and the hostile numbers that the operators are given."""

import dataclasses
import importlib
from types import SimpleNamespace

import pytest
import torch

from structattn.operators.common.gpu import interpreted
from structattn.operators.superposition_stack.gpu import chunks


@pytest.fixture
def cuda():
    """A real device."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    if interpreted():
        pytest.skip("TRITON_INTERPRET is set: kernels would not run on the device")
    return torch.device("cuda")


@pytest.fixture
def assert_same_by_threads():
    """assert_same_by_threads(work): the tensors that work() returns are the same with each number of threads."""
    before = torch.get_num_threads()

    def check(work, numbers=(1, 3)):
        results = []
        for threads in numbers:
            torch.set_num_threads(threads)
            results.append(work())
        for other in results[1:]:
            assert all(torch.equal(one, more) for one, more in zip(results[0], other, strict=True))

    yield check
    torch.set_num_threads(before)


@pytest.fixture
def unwritten_memory_is_nan():
    """What a kernel reads before anybody has written it shows."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


def remembered(function):
    """Call a function of Triton's types, whose names tell them apart, once for each of them."""
    known = {}

    def call(*types):
        key = tuple(getattr(each, "name", None) for each in types)
        if key not in known:
            known[key] = function(*types)
        return known[key]

    return call


def initialized_once(initialize):
    """Find out once for each type what follows from the type of a tensor: all but its numbers."""
    known = {}

    def initialize_tensor(tensor, handle, of_type):
        if of_type.name not in known:
            initialize(tensor, handle, of_type)
            known[of_type.name] = {name: value for name, value in vars(tensor).items() if name != "handle"}
        vars(tensor).update(known[of_type.name], handle=handle)

    return initialize_tensor


@pytest.fixture(scope="session")
def _fast_interpreter():
    """The interpreter without what takes more than half of its time and changes no result.

    It checks each sum and product of indices for overflow, but sizes of 2^31 are refused before a kernel is started.
    It replaces the functions of Triton's language at every call, even of one kernel's function by another. It makes
    the same types again for every number that it computes.
    """
    interpreter = importlib.import_module("triton.runtime.interpreter")
    language, builder = interpreter.tl, interpreter.interpreter_builder
    scope = interpreter._patch_lang(SimpleNamespace(__globals__={"language": language, "core": language.core}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(builder, "options", dataclasses.replace(builder.options, sanitize_overflow=False))
        patch.setattr(interpreter, "_patch_lang", lambda function: interpreter._LangPatchScope())
        patch.setattr(interpreter, "_get_np_dtype", remembered(interpreter._get_np_dtype))
        patch.setattr(language.tensor, "__init__", initialized_once(language.tensor.__init__))
        for name in ("to_ir", "with_element_ty"):
            patch.setattr(language.block_type, name, remembered(getattr(language.block_type, name)))
        yield
    scope.restore()


@pytest.fixture(params=["interpreted", pytest.param("cuda", marks=pytest.mark.gpu)])
def gpu(request):
    """A real device, or a CPU that stands in for one; Triton must know from its import on that it is to interpret."""
    if request.param == "cuda":
        return request.getfixturevalue("cuda")
    if not interpreted():
        pytest.skip("needs TRITON_INTERPRET=1; common/test_gpu_kernels.py runs this in a process of its own")
    request.getfixturevalue("unwritten_memory_is_nan")
    request.getfixturevalue("_fast_interpreter")
    return torch.device("cpu")


@pytest.fixture
def short_chunks(monkeypatch):
    """Chunks of 4 steps where kernels are interpreted, which is slow; a device multiplies matrices of 16 rows."""
    if interpreted():
        monkeypatch.setattr(chunks, "_CHUNK", 4)


@pytest.fixture(scope="session")
def hostile():
    """hostile(generator, shape, forbidden) are numbers of one of six kinds, and some -inf."""

    def draw(generator, shape, forbidden=0.0):
        """All 0, denormal, ±88, ±1e4, up to 1e4 of alternating sign, or ordinary; -inf with a given probability."""
        kind = int(torch.randint(6, (), generator=generator))
        normal = torch.randn(shape, generator=generator, dtype=torch.float64)
        sign = torch.where(torch.rand(shape, generator=generator) < 0.5, 1.0, -1.0).double()
        x = [torch.zeros_like(normal), 5e-324 * sign, 88 * sign, 1e4 * sign, 1e4 * sign * normal, normal][kind]
        return x.masked_fill(torch.rand(shape, generator=generator) < forbidden, -torch.inf)

    return draw


@pytest.fixture(scope="session")
def hostile_actions(hostile):
    """hostile_actions(generator, shape): probabilities, many 0, 1 or denormal; or bare numbers of either sign."""

    def draw(generator, shape):
        actions = hostile(generator, shape)
        if torch.rand((), generator=generator) < 0.7:
            return torch.softmax(actions, -1)
        return actions / actions.abs().amax().clamp(min=1)

    return draw
