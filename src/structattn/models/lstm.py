"""LSTM layers under autocast."""

from typing import cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

LstmState = tuple[Float[Tensor, "layers batch units"], Float[Tensor, "layers batch units"]]


def apply_lstm(
    lstm: nn.LSTM, x: Float[Tensor, "batch time size"], state: LstmState | None = None
) -> tuple[Float[Tensor, "batch time units"], LstmState]:
    """Run torch's LSTM, in the dtype of its weights where autocast's dtype is not supported.

    Args:
        lstm: with the batch first.
        x: the inputs.
        state: the first hidden and cell states of all layers; zeros where None.

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
    """Return whether autocast is on and oneDNN has no LSTM in its dtype on this CPU.

    torch sends every LSTM on a CPU to oneDNN, whose bfloat16 and float16 forms need AVX-512 (float16 also AVX512-FP16)
    and otherwise end in "could not create a primitive descriptor". Other cells and devices have no such limit.
    """
    if device.type != "cpu" or not torch.is_autocast_enabled("cpu"):
        return False
    has_dtype = {
        torch.bfloat16: torch.ops.mkldnn._is_mkldnn_bf16_supported,
        torch.float16: torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }[torch.get_autocast_dtype("cpu")]
    return not (has_dtype() and torch.cpu._is_avx512_supported())
