"""The catalogue of public operators: sample inputs, inputs that are errors, and the derivatives that are refused.

In the manner of the OpInfo of PyTorch's own tests. A new operator is one entry of CATALOGUE; test_catalogue.py applies
every transform of transforms.py to every sample.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from structattn import operators
from structattn.operators import RecurrentStack
from structattn.operators.hard_attention.gumbel_softmax import gumbel_softmax

# Derivatives that kernels refuse; transforms.py knows which transforms need them.
REVERSE, SECOND, FORWARD = "reverse mode", "second derivatives", "forward mode"


@dataclass(frozen=True)
class Sample:
    """Arguments of one call: tensors that are transformed, of which the last may be a keyword, and other keywords."""

    tensors: tuple[Tensor, ...]
    keywords: dict[str, Any] = field(default_factory=dict)
    last: str | None = None


@dataclass(frozen=True)
class Operator:
    """An entry.

    Args:
        name: of the public function.
        call: ``call(*tensors, **keywords)``.
        samples: the first is the one whose outcomes are documented.
        errors: arguments, what they raise, and a pattern that the message matches.
        refused: of REVERSE, SECOND, FORWARD, or a transform's name.
        definition: where it is neither ``call`` with implementation="reference" nor, without that keyword, ``call``.
        has_implementations: whether ``call`` takes the keyword ``implementation``.
    """

    name: str
    call: Callable[..., Any]
    samples: dict[str, Sample]
    errors: tuple[tuple[Callable[[], Any], type[Exception], str], ...] = ()
    refused: frozenset[str] = frozenset({SECOND})
    definition: Callable[..., Any] | None = None
    has_implementations: bool = True


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(sum(shape) + seed))


def probabilities(*shape: int) -> Tensor:
    return torch.softmax(numbers(*shape, seed=7), -1)


def sizes(draw: Callable[[int, int], tuple[Tensor, ...]], **more: Sample) -> dict[str, Sample]:
    """Samples of every kind of size: ordinary, of some lengths, of one step and of none."""
    lengths = torch.tensor([3, 1, 0])
    return {
        "ordinary": Sample(draw(2, 3)),
        "lengths": Sample(draw(3, 3), {"lengths": lengths}),
        "one step": Sample(draw(2, 1)),
        "no steps": Sample(draw(2, 0)),
        **more,
    }


def logits(batch: int, time: int, states: int = 2, symbols: int = 2) -> tuple[Tensor, ...]:
    shape = (batch, time, states, symbols, states, symbols)
    return numbers(*shape), numbers(*shape, seed=1), numbers(*shape[:5], seed=2)


def vectors(batch: int, time: int) -> tuple[Tensor, ...]:
    return *logits(batch, time), numbers(batch, time, 2, seed=3), numbers(2, seed=4)


def heads(batch: int, time: int) -> tuple[Tensor, ...]:
    return numbers(batch, 2, time, 3), numbers(batch, 2, time, 3, seed=1), numbers(batch, 2, time, 2, seed=2)


def network(stack: RecurrentStack, gates: int, batch: int = 2, time: int = 3) -> tuple[Tensor, ...]:
    outputs = stack.action_size + stack.vector
    return (
        numbers(batch, time, gates * 2),
        numbers(gates * 2, 2 + stack.reading_size, seed=1),
        numbers(outputs, 2, seed=2),
        numbers(outputs, seed=3),
        numbers(stack.vector, seed=4),
    )


def nondeterministic_steps(*tensors: Tensor, implementation: str = "auto") -> Tensor:
    *others, bottom = tensors
    batch, _, states, symbols = others[0].shape[:4]
    state = operators.nondeterministic_stack_initial_state(
        bottom, batch, states, symbols, implementation=implementation
    )
    readings = [bottom.new_zeros(batch, 0, states, symbols, len(bottom))]
    for step in zip(*(x.unbind(1) for x in others), strict=True):
        reading, state = operators.nondeterministic_stack_step(*step, state)
        readings.append(reading[:, None])
    return torch.cat(readings, 1)


def posteriors(*x: Tensor, lengths: Tensor | None = None) -> tuple[Tensor, ...]:
    """The posteriors by their definition, as a gradient that can be differentiated."""
    with torch.enable_grad():
        x = tuple(y if y.requires_grad else y.detach().requires_grad_() for y in x)
        log_weights = operators.nondeterministic_stack_log_weight(*x, lengths=lengths, implementation="reference")
        steps = torch.full(x[0].shape[:1], x[0].shape[1]) if lengths is None else lengths
        last = torch.arange(x[0].shape[1]) == steps[:, None] - 1
        return torch.autograd.grad(log_weights[last].sum(), x, create_graph=True, materialize_grads=True)


def network_steps(*tensors: Tensor, cell: str, stack: RecurrentStack, implementation: str = "auto") -> Tensor:
    inputs, *maps, bottom = tensors
    state = operators.stack_rnn_initial_state(bottom, inputs.shape[0], 2, stack, implementation)
    hiddens = []
    for gates in inputs.unbind(1):
        state = operators.stack_rnn_step(gates, *maps, state, cell, stack)
        hiddens.append(state.hidden)
    return torch.stack(hiddens, 1)


def pointer_steps(actions: Tensor, values: Tensor) -> Tensor:
    stack, readings = values[:, :1], []
    for action, value in zip(actions.unbind(1), values[:, 1:].unbind(1), strict=True):
        stack = operators.stack_pointer_step(stack, action, value)
        readings.append(stack[:, 0])
    return torch.stack(readings, 1)


def delta_parts(batch: int, time: int, steps: int = 2) -> tuple[Tensor, ...]:
    """Query, key, value, beta and log-decay of one head."""
    shape = batch, 1, time
    key = torch.nn.functional.normalize(numbers(*shape, steps, 3), dim=-1)
    beta = 2 * torch.sigmoid(numbers(*shape, steps))
    return numbers(*shape, 3, seed=1), key, numbers(*shape, steps, 2), beta, -numbers(*shape, seed=2).abs()


def delta_steps(*tensors: Tensor) -> Tensor:
    query, _, value, *_ = tensors
    state, readings = query.new_zeros(*query.shape[:2], query.shape[-1], value.shape[-1]), []
    for token in zip(*(tensor.unbind(2) for tensor in tensors), strict=True):
        reading, state = operators.delta_product_step(state, *token)
        readings.append(reading)
    return torch.stack(readings, 2)


def network_step(gates: Tensor, *maps: Tensor, batch: int = 2) -> Any:
    """One step from the initial state of a batch; arguments as of ``network``, without time."""
    state = operators.stack_rnn_initial_state(maps[-1], batch, 2, SUPERPOSITION)
    return operators.stack_rnn_step(gates, *maps[:-1], state, "tanh", SUPERPOSITION)


def gumbel_attention(scores: Tensor, values: Tensor) -> Tensor:
    """``hard_attention`` with ``sample``, for given noise."""
    return gumbel_softmax(scores, scores.detach().amax(-1), 0.7) @ values


def decoder_fields(own: Tensor, cross: Tensor, encoder: Tensor, **keywords: Any) -> tuple[Tensor, ...]:
    return operators.decoder_receptive_fields([(own, cross)], encoder, **keywords)


def fields(*attentions: Tensor, **keywords: Any) -> Tensor:
    return operators.receptive_field(attentions, **keywords)


def weights(*shape: int, seed: int = 0) -> Tensor:
    return 0.3 * torch.softmax(numbers(*shape, seed=seed), -1)


def failing(call: Callable[..., Any], *tensors: Tensor, **keywords: Any) -> Callable[[], Any]:
    return lambda: call(*tensors, **keywords)


SUPERPOSITION = RecurrentStack("superposition", 2)
NONDETERMINISTIC = RecurrentStack("nondeterministic", 2, 1, 2, "none")
STRATIFIED = RecurrentStack("stratified", 2, pushed="tanh")
TOO_LONG, FLOATS = torch.tensor([4, 3]), torch.tensor([1.0, 2.0])
SPLITS = torch.tensor([[0, 0, 1, 3], [0, 0, 0, 1], [1, 0, 0, 2], [1, 0, 2, 3]])  # of sequences of 4 positions
DELTA_STEP = numbers(2, 1, 3, 2), *(part[:, :, 0] for part in delta_parts(2, 3))
GAUSSIANS = {"offsets": (0.0, -1.5)}

CATALOGUE = (
    Operator(
        "superposition_stack",
        operators.superposition_stack,
        sizes(
            lambda B, T: (probabilities(B, T, 3), numbers(B, T, 2)),
            initial=Sample((probabilities(2, 3, 3), numbers(2, 3, 2), numbers(2, 2)), last="initial"),
        ),
        (
            (
                failing(operators.superposition_stack, numbers(2, 3, 2), numbers(2, 3, 2)),
                ValueError,
                "actions has shape",
            ),
        ),
    ),
    Operator(
        "superposition_stack_weights",
        operators.superposition_stack_weights,
        sizes(lambda B, T: (probabilities(B, T, 3),)),
        ((failing(operators.superposition_stack_weights, numbers(2, 3)), ValueError, "actions has shape"),),
    ),
    Operator(
        "stack_pointer",
        operators.stack_pointer,
        sizes(
            lambda B, T: (probabilities(B, T, 3), numbers(B, T + 1, 2)),
            narrow=Sample((probabilities(2, 4, 3), numbers(2, 5, 1)), {"lengths": torch.tensor([4, 2])}),
        ),
        (
            (failing(operators.stack_pointer, numbers(2, 3, 3), numbers(2, 3, 2)), ValueError, "values has shape"),
            (
                failing(operators.stack_pointer, numbers(2, 3, 3), numbers(2, 4, 2), lengths=FLOATS),
                ValueError,
                "lengths: integers",
            ),
        ),
    ),
    Operator(
        "stack_pointer_weights",
        operators.stack_pointer_weights,
        sizes(lambda B, T: (probabilities(B, T, 3),)),
        ((failing(operators.stack_pointer_weights, numbers(2, 3, 4)), ValueError, "actions has shape"),),
    ),
    Operator(
        "stack_pointer_step",
        pointer_steps,
        {"ordinary": Sample((probabilities(2, 3, 3), numbers(2, 4, 2)))},
        refused=frozenset(),
        has_implementations=False,
    ),
    Operator(
        "stratified_stack",
        operators.stratified_stack,
        sizes(lambda B, T: (torch.sigmoid(numbers(B, T, 2)), numbers(B, T, 2, seed=1))),
        ((failing(operators.stratified_stack, numbers(2, 3, 3), numbers(2, 3, 2)), ValueError, "actions has shape"),),
    ),
    Operator(
        "stratified_stack_weights",
        operators.stratified_stack_weights,
        sizes(lambda B, T: (torch.sigmoid(numbers(B, T, 2)),)),
        ((failing(operators.stratified_stack_weights, numbers(2, 3, 3)), ValueError, "actions has shape"),),
    ),
    Operator(
        "nondeterministic_stack",
        operators.nondeterministic_stack,
        sizes(vectors, window=Sample(vectors(2, 4), {"window": 1})),
        (
            (
                failing(operators.nondeterministic_stack, *vectors(2, 3), window=0),
                ValueError,
                "window=0; expected a whole number of at least 1, or None for no limit",
            ),
        ),
    ),
    Operator(
        "nondeterministic_stack_weights",
        operators.nondeterministic_stack_weights,
        sizes(logits),
        ((failing(operators.nondeterministic_stack_weights, *logits(2, 3)[::-1]), ValueError, "push has shape"),),
    ),
    Operator("nondeterministic_stack_log_weight", operators.nondeterministic_stack_log_weight, sizes(logits)),
    Operator(
        "nondeterministic_stack_posteriors",
        operators.nondeterministic_stack_posteriors,
        sizes(logits),
        refused=frozenset({REVERSE, SECOND, "export"}),
        definition=posteriors,
    ),
    Operator(
        "nondeterministic_stack_best_run",
        operators.nondeterministic_stack_best_run,
        sizes(logits),
        refused=frozenset({REVERSE, SECOND, FORWARD}),
    ),
    Operator(
        "nondeterministic_stack_step",
        nondeterministic_steps,
        {"ordinary": Sample(vectors(2, 3)), "one step": Sample(vectors(2, 1))},
        refused=frozenset({"double backward"}),
    ),
    Operator(
        "softmax_attention",
        operators.softmax_attention,
        sizes(
            heads,
            causal=Sample(heads(2, 3), {"causal": True, "lengths": torch.tensor([3, 2]), "return_weights": True}),
            mask=Sample(heads(2, 3), {"mask": torch.tensor([[True, False, True]] * 2 + [[False] * 3])}),
            bias=Sample((*heads(2, 3), numbers(2, 1, 3, 3)), {"return_weights": True}, last="mask"),
            memory=Sample((numbers(2, 2, 2, 3), *heads(2, 4)[1:]), {"memory_lengths": torch.tensor([4, 1])}),
        ),
        (
            (failing(operators.softmax_attention, *heads(2, 3), dropout=1.0), ValueError, "dropout=1.0; expected"),
            (failing(operators.softmax_attention, *heads(2, 3), mask=numbers(2, 3)), ValueError, "mask has shape"),
        ),
    ),
    Operator(
        "gaussian_attention",
        operators.gaussian_attention,
        {
            "ordinary": Sample((numbers(2, 2, 3, 2),), GAUSSIANS),
            "lengths": Sample((numbers(2, 2, 4, 2),), GAUSSIANS | {"lengths": torch.tensor([4, 1]), "normalize": True}),
            "ratio": Sample((numbers(2, 2, 4, 2),), GAUSSIANS | {"queries": 3, "ratio": 1.3, "kernel": "window"}),
            "no keys": Sample((numbers(2, 2, 0, 2),), GAUSSIANS),
        },
        ((failing(operators.gaussian_attention, numbers(2, 3, 4, 2), (0.0,)), ValueError, "values has shape"),),
        refused=frozenset({FORWARD}),
    ),
    Operator(
        "hard_attention",
        operators.hard_attention,
        {
            "ordinary": Sample((numbers(2, 2, 3, 3), numbers(2, 2, 3, 2))),
            "lengths": Sample((numbers(2, 2, 3, 3), numbers(2, 2, 3, 2)), {"lengths": torch.tensor([3, 1])}),
            "no keys": Sample((numbers(2, 2, 3, 0), numbers(2, 2, 0, 2))),
        },
        (
            (
                failing(operators.hard_attention, numbers(1, 1, 2, 3), numbers(1, 1, 3, 2), -1.0),
                ValueError,
                "temperature=-1.0; expected 0 <= temperature",
            ),
        ),
        refused=frozenset(),
        has_implementations=False,
    ),
    Operator(
        "hard_attention, sampled",
        gumbel_attention,
        {"ordinary": Sample((numbers(2, 2, 3, 3), numbers(2, 2, 3, 2)))},
        refused=frozenset(),
        has_implementations=False,
    ),
    Operator(
        "stack_rnn",
        operators.stack_rnn,
        {
            "ordinary": Sample(network(SUPERPOSITION, 4), {"cell": "lstm", "stack": SUPERPOSITION}),
            "lengths": Sample(
                network(STRATIFIED, 1), {"cell": "tanh", "stack": STRATIFIED, "lengths": torch.tensor([3, 1])}
            ),
            "nondeterministic": Sample(network(NONDETERMINISTIC, 4), {"cell": "lstm", "stack": NONDETERMINISTIC}),
            "no steps": Sample(network(STRATIFIED, 1, time=0), {"cell": "relu", "stack": STRATIFIED}),
        },
        (
            (
                failing(operators.stack_rnn, *network(SUPERPOSITION, 1), cell="lstm", stack=SUPERPOSITION),
                ValueError,
                "inputs has 2 gates; expected 4 for each of 2 hidden units",
            ),
        ),
        refused=frozenset({SECOND, FORWARD}),
    ),
    Operator(
        "stack_rnn_step",
        network_steps,
        {
            "ordinary": Sample(network(NONDETERMINISTIC, 4), {"cell": "lstm", "stack": NONDETERMINISTIC}),
            "superposition": Sample(network(SUPERPOSITION, 1), {"cell": "tanh", "stack": SUPERPOSITION}),
        },
        (
            (
                failing(network_step, numbers(1, 2), *network(SUPERPOSITION, 1)[1:]),
                ValueError,
                "gates has shape (1, 2); expected (B, G) = (2, 2)",
            ),
            (
                failing(network_step, numbers(2, 2), numbers(1, 4), *network(SUPERPOSITION, 1)[2:]),
                ValueError,
                "recurrent has shape",
            ),
        ),
        refused=frozenset({"double backward"}),
    ),
    Operator(
        "delta_product",
        operators.delta_product,
        sizes(delta_parts),
        (
            (failing(operators.delta_product, *delta_parts(2, 3)[1:], numbers(2)), ValueError, "query has shape"),
            (failing(operators.delta_product, *delta_parts(2, 3), lengths=TOO_LONG), ValueError, "lengths range"),
            (failing(operators.delta_product, *delta_parts(2, 3, 0)), ValueError, "m = 0; expected at least one"),
            (failing(operators.delta_product, *delta_parts(2, 3), implementation="cpu"), ValueError, "'chunked'"),
        ),
        refused=frozenset(),
    ),
    Operator(
        "delta_product_step",
        delta_steps,
        {"ordinary": Sample(delta_parts(2, 3))},
        tuple(
            (failing(operators.delta_product_step, *DELTA_STEP[:i], part[:1], *DELTA_STEP[i + 1 :]), ValueError, error)
            for i, (part, error) in enumerate(
                zip(DELTA_STEP, ("query", "query", "key", "value", "beta", "log_decay"), strict=True)
            )
        ),
        refused=frozenset(),
        definition=lambda *tensors: operators.delta_product(*tensors, implementation="reference"),
        has_implementations=False,
    ),
    Operator(
        "tree_regularization",
        operators.tree_regularization,
        {
            "ordinary": Sample((numbers(2, 4, 3),), {"splits": SPLITS}),
        },
        (
            (failing(operators.tree_regularization, numbers(2, 4), SPLITS), ValueError, "hidden has shape"),
            (
                failing(operators.tree_regularization, numbers(2, 4, 3), SPLITS.double()),
                ValueError,
                "expected integers",
            ),
            (failing(operators.tree_regularization, numbers(1, 4, 3), SPLITS), ValueError, "sequences of splits range"),
            (failing(operators.tree_regularization, numbers(2, 3, 3), SPLITS), ValueError, "positions of splits range"),
            (
                failing(operators.tree_regularization, numbers(2, 4, 3), SPLITS, lengths=TOO_LONG - 1),
                ValueError,
                "expected i <= k < j within the sequence",
            ),
        ),
        refused=frozenset(),
        has_implementations=False,
    ),
    Operator(
        "receptive_field",
        fields,
        {
            "ordinary": Sample((weights(2, 1, 3, 3), weights(2, 2, 3, 3))),
            "lengths": Sample((weights(2, 1, 3, 3),), {"lengths": torch.tensor([3, 1]), "union": "probabilistic"}),
        },
        ((failing(fields), ValueError, "attentions is empty; expected at least one layer"),),
        refused=frozenset(),
        has_implementations=False,
    ),
    Operator(
        "decoder_receptive_fields",
        decoder_fields,
        {"ordinary": Sample((weights(2, 1, 3, 3), weights(2, 1, 3, 4, seed=1), weights(2, 4, 4, seed=2)))},
        refused=frozenset(),
        has_implementations=False,
    ),
    Operator(
        "receptive_field_size",
        operators.receptive_field_size,
        {"ordinary": Sample((weights(2, 3, 3),))},
        refused=frozenset(),
        has_implementations=False,
    ),
)
