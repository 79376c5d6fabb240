"""Every operator of the catalogue under every transform: the result is correct, or refused with a sentence."""

import runpy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from catalogue import CATALOGUE
from transforms import TRANSFORMS, Case, floats, outcome

from structattn import operators
from structattn.support.errors import ImplementationUnavailableError

ROOT = Path(__file__).resolve().parents[2]
CASES = [
    (operator, name, transform)
    for operator in CATALOGUE
    for name, sample in operator.samples.items()
    for transform in TRANSFORMS
    if transform.fits(sample)
]
ERRORS = [(operator.name, *error) for operator in CATALOGUE for error in operator.errors]
WITH_KERNELS = [each for each in CATALOGUE if each.has_implementations and each.name != "delta_product"]
# The quick suite: all transforms of three operators with different rules, and a few transforms of the others.
QUICK_OPERATORS = {"superposition_stack", "softmax_attention", "gaussian_attention"}
QUICK_TRANSFORMS = {"double backward", "func.grad", "jvp", "vmap", "vmap(grad)", "vmap, lengths"}
WITHOUT_TENSORS = {"tree_splits", "gaussian_weights", "nondeterministic_stack_initial_state", "stack_rnn_initial_state"}


def is_quick(operator, sample, transform):
    first = sample == next(iter(operator.samples)) or transform.needs_lengths
    small = transform.name not in {"jacrev", "hessian", "fork"} or operator.name == "superposition_stack"
    chosen = operator.name in QUICK_OPERATORS or transform.name in QUICK_TRANSFORMS
    return first and small and chosen and not transform.slow


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated:DeprecationWarning")  # torch's own
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize(
    ("operator", "sample", "transform"),
    [
        pytest.param(
            *case, marks=[] if is_quick(*case) else pytest.mark.slow, id=f"{case[0].name}-{case[1]}-{case[2].name}"
        )
        for case in CASES
    ],
)
def test_is_correct_or_refused(operator, sample, transform):
    found = outcome(operator, operator.samples[sample], transform)
    if not transform.refused_by(operator):
        assert found == "correct"
    elif sample == next(iter(operator.samples)):
        assert found == "refused"  # other samples may be too simple for anything to be refused


class Own(torch.Tensor):
    """A class of tensors of another library."""


@pytest.mark.parametrize("operator", CATALOGUE, ids=lambda each: each.name)
def test_tensors_of_another_class_are_taken(operator):
    case = Case.of(operator, next(iter(operator.samples.values())))
    plain, own = ([each.detach().clone() for each in case.tensors] for _ in range(2))
    own = [each.as_subclass(Own) if each.is_floating_point() else each for each in own]
    found = []
    for tensors in (plain, own):
        variables = [each.requires_grad_() for each in tensors if each.is_floating_point()]
        outputs = [each for each in floats(case.fast)(*tensors) if each.requires_grad]
        total = sum(output.sum() for output in outputs)
        found.append([*outputs, *(torch.autograd.grad(total, variables, allow_unused=True) if outputs else ())])
    for result, expected in zip(found[1], found[0], strict=True):
        assert (result is None) == (expected is None)
        if result is not None:
            torch.testing.assert_close(result.as_subclass(torch.Tensor), expected, rtol=0, atol=0)


@pytest.mark.parametrize(
    "operator", [each for each in CATALOGUE if each.has_implementations], ids=lambda each: each.name
)
def test_autocast_does_not_reach_definitions(operator):
    case = Case.of(operator, next(iter(operator.samples.values())))
    tensors = [each.float() if each.is_floating_point() else each for each in case.tensors]
    with torch.autocast("cpu", torch.bfloat16):
        found = case.definition(*tensors)
    for result, expected in zip(found, case.definition(*tensors), strict=True):
        torch.testing.assert_close(result, expected, rtol=0, atol=0, equal_nan=True)


def test_there_are_enough_cases():
    assert len(CASES) >= 1500


def test_the_page_is_up_to_date():
    tool = runpy.run_path(str(ROOT / "tools" / "write_derivatives_page.py"))
    expected = tool["page"](tool["declared"])
    assert tool["PAGE"].read_text(encoding="utf-8") == expected, "run python tools/write_derivatives_page.py"


def test_every_operator_is_in_the_catalogue():
    public = {name for name in operators.__all__ if name.islower()}
    listed = {operator.name.partition(",")[0] for operator in CATALOGUE}
    assert listed == public - WITHOUT_TENSORS


@pytest.mark.parametrize(("name", "call", "error", "message"), ERRORS, ids=[f"{e[0]}-{e[3][:30]}" for e in ERRORS])
def test_errors(name, call, error, message):
    with pytest.raises(error) as raised:
        call()
    assert message in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("operator", WITH_KERNELS, ids=lambda each: each.name)
def test_implementations_that_are_unknown_or_cannot_run_are_refused(operator):
    sample = next(iter(operator.samples.values()))
    with pytest.raises(ValueError, match="implementation='fast'; expected 'auto', 'reference', 'cpu' or 'gpu'"):
        operator.call(*sample.tensors, **sample.keywords, implementation="fast")
    with pytest.raises(ImplementationUnavailableError, match="implementation 'gpu' cannot run: "):
        operator.call(*sample.tensors, **sample.keywords, implementation="gpu")


def test_a_dropped_derivative_is_noticed():
    """The catalogue would notice an operator whose derivatives or tangents are dropped."""
    stack = CATALOGUE[0]
    dropping = replace(
        stack,
        call=lambda actions, values: operators.superposition_stack(actions.detach(), values),
        definition=lambda actions, values: operators.superposition_stack(actions, values, implementation="reference"),
    )
    names = {"backward", "func.grad", "jvp", "vmap(grad)", "jvp(vmap)", "hessian", "dual_level"}
    for transform in TRANSFORMS:
        if transform.name in names:
            with pytest.raises(AssertionError):
                outcome(dropping, stack.samples["ordinary"], transform)


class TestDropout:
    """The weights that are dropped depend on the position in the batch, which a folded batch would change."""

    def loss(self, query, key, value):
        return operators.softmax_attention(query, key, value, dropout=0.5).square().sum()

    def arguments(self, *batch):
        generator = torch.Generator().manual_seed(0)
        return [torch.randn(*batch, 2, 1, 4, 3, generator=generator) for _ in range(3)]

    def test_jacobian_drops_what_the_forward_pass_dropped(self):
        query, key, value = self.arguments()

        def attend(value):
            torch.manual_seed(1)
            return operators.softmax_attention(query, key, value, dropout=0.5)

        jacobian = torch.func.jacrev(attend)(value)
        torch.testing.assert_close(torch.tensordot(jacobian, value, 4), attend(value))  # linear in the values

    def test_same_randomness_for_every_sample(self):
        x = self.arguments(3)
        torch.manual_seed(1)
        found = torch.vmap(torch.func.grad(self.loss), randomness="same")(*x)
        for n in range(3):
            torch.manual_seed(1)
            torch.testing.assert_close(found[n], torch.func.grad(self.loss)(*(tensor[n] for tensor in x)))

    def test_forward_mode_is_refused(self):
        x = tuple(self.arguments())
        with pytest.raises(
            NotImplementedError, match=r"forward-mode derivatives \(jvp\) with dropout are not supported"
        ):
            torch.func.jvp(self.loss, x, x)
