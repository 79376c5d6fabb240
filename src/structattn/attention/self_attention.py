"""Any layer in the place of ``nn.MultiheadAttention``, as in ``nn.TransformerEncoderLayer``."""

from typing import Any

import torch
from torch import Tensor, nn

from structattn.attention.protocols import AttendingLayer, AttentionLayer
from structattn.operators.common.checks import checked_false, inside, require_shape
from structattn.support.errors import quoted
from structattn.support.shapes import Bool, Float, Int


class SelfAttention(nn.Module):
    """A self-attention layer with the signature and the attributes of ``nn.MultiheadAttention``.

    Example::

        block = nn.TransformerEncoderLayer(d_model, nhead=4, batch_first=True)
        block.self_attn = SelfAttention(SuperpositionStackAttention(d_model, 32))
        model = nn.TransformerEncoder(block, num_layers=2, enable_nested_tensor=False)

    ``need_weights`` is True by default, as in torch, which for stacks costs O(T^3); torch's blocks pass False.

    Torch's blocks compute with the weights of ``nn.MultiheadAttention`` themselves in evaluation; of this module they
    find none, so that they call the layer in any mode.

    It is for torch's blocks: those of transformers call their attention in other ways, with a cache among the
    arguments; see ``structattn.interop.huggingface``.

    Args:
        layer: causal or bidirectional, of one stream. ``layer.causal`` is taken for true, and ``layer.num_heads`` for
            1, where there are none.
        batch_first: whether tensors are (B, T, d); False: (T, B, d), torch's default.

    Raises:
        TypeError: ``layer`` is no attention layer.
    """

    in_proj_weight = in_proj_bias = None  # torch's blocks then call forward
    _qkv_same_embed_dim = False  # likewise, and nn.TransformerEncoder makes no nested tensors

    def __init__(self, layer: AttentionLayer, *, batch_first: bool = True) -> None:
        super().__init__()
        if not callable(getattr(layer, "initial_state", None)):
            raise TypeError(f"layer is {quoted(layer)}; expected a layer of structattn.attention or of a plugin")
        self.layer, self.batch_first = layer, batch_first
        self.embed_dim: int | None = getattr(layer, "d_model", None)
        self.num_heads: int = getattr(layer, "num_heads", 1)
        self.out_proj = _NoWeights()

    def forward(
        self,
        query: Float[Tensor, "*axes d_model"],
        key: Float[Tensor, "*axes d_model"],
        value: Float[Tensor, "*axes d_model"],
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Float[Tensor, "*axes d_model"], Tensor | None]:
        """Return the layer's output, zeros at padding, and its weights on request.

        Cost: that of the layer, and with ``need_weights`` that of its ``attend`` or ``explain``, O(T^3) for stacks.

        Args:
            query: (B, T, d) as ``batch_first`` says, (T, d), or a nested tensor of B sequences, for no padding.
            key: the same tensor.
            value: the same tensor.
            key_padding_mask: (B, T) or (T,), True or -inf at padding, which stands at the end, at the beginning or at
                both: the layer begins with the first position that is none.
            need_weights: whether to return the weights, of the layer's ``attend``, which are differentiable and before
                dropout, or else those of its ``explain``, which are not. Pass False where only the output is needed.
            attn_mask: (T, T) or (.., T, T); the causal mask, True or -inf above the diagonal, for a causal layer. Not
                checked in compiled code.
            average_attn_weights: return the mean of the heads, (B, T, T), instead of (B, H, T, T). The weight of the
                bottom of a stack or of a null cell, which is no position, is left out: rows sum to what remains.
            is_causal: True is accepted for causal layers. They are causal with False, too.

        Raises:
            ValueError: query, key and value are not one tensor, a mask has a wrong shape or another meaning than those
                above, or there is padding between positions that are none.
        """
        if key is not query or value is not query:
            raise ValueError(
                "query, key and value are different tensors; expected the same one: this is self-attention"
            )
        if query.is_nested:
            return self._of_nested(query, need_weights, average_attn_weights)
        x = query[None] if query.dim() == 2 else self._swapped(query)
        self._require_meaning(attn_mask, is_causal, x.shape[1])
        if key_padding_mask is None:
            y, weights = self._attend(x, None, need_weights, average_attn_weights)
        else:
            mask = key_padding_mask[None] if query.dim() == 2 else key_padding_mask
            start, lengths = _padding(mask, *x.shape[:2])
            y, weights = self._attend(_rolled(x, start, 1), lengths, need_weights, average_attn_weights)
            y = _rolled(y, -start, 1)
            weights = None if weights is None else _rolled(_rolled(weights, -start, -2), -start, -1)
        if query.dim() == 2:
            return y[0], None if weights is None else weights[0]
        return self._swapped(y), weights

    def _swapped(self, x: Tensor) -> Tensor:
        """Exchange batch and time, from and to the order of the caller."""
        return x if self.batch_first else x.transpose(0, 1)

    def _of_nested(self, x: Tensor, need_weights: bool, average: bool) -> tuple[Tensor, Tensor | None]:
        """Return the same for a nested tensor: nn.TransformerEncoder makes one if its first layer is torch's."""
        lengths = torch.tensor([len(sequence) for sequence in x.unbind()], device=x.device)
        y, weights = self._attend(x.to_padded_tensor(0.0), lengths, need_weights, average)
        rows = zip(y.unbind(), lengths.tolist(), strict=True)
        return torch.nested.as_nested_tensor([row[:length] for row, length in rows]), weights

    def _attend(
        self, x: Tensor, lengths: Tensor | None, need_weights: bool, average: bool
    ) -> tuple[Tensor, Tensor | None]:
        if not need_weights:
            return self.layer(x, lengths), None
        if isinstance(self.layer, AttendingLayer):
            y, weights = self.layer.attend(x, lengths)
        else:
            record = self.layer.explain(x, lengths)
            y, weights = self.layer(x, lengths), record.weights[..., record.first_source :]
        return y, weights.mean(1) if average else weights

    def _require_meaning(self, attn_mask: Tensor | None, is_causal: bool, time: int) -> None:
        """Raise ValueError unless a mask hides what the layer does not see: all later positions, or nothing."""
        causal, name = getattr(self.layer, "causal", True), type(self.layer).__name__
        if is_causal and not causal:
            raise ValueError(f"is_causal=True, but the {name} has causal=False")
        if attn_mask is None:
            return
        if attn_mask.dim() < 2 or attn_mask.shape[-2:] != (time, time):
            raise ValueError(
                f"attn_mask has shape {tuple(attn_mask.shape)}; expected (.., T, T) = (.., {time}, {time})"
            )
        hidden = _hidden("attn_mask", attn_mask)
        expected = torch.ones_like(hidden).triu(1) if causal else torch.zeros_like(hidden)
        meaning = "all later positions and no others" if causal else "nothing: it has causal=False"
        checked_false(
            hidden != expected, f"attn_mask hides other positions than the {name}; expected one that hides {meaning}"
        )


class _NoWeights:
    """In the place of an output projection: whoever would compute with its weights instead of calling the layer cannot.

    Torch's fused operators are for tensors only, and this says by torch's protocol that it is something else.
    """

    @property
    def weight(self) -> "_NoWeights":
        return self

    bias = weight

    @classmethod
    def __torch_function__(cls, function: Any, *_: Any) -> Any:
        return NotImplemented


def _hidden(name: str, mask: Tensor) -> Bool[Tensor, "*axes"]:
    """Return where a mask of torch's two kinds hides something: where it is True, or -inf rather than 0."""
    if mask.dtype == torch.bool:
        return mask
    if not mask.is_floating_point():
        raise ValueError(f"{name} has dtype {mask.dtype}; expected torch.bool, or floating-point with 0 and -inf")
    hidden = mask == -torch.inf
    return hidden & checked_false(
        ~hidden & (mask != 0), f"{name} has numbers other than 0 and -inf; expected no others"
    )


def _padding(mask: Tensor, batch: int, time: int) -> tuple[Int[Tensor, " batch"], Int[Tensor, " batch"]]:
    """Return the position at which each sequence starts, and its length."""
    require_shape("key_padding_mask", mask, (batch, time), "(B, T)")
    real = ~_hidden("key_padding_mask", mask)
    start, lengths = (real.cumsum(1) == 0).sum(1), real.sum(1)
    gaps = real != (inside(start + lengths, time) & ~inside(start, time))
    message = "key_padding_mask has padding in the middle of a sequence; expected it at the beginning or the end"
    return start, lengths * checked_false(gaps, message).all(1)


def _rolled(x: Tensor, start: Int[Tensor, " batch"], dim: int) -> Tensor:
    """Roll each member of a batch along an axis, so that its position ``start`` becomes the first."""
    dim %= x.dim()
    size = x.shape[dim]
    index = (torch.arange(size, device=x.device) + start[:, None]) % max(size, 1)
    return x.take_along_dim(index.view(x.shape[0], *(size if axis == dim else 1 for axis in range(1, x.dim()))), dim)
