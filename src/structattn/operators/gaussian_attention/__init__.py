"""Hard-coded Gaussian attention: weights depend on the positions of query and key only. ``Kernel`` is their form."""

from collections.abc import Sequence

import torch
from torch import Tensor

from structattn.operators.common.checks import (
    checked_two_lengths,
    computing_precision,
    inside,
    require_shape,
    without_autocast,
)
from structattn.operators.common.implementation import Implementation, chosen_implementation
from structattn.operators.gaussian_attention.cpu import band, gaussian_attention_cpu
from structattn.operators.gaussian_attention.gpu import gaussian_attention_gpu
from structattn.operators.gaussian_attention.reference import (
    Gaussians,
    Kernel,
    Rows,
    dense_weights,
    gaussian_attention_reference,
)
from structattn.support.shapes import Float, Lengths

__all__ = ["Gaussians", "Kernel", "gaussian_attention", "gaussian_weights"]


def gaussian_attention(
    values: Float[Tensor, "batch heads keys size"],
    offsets: Sequence[float],
    *,
    queries: int | None = None,
    ratio: float = 1.0,
    floor: bool = False,
    sigma: float = 1.0,
    kernel: Kernel = "full",
    window: int = 3,
    causal: bool = False,
    normalize: bool = False,
    first: int = 0,
    first_key: int = 0,
    lengths: Lengths = None,
    memory_lengths: Lengths = None,
    implementation: Implementation = "auto",
) -> Float[Tensor, "batch heads queries size"]:
    """Hard-coded Gaussian attention, y_i = sum_j w_ij v_j (You et al. 2020, sections 3.1, 3.2 and 6.3).

        w_ij = exp(-(j - f(i))^2 / (2 sigma^2)) / (sigma sqrt(2 pi)),   f(i) = ratio * i + offset    (equation 2)

    The weights are values of a density, truncated at both ends of the sequence and not normalised: they sum to 1 in the
    interior only. Positions count from 0. Nothing is learned, and no gradient flows through the weights. Values that
    are not finite affect only the queries that give them a weight other than zero.

    The paper and its code differ on cross attention: the paper rounds ratio * i + offset down, its code does not, so
    ``floor`` is a choice; the paper has the offsets -1, 0 and 1, its code -1 and 1; and the paper's ratio is the
    average source length over the average target length of the training data, where its code has fixed numbers, of
    which its cache of weights uses none (it is 1 in effect).
    Cost: O(B * H * T * K * d) time with a kernel, K the width of the band of keys whose weights count in the dtype (27
    in float32 and 77 in float64 for sigma = 1; less for the other kernels), and O(H * T * K) memory besides the
    tensors. The definition takes S in place of K.

    Args:
        values: (B, H, S, d).
        offsets: one for each head, any real numbers.
        queries: T; S where None.
        ratio: how far the centre moves from one query to the next, the paper's gamma; 1 for self-attention.
        floor: round the centres down to whole positions.
        sigma: the standard deviation, in positions.
        kernel: "full", every key whose weight is not below the dtype's smallest normal number; "window", only the
            ``window`` keys around round(f(i)), not normalised anew; "index", the value at round(f(i)) itself, with
            weight 1. A half is rounded up.
        window: an odd number of keys; used by the kernel "window" only.
        causal: weights of keys later than the query are zero; the others stay what they are.
        normalize: divide by the sum over the keys visible to the query (not in the paper).
        first: position of the first query, for one step of decoding.
        first_key: position of the first of the values, where earlier ones are no longer needed.
        lengths: the number of queries of each sequence, and of keys as well where ``memory_lengths`` is not given, so
            that T must equal S then. From there on queries give zeros and keys are hidden, forward and backward,
            whatever the arguments contain there.
        memory_lengths: the number of keys of each sequence.
        implementation: "reference" is the definition, "cpu" the compiled kernel, "gpu" the Triton kernel; "auto" takes
            that of the tensors' device if it can run. All support double backward.

    Returns:
        The readings, in the dtype of the arguments (float32 where autocast lowered them).

    Raises:
        ValueError: shapes, dtypes, lengths or numbers do not fit.
        ImplementationUnavailableError: the requested implementation cannot run here.
    """
    heads = Gaussians(tuple(offsets), ratio, floor, sigma, kernel, window, causal, normalize)
    require_shape(
        "values", values, (None, len(heads.offsets), None, None), "(B, H, S, d) with one head for each offset"
    )
    batch, _, keys, _ = values.shape
    queries = keys if queries is None else queries
    choice = chosen_implementation("gaussian_attention", implementation, values.device, gpu_kernel=True)
    (values,), dtype = computing_precision(values=values)
    query_ends, ends = _ends(lengths, memory_lengths, batch, queries, keys, values.device)
    rows = Rows(queries, keys, first, first_key, ends, values.dtype, values.device)
    with without_autocast(values.device):
        if choice != "reference":
            product = gaussian_attention_cpu if choice == "cpu" else gaussian_attention_gpu
            return product(values, *band(heads, rows), query_ends, ends).to(dtype)
        return gaussian_attention_reference(values, heads, rows, query_ends).to(dtype)


def gaussian_weights(
    offsets: Sequence[float],
    queries: int,
    keys: int | None = None,
    *,
    ratio: float = 1.0,
    floor: bool = False,
    sigma: float = 1.0,
    kernel: Kernel = "full",
    window: int = 3,
    causal: bool = False,
    normalize: bool = False,
    first: int = 0,
    first_key: int = 0,
    lengths: Lengths = None,
    memory_lengths: Lengths = None,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Return the weights w_ij of ``gaussian_attention`` for queries i = first, first + 1, ...

    One row for the position t of a decoder is ``queries=1, first=t``. Cost: O(B * H * T * S).

    Arguments are those of ``gaussian_attention``; there are T ``queries`` and S ``keys``, T where None.
    ``normalize`` makes each row sum to 1, if it has any weight. ``dtype`` is float32 or float64.

    Returns:
        (H, T, S), or (B, H, T, S) where lengths are given, with zeros past them.

    Raises:
        ValueError: lengths, numbers or the dtype do not fit.
    """
    heads = Gaussians(tuple(offsets), ratio, floor, sigma, kernel, window, causal, normalize)
    keys = queries if keys is None else keys
    given = lengths if memory_lengths is None else memory_lengths
    batch = 1 if given is None else len(given)
    query_ends, ends = _ends(lengths, memory_lengths, batch, queries, keys, torch.device(device))
    weights = dense_weights(heads, Rows(queries, keys, first, first_key, ends, dtype, torch.device(device)))
    if given is None:
        return weights[0]
    return weights if query_ends is None else torch.where(inside(query_ends, queries)[:, None, :, None], weights, 0)


def _ends(
    lengths: Tensor | None, memory_lengths: Tensor | None, batch: int, queries: int, keys: int, device: torch.device
) -> tuple[Tensor | None, Tensor | None]:
    """Return the checked lengths of queries and of keys; None where all count."""
    if lengths is None and memory_lengths is None:
        return None, None
    query_ends, ends = checked_two_lengths(lengths, memory_lengths, batch, queries, keys, device)
    return (None if lengths is None else query_ends), ends
