"""Special token ids, and the offset between token ids and output classes.

``<pad>`` and ``<bos>`` are never predicted, so class c of a model's logits stands for token id c + 2.
"""

from typing import Protocol, Self, TypeVar

PAD, BOS, EOS, UNK = 0, 1, 2, 3
FIRST_SYMBOL = 3
"""The lowest id that may occur in a sequence: ``<unk>`` if the vocabulary has it, else the first symbol."""

CLASS_OFFSET = 2
"""The number of ids that are not output classes: ``<pad>`` and ``<bos>``."""


class _Integers(Protocol):
    """An integer, or a tensor or array of integers."""

    def __add__(self, other: int, /) -> Self: ...

    def __sub__(self, other: int, /) -> Self: ...


Ids = TypeVar("Ids", bound=_Integers)


def class_of(ids: Ids) -> Ids:
    """Return the output classes of token ids; ``<pad>`` becomes ``PADDING_CLASS``."""
    return ids - CLASS_OFFSET


def id_of(classes: Ids) -> Ids:
    """Return the token ids of output classes."""
    return classes + CLASS_OFFSET


PADDING_CLASS, EOS_CLASS, UNK_CLASS = class_of(PAD), class_of(EOS), class_of(UNK)
