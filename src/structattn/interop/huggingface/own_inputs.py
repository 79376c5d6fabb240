"""Inputs and outputs of the models of this package in transformers: vectors in the place of ids, and more ids."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from structattn.attention import Explanation, Streams
from structattn.interop.huggingface.padding import Padding
from structattn.models import Embedding, MaskedLanguageModel, RecurrentLanguageModel
from structattn.models.layers import Layers
from structattn.support.shapes import Float, Int, Shaped
from structattn.support.special_tokens import EOS
from structattn.support.threads import in_this_thread

_T = TypeVar("_T")


class IdTable(nn.Module):
    """The rows of a table of embeddings that belong to ids, which need not be their numbers."""

    def __init__(self, embedding: Embedding) -> None:
        super().__init__()
        self.embedding = embedding

    @property
    def weight(self) -> Tensor:
        """The table."""
        return self.embedding.table.weight

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time d_model"]:
        """Return the rows of ids."""
        return self.embedding.token_embeddings(ids)


def embedding_of(model: Any) -> Embedding:
    """Return the embeddings of the inputs of a model.

    Raises:
        NotImplementedError: they are not rows of one table, as in a model with two streams or over one-hot vectors.
    """
    names = [name for name in ("embedding", "source", "target") if getattr(model, name, None) is not None]
    embedding = getattr(model, names[0])
    if not isinstance(embedding, Embedding):
        raise NotImplementedError(
            f"the inputs are those of a {type(embedding).__name__}; expected one table of embeddings"
        )
    return embedding


class AnyInputs:
    """A language model whose inputs may be ids, or vectors in the place of rows of its table."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def __call__(self, x: Shaped[Tensor, "batch time ..."], lengths: Tensor | None = None) -> Tensor:
        """Return the logits of whole sequences."""
        logits: Tensor = self.call(lambda ids: self.model(ids, lengths), x)
        return logits

    def initial_state(self, batch_size: int) -> Any:
        """Return the state before the first step."""
        return self.model.initial_state(batch_size)

    def step(self, x_t: Shaped[Tensor, "batch ..."], state: Any) -> tuple[Tensor, Any]:
        """Process one step; return the logits of the next token and the new state."""
        logits, state = self.call(lambda ids: self.model.step(ids, state), x_t)
        return logits, state

    def call(self, function: Callable[[Tensor], _T], x: Tensor) -> _T:
        """Return the value of a function that gives its ids to the model; for vectors, of other ids with these rows.

        Raises:
            NotImplementedError: vectors are given to a model without a table, or to one that must see ``<bos>``.
        """
        if not x.is_floating_point():
            return function(x)
        if isinstance(self.model, RecurrentLanguageModel):
            raise NotImplementedError("a recurrent model passes over <bos>, which it knows by its id; expected ids")
        table = embedding_of(self.model).table
        hook = table.register_forward_hook(in_this_thread(lambda module, args, rows: x.view(rows.shape)))
        try:
            return function(torch.full(x.shape[:-1], EOS, device=x.device))
        finally:
            hook.remove()


@torch.no_grad()
def resize_vocabulary(model: nn.Module, other: nn.Module, mean: bool) -> None:
    """Copy the weights of a model into one that was built for another number of ids, the last being more or fewer.

    With ``mean``, new rows get the mean of the others; else they keep their values.

    Raises:
        ValueError: the model is a masked one, whose mask is the id after the last.
    """
    if isinstance(model, MaskedLanguageModel):
        raise ValueError("the mask is the id after the last, so that a masked model cannot have more ids")
    values = model.state_dict()
    for name, new in other.state_dict().items():
        old = values[name]
        common = tuple(slice(min(sizes)) for sizes in zip(old.shape, new.shape, strict=True))
        if mean and new.shape != old.shape:
            axis = next(
                axis for axis, sizes in enumerate(zip(old.shape, new.shape, strict=True)) if len(set(sizes)) > 1
            )
            new.copy_(old.mean(axis, keepdim=True).expand_as(new))
        new[common] = old[common]


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

    before, after = in_this_thread(lambda _, args: record(args[0])), in_this_thread(lambda _, args, y: record(y))

    with ExitStack() as hooks:
        for block in layers.blocks:
            hooks.enter_context(block.register_forward_pre_hook(before))
        hooks.enter_context(layers.register_forward_hook(after))
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
        if cross:
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
