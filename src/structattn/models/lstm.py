"""LSTM layers under autocast."""

from typing import cast

import torch
from torch import Tensor, nn

from structattn.support.devices import fast_autocast_dtypes, processor_flags
from structattn.support.shapes import Float

LstmState = tuple[Float[Tensor, "layers batch units"], Float[Tensor, "layers batch units"]]


def apply_lstm(
    lstm: nn.LSTM, x: Float[Tensor, "batch time size"], state: LstmState | None = None
) -> tuple[Float[Tensor, "batch time units"], LstmState]:
    """Run torch's LSTM, in the dtype of its weights where autocast's dtype is not supported.

    The batch comes first. ``state``: the first hidden and cell states of all layers; zeros where None.

    Returns:
        The top layer's hidden states, and the last hidden and cell states of all layers.
    """
    if autocast_lacks_lstm(x.device):
        dtype = cast(Tensor, lstm.weight_hh_l0).dtype
        with torch.autocast(x.device.type, enabled=False):
            return apply_lstm(lstm, x.to(dtype), None if state is None else (state[0].to(dtype), state[1].to(dtype)))
    hidden_states, last = lstm(x, state)
    return hidden_states, last


def autocast_lacks_lstm(device: torch.device) -> bool:
    """Return whether autocast is on and this CPU has no fast LSTM in its dtype.

    torch sends every LSTM on a CPU to oneDNN, which otherwise ends in "could not create a primitive descriptor": its
    bfloat16 form needs AVX-512, its float16 form more than any flag of the processor tells. Other cells and devices
    have no such limit.
    """
    if device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return False
    is_fast = torch.bfloat16 in fast_autocast_dtypes(device) and "avx512f" in processor_flags()
    return not (is_fast and torch.get_autocast_dtype("cpu") == torch.bfloat16)
