"""Batches of items of similar length, with results in the order of the items."""

from collections.abc import Callable, Sequence
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def batches_by_length(lengths: Sequence[int], max_tokens: int, max_items: int | None = None) -> list[list[int]]:
    """Return the indices of items in batches of padded size, items * longest length, at most ``max_tokens``.

    A batch has at most ``max_items`` items; None: any number.

    Longest items come first, so that the batch that needs most memory is the first one; equally long items keep their
    order. An item longer than ``max_tokens`` forms a batch alone. An item of length 0 counts as 1.

    Raises:
        ValueError: ``max_tokens`` or ``max_items`` is less than 1.
    """
    for name, value in (("max_tokens", max_tokens), ("max_items", max_items)):
        if value is not None and value < 1:
            raise ValueError(f"{name}={value}; expected at least 1")
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        size = len(batches[-1]) + 1 if batches else 0
        if (
            batches
            and size * max(1, lengths[batches[-1][0]]) <= max_tokens
            and (max_items is None or size <= max_items)
        ):
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def map_in_batches(
    items: Sequence[Item],
    lengths: Sequence[int],
    max_tokens: int,
    function: Callable[[list[Item]], Sequence[Result]],
    max_items: int | None = None,
) -> list[Result]:
    """Apply a function to items in batches of similar length; return one result for each item, in their order.

    Args:
        items: the arguments.
        lengths: of the items, for instance in source tokens.
        max_tokens: the maximum padded size of a batch. A beam search holds ``beam_size`` states for each item.
        function: takes the items of a batch and returns one result for each.
        max_items: the maximum number of items of a batch; None: any.

    Raises:
        ValueError: ``max_tokens`` or ``max_items`` is less than 1, or the numbers of items, lengths and results
            differ.
    """
    if len(lengths) != len(items):
        raise ValueError(f"{len(lengths)} lengths for {len(items)} items; expected one for each")
    results: dict[int, Result] = {}
    for batch in batches_by_length(lengths, max_tokens, max_items):
        results.update(zip(batch, function([items[index] for index in batch]), strict=True))
    return [results[index] for index in range(len(items))]
