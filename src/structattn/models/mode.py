"""Evaluation mode for the length of a block of code."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

from torch import nn

ModelT = TypeVar("ModelT", bound=nn.Module)


@contextmanager
def evaluating(model: ModelT) -> Iterator[ModelT]:
    """Put a model into evaluation mode, and back into its previous mode at the end, also after an exception.

        with evaluating(model), torch.no_grad():
            logits = model(tokens)

    As with ``nn.Module.train``, all submodules take the mode of ``model``.
    """
    was_training = model.training
    model.eval()
    try:
        yield model
    finally:
        model.train(was_training)
