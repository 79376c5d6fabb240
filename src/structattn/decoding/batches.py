"""Many items in batches of similar length: sort, split, decode, and bring back into order."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def batches_by_length(lengths: Sequence[int], tokens: int) -> list[list[int]]:
    """The numbers of items in batches whose padded size, items * longest length, is at most ``tokens``.

    By falling length, so that what needs most memory comes first, and in their order among equals. An item that is too
    long for that is a batch alone; an item of length 0 counts as 1.

    Raises:
        ValueError: ``tokens`` is not positive.
    """
    if tokens < 1:
        raise ValueError(f"tokens={tokens}; expected at least 1")
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if batches and (len(batches[-1]) + 1) * max(1, lengths[batches[-1][0]]) <= tokens:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def in_batches(
    items: Sequence[Item], lengths: Sequence[int], tokens: int, decode: Callable[[list[Item]], Sequence[Result]]
) -> list[Result]:
    """What ``decode`` makes of each item, in the order of the items.

    Args:
        items: anything that ``decode`` takes a list of.
        lengths: of the items, source tokens for instance.
        tokens: the padded size of a batch. A beam search holds ``beam`` states for each item.
        decode: from the items of a batch to one result for each.

    Raises:
        ValueError: ``tokens`` is not positive, or the lengths or results are not as many as the items.
    """
    if len(lengths) != len(items):
        raise ValueError(f"{len(lengths)} lengths for {len(items)} items; expected one for each")
    results: dict[int, Result] = {}
    for batch in batches_by_length(lengths, tokens):
        results.update(zip(batch, decode([items[index] for index in batch]), strict=True))
    return [results[index] for index in range(len(items))]
