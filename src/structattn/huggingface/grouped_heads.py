"""Keys and values that several query heads share."""

from torch import Tensor


def one_for_each_query_head(shared: Tensor, query: Tensor) -> Tensor:
    """(B, K, S, d) -> (B, H, S, d): neighbouring query heads share a key head. K must divide H."""
    times = query.shape[1] // shared.shape[1]
    return shared if times == 1 else shared.repeat_interleave(times, dim=1)
