"""Hidden states and attentions of the models of this package, as transformers return them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from structattn.attention import Explanation, Streams
from structattn.interop.huggingface.padding import Padding
from structattn.models.layers import Layers
from structattn.support.shapes import Float


@contextmanager
def recorded_hidden_states(
    layers: Layers | None, options: Mapping[str, Any]
) -> Iterator[list[Float[Tensor, "batch time d_model"]]]:
    """Record the input of each block and the output of the last, after the final layer norm, in the next call.

    Of two streams the semantic one is recorded; without blocks, or if ``output_hidden_states`` is not set, nothing is.
    """
    states: list[Tensor] = []
    if layers is None or not options.get("output_hidden_states"):
        yield states
        return

    def record(x: Any) -> None:
        states.append(x.semantic if isinstance(x, Streams) else x)

    with ExitStack() as hooks:
        for block in layers.blocks:
            hooks.enter_context(block.register_forward_pre_hook(lambda _, args: record(args[0])))
        hooks.enter_context(layers.register_forward_hook(lambda _, args, y: record(y)))
        yield states


def inner_outputs(
    states: Sequence[Tensor],
    explain: Callable[[], Iterable[Explanation]],
    padding: Padding | None,
    options: Mapping[str, Any],
    source: Padding | None = None,
) -> dict[str, tuple[Tensor, ...]]:
    """Return the outputs of inner layers that the options of ``forward`` ask for.

    ``hidden_states`` are the inputs of each block and the last output. ``attentions`` are the weights of each sublayer
    that has some, without gradients, those of cross-attention apart in ``cross_attentions``. Those of a stack pointer
    or a nondeterministic stack have one column more, the first, for the bottom of the stack.

    Args:
        states: the hidden states of sequences with padding at the end.
        explain: returns the explanations of these.
        padding: where the padding of the sequences is; None: there is none.
        options: ``output_hidden_states`` and ``output_attentions``.
        source: where that of the sources of cross-attention is.
    """
    more = {}
    if options.get("output_hidden_states"):
        more["hidden_states"] = tuple(states if padding is None else map(padding.restore, states))
    if options.get("output_attentions"):
        found = list(explain())
        own, cross = ([each for each in found if (each.sublayer == "cross") == is_cross] for is_cross in (False, True))
        more["attentions"] = tuple(_restored(each, padding, padding) for each in own)
        more["cross_attentions"] = tuple(_restored(each, padding, source) for each in cross)
    return more


def _restored(explanation: Explanation, rows: Padding | None, columns: Padding | None) -> Tensor:
    weights, first = explanation.weights, explanation.first_source
    if rows is not None:
        weights = rows.restore(weights.transpose(1, 2)).transpose(1, 2)
    if columns is not None:
        sources = columns.restore(weights[..., first:].permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        weights = torch.cat([weights[..., :first], sources], dim=-1)
    return weights
