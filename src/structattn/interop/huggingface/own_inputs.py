"""Inputs of the models of this package in transformers: vectors in the place of ids, and more ids."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from structattn.models import Embedding, MaskedLanguageModel
from structattn.support.shapes import Float, Int, Shaped
from structattn.support.special_tokens import EOS

_T = TypeVar("_T")


class IdTable(nn.Module):
    """The rows of a table of embeddings that belong to ids, which need not be their numbers.

    Args:
        embedding: whose table it is.
    """

    def __init__(self, embedding: Embedding) -> None:
        super().__init__()
        self.embedding = embedding

    @property
    def weight(self) -> Tensor:
        """The table."""
        return self.embedding.table.weight

    def forward(self, ids: Int[Tensor, "batch time"]) -> Float[Tensor, "batch time d_model"]:
        """Return the rows of ids."""
        return self.embedding.token_embeddings(ids.flatten()).view(*ids.shape, -1)


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
    """A language model whose inputs may be ids, or vectors in the place of rows of its table.

    Args:
        model: of this package.
    """

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
        """Return the value of a function that gives its ids to the model; for vectors, of other ids with these rows."""
        if not x.is_floating_point():
            return function(x)
        table = embedding_of(self.model).table
        hook = table.register_forward_hook(lambda module, args, rows: x.view(rows.shape))
        try:
            return function(torch.full(x.shape[:-1], EOS, device=x.device))
        finally:
            hook.remove()


@torch.no_grad()
def resize_vocabulary(model: nn.Module, other: nn.Module, mean: bool) -> None:
    """Copy the weights of a model into one that was built for another number of ids, the last being more or fewer.

    Args:
        model: the model.
        other: the one to fill.
        mean: whether new rows get the mean of the others, or keep their values.

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
