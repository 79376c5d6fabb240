"""Integers that address memory are checked in eager, compiled, exported and mapped functions, and in direct calls."""

import subprocess
import sys

import pytest
import torch

from structattn import operators
from structattn.models.layers import _drop_full_lengths
from structattn.operators.common.checks import checked_range
from structattn.operators.gaussian_attention.cpu import gaussian_attention_indexed
from structattn.operators.gaussian_attention.reference import Gaussians
from structattn.operators.nondeterministic_stack import (
    nondeterministic_stack_initial_state,
    nondeterministic_stack_step,
)
from structattn.operators.receptive_field import decoder_receptive_fields, receptive_field, receptive_field_size
from structattn.operators.softmax_attention.cpu import softmax_attention_indexed
from structattn.operators.stack_rnn import RecurrentStack, stack_rnn

B, T, S = 2, 5, 6
GENERATOR = torch.Generator().manual_seed(3)


def draw(*shape):
    return torch.randn(shape, generator=GENERATOR)


ACTIONS, STRENGTHS, VALUES, BOTTOM = draw(B, T, 3).softmax(-1), draw(B, T, 2).sigmoid(), draw(B, T, 4), draw(4)
LOGITS = draw(B, T, 2, 2, 2, 2), draw(B, T, 2, 2, 2, 2), draw(B, T, 2, 2, 2)
SEEN, FIELD = draw(B, T + 1, 4), draw(B, T, T)
QUERY, KEY, CHOICES = draw(B, 2, T, 3), draw(B, 2, S, 3), torch.zeros(B, 2, T, dtype=torch.int64)
STACK = RecurrentStack("superposition", 4)
NETWORK = draw(B, T, 3), draw(3, 7), draw(7, 3), draw(7), BOTTOM

WITH_KERNEL = {
    "superposition_stack": lambda n, **o: operators.superposition_stack(ACTIONS, VALUES, lengths=n, **o),
    "stack_pointer": lambda n, **o: operators.stack_pointer(ACTIONS, SEEN, lengths=n, **o),
    "stack_pointer_weights": lambda n, **o: operators.stack_pointer_weights(ACTIONS, lengths=n, **o),
    "stratified_stack": lambda n, **o: operators.stratified_stack(STRENGTHS, VALUES, lengths=n, **o),
    "nondeterministic_stack": lambda n, **o: operators.nondeterministic_stack(*LOGITS, VALUES, BOTTOM, lengths=n, **o),
    "nondeterministic_stack_weights": lambda n, **o: operators.nondeterministic_stack_weights(*LOGITS, lengths=n, **o),
    "nondeterministic_stack_best_run": lambda n, **o: operators.nondeterministic_stack_best_run(
        *LOGITS, lengths=n, **o
    ),
    "stack_rnn": lambda n, **o: stack_rnn(*NETWORK, cell="tanh", stack=STACK, lengths=n, **o),
    "softmax_attention": lambda n, **o: operators.softmax_attention(QUERY, QUERY, QUERY, lengths=n, **o),
    "gaussian_attention": lambda n, **o: operators.gaussian_attention(QUERY, [0.0, 1.0], lengths=n, **o),
}
CASES = {f"{name}-cpu": lambda n, f=f: f(n, implementation="cpu") for name, f in WITH_KERNEL.items()}
CASES |= {f"{name}-reference": lambda n, f=f: f(n, implementation="reference") for name, f in WITH_KERNEL.items()}
CASES |= {
    "gaussian_weights": lambda n: operators.gaussian_weights([0.0, 1.0], T, lengths=n),
    "hard_attention": lambda n: operators.hard_attention(QUERY @ QUERY.mT, QUERY, lengths=n),
    "receptive_field": lambda n: receptive_field([CHOICES], lengths=n),
    "receptive_field_size": lambda n: receptive_field_size(FIELD, lengths=n),
}
OF_MEMORY = {
    "softmax_attention-cpu": lambda n: operators.softmax_attention(
        QUERY, KEY, KEY, memory_lengths=n, implementation="cpu"
    ),
    "softmax_attention-reference": lambda n: operators.softmax_attention(
        QUERY, KEY, KEY, memory_lengths=n, implementation="reference"
    ),
    "gaussian_attention-cpu": lambda n: operators.gaussian_attention(
        KEY, [0.0, 1.0], queries=T, memory_lengths=n, implementation="cpu"
    ),
    "hard_attention": lambda n: operators.hard_attention(QUERY @ KEY.mT, KEY, memory_lengths=n),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("lengths", [[5, 7], [-1, 5], [2**62, 0]], ids=str)
def test_lengths_out_of_range_are_refused(case, lengths):
    with pytest.raises(ValueError, match=rf"^lengths range from {min(lengths)} to {max(lengths)}; expected 0 to 5$"):
        CASES[case](torch.tensor(lengths))


ROWS, ROW_INDICES = draw(9, 2, 3), torch.arange(B * S).view(B, S) % 9
OF_MEMORY |= {
    "softmax_attention_indexed": lambda n: softmax_attention_indexed(QUERY[:, :, :1], ROWS, ROWS, ROW_INDICES, n, 1.0),
    "gaussian_attention_indexed": lambda n: gaussian_attention_indexed(
        ROWS, ROW_INDICES, Gaussians((0.0, 1.0)), first=2, memory_lengths=n
    ),
}


@pytest.mark.parametrize("case", OF_MEMORY)
def test_memory_lengths_out_of_range_are_refused(case):
    with pytest.raises(ValueError, match=r"^memory_lengths range from 6 to 7; expected 0 to 6$"):
        OF_MEMORY[case](torch.tensor([7, 6]))


@pytest.mark.filterwarnings("ignore:`torch.jit.script_method`:DeprecationWarning")  # inductor's own import
@pytest.mark.quick("superposition_stack-reference-eager", "softmax_attention-cpu-eager")
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("case", CASES)
def test_compiled_functions_refuse_lengths_out_of_range(case, backend):
    """Traced with lengths in range, so that nothing but the check at run time can see the others."""
    torch.compiler.reset()  # the cases share one code object, of which only so many versions are compiled
    compiled = torch.compile(CASES[case], backend=backend, fullgraph=not case.startswith("nondeterministic"))
    compiled(torch.tensor([5, 4]))
    with pytest.raises(ValueError, match=r"lengths range from 5 to 7; expected 0 to 5"):
        compiled(torch.tensor([5, 7]))


@pytest.mark.slow
def test_compiled_nondeterministic_stack_survives_a_length_out_of_range():
    """The process would end with a segmentation fault if the kernel trusted the length."""
    program = """
import torch
from structattn.operators import nondeterministic_stack
B, T, Q, S = 2, 5, 2, 2
push, pop = torch.randn(B, T, Q, S, Q, S), torch.randn(B, T, Q, S, Q)
run = torch.compile(lambda n: nondeterministic_stack(push, push, pop, torch.randn(B, T, 3), torch.randn(3), lengths=n),
                    backend="eager")
try:
    run(torch.tensor([5, 7]))
except ValueError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (result.returncode, result.stdout) == (0, "lengths range from 5 to 7; expected 0 to 5\n")


@pytest.mark.quick("superposition_stack-cpu", "hard_attention")
@pytest.mark.parametrize("case", [case for case in CASES if "best_run" not in case])
def test_exported_programs_refuse_lengths_out_of_range(case):
    class Program(torch.nn.Module):
        def forward(self, lengths):
            return CASES[case](lengths)

    exported = torch.export.export(Program(), (torch.tensor([5, 4]),)).module()
    with pytest.raises(ValueError, match=r"lengths range from 5 to 7; expected 0 to 5"):
        exported(torch.tensor([5, 7]))


@pytest.mark.parametrize("case", ["superposition_stack-reference", "gaussian_weights", "receptive_field_size"])
def test_mapped_functions_refuse_lengths_out_of_range(case):
    mapped = torch.vmap(CASES[case])
    mapped(torch.tensor([[5, 4], [0, 1], [3, 3]]))
    with pytest.raises(ValueError, match=r"lengths range from 0 to 7; expected 0 to 5"):
        mapped(torch.tensor([[5, 4], [0, 1], [3, 7]]))


@pytest.mark.parametrize("lengths", [[5, 7], [-1, 5]], ids=str)
def test_operators_of_the_library_refuse_lengths_that_nobody_checked(lengths):
    library, n = torch.ops.structattn, torch.tensor(lengths)
    weights = library.stack_pointer_map(ACTIONS, None)
    options, readings = [1.0, 0.0, 0.0, 0.0], library.nondeterministic_stack(*LOGITS, None, None, n * 0, None, False)
    calls = {
        "superposition_stack": (ACTIONS, VALUES, n, None),
        "superposition_stack_backward": (VALUES, ACTIONS, VALUES, n, None),
        "stack_pointer_map": (ACTIONS, n),
        "stack_pointer_map_backward": (weights, ACTIONS, weights, n),
        "stack_pointer_product": (weights, SEEN, n),
        "stack_pointer_product_backward": (VALUES, weights, SEEN, n),
        "stratified_stack": (STRENGTHS, VALUES, n),
        "stratified_stack_backward": (VALUES, STRENGTHS, VALUES, n),
        "nondeterministic_stack": (*LOGITS, None, None, n, None, False),
        "nondeterministic_stack_backward": (*LOGITS, None, None, n, None, readings[2], *readings[:2]),
        "nondeterministic_stack_best_run": (*LOGITS, n, None),
        "softmax_attention": (QUERY, QUERY, QUERY, None, torch.stack([n, n]), None, options),
        "softmax_attention_backward": (QUERY, None, QUERY, QUERY, QUERY, None, torch.stack([n, n]), None, options),
    }
    for name, arguments in calls.items():
        with pytest.raises(ValueError, match=f"lengths range from {min(lengths)} to {max(lengths)}; expected 0 to 5"):
            getattr(library, name)(*arguments)


def test_choices_out_of_range_are_refused():
    for choice in (T, -2):
        choices = CHOICES.clone()
        choices[0, 0, 4] = choice
        with pytest.raises(ValueError, match=rf"^choices range from .*{choice}.*; expected -1 to 4$"):
            receptive_field([choices])
        receptive_field([choices], lengths=torch.tensor([4, 5]))  # past the length anything may stand
    of_encoder = torch.ones(B, S, S, dtype=torch.bool)
    with pytest.raises(ValueError, match="choices range from 0 to 9; expected -1 to 5"):
        decoder_receptive_fields([(None, CHOICES + 9 * (torch.arange(T) == 1))], of_encoder)


@pytest.mark.parametrize("wrong", [2, -1, 10**9])
def test_a_stack_state_refuses_members_that_are_not_in_the_batch(wrong):
    state = nondeterministic_stack_initial_state(BOTTOM, B, 2, 2, implementation="cpu")
    _, state = nondeterministic_stack_step(*(x[:, 0] for x in LOGITS), VALUES[:, 0], state)
    with pytest.raises(IndexError):
        state.select(torch.tensor([0, wrong]))


def test_a_stack_state_takes_indices_of_any_integer_type_and_layout():
    state = nondeterministic_stack_initial_state(BOTTOM, B, 2, 2, implementation="cpu")
    _, state = nondeterministic_stack_step(*(x[:, 0] for x in LOGITS), VALUES[:, 0], state)
    wanted, after = state.select(torch.tensor([1, 0])), []
    for indices in (torch.tensor([1, 0], dtype=torch.int32), torch.tensor([1, 9, 0, 9])[::2]):
        for selected in (state.select(indices), wanted):
            step = nondeterministic_stack_step(*(x[:, 1] for x in LOGITS), VALUES[:, 1], selected)
            after.append(step[0])
    for reading in after:
        torch.testing.assert_close(reading, after[0], rtol=0, atol=0)


def test_models_do_not_take_lengths_above_the_number_of_steps_for_full():
    lengths = torch.tensor([7, 5])
    assert _drop_full_lengths(lengths, draw(B, T, 4)) is lengths
    assert _drop_full_lengths(torch.tensor([5, 5]), draw(B, T, 4)) is None


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64])
def test_checked_range(dtype):
    integers = torch.tensor([3, 1], dtype=dtype)
    checked = checked_range(integers, 1, 3, "counts")
    assert checked.tolist() == [3, 1]
    assert checked.dtype == torch.int64
    assert checked_range(integers[:0], 1, 3, "counts").tolist() == []
    torch.library.opcheck(torch.ops.structattn.checked_range, (integers, 0, 3, "counts"))
    for least, most in ((2, 3), (1, 2)):
        with pytest.raises(ValueError, match=f"counts range from 1 to 3; expected {least} to {most}"):
            checked_range(integers, least, most, "counts")
