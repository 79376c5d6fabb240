"""The cache that carries the history of a stack beside keys and values."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import MappingProxyType
from typing import Any, Final

import torch
from torch import Tensor
from transformers import Cache, EncoderDecoderCache
from transformers.cache_utils import CacheLayerMixin, DynamicLayer, DynamicSlidingWindowLayer
from transformers.modeling_outputs import CausalLMOutputWithPast

from structattn.interop.huggingface.history import History, Stepping, empty_history, process_next
from structattn.interop.huggingface.padding import Padding, process_sequences
from structattn.support.shapes import Float, Shaped

CACHE_NAME: Final = "cache" if "cache" in {each.name for each in fields(CausalLMOutputWithPast)} else "past_key_values"
"""What transformers calls the cache of a call and of its outputs: since 5.24 by the first name."""


@dataclass(frozen=True)
class Piece:
    """The columns that the last call of a model has processed, and the history before them."""

    before: History
    x: Shaped[Tensor, "batch time ..."]
    padding: Padding | None

    def without_last(self, columns: int) -> "Piece":
        """Return the piece without its last columns."""
        kept = self.x.shape[1] - columns
        return Piece(self.before, self.x[:, :kept], None if self.padding is None else self.padding.first(kept))

    def after(self) -> History:
        """Return the history after the columns."""
        return self.before.postpone(self.x, self.padding)


class _WithHistory(CacheLayerMixin):
    """The part of a cache layer that holds a history, which is None before the first position.

    What was processed before the last call of the model cannot be cropped.
    """

    history: History | None = None
    newest: Piece | None = None

    @property
    def columns(self) -> int:
        """Number of positions so far, padding included."""
        return 0 if self.history is None else self.history.columns

    def process(
        self, layer: Stepping, x: Shaped[Tensor, "batch time ..."], padding: Padding | None
    ) -> Shaped[Tensor, "batch time ..."]:
        """Return the outputs of a layer or model at new positions: the first all at once, later ones by steps."""
        if self.history is None:
            self.newest = Piece(empty_history(layer, x.shape[0], x.device), x, padding)
            self.history = self.newest.after()
            return process_sequences(layer, x, padding)
        self.newest = Piece(self.history.caught_up(layer), x, padding)
        y, self.history = process_next(layer, self.newest.before, x, padding)
        return y

    def reset(self) -> None:
        """Clear the layer."""
        super().reset()
        self.history = self.newest = None

    def crop(self, tokens_to_remove: int) -> None:
        """Remove the last ``-tokens_to_remove`` positions.

        Raises:
            ValueError: they are more than those of the last call of the model.
        """
        last = 0 if self.newest is None else self.newest.x.shape[1]
        if -tokens_to_remove > last:
            raise ValueError(
                f"{-tokens_to_remove} positions are to be removed; only the {last} of the last call can be taken back"
            )
        super().crop(tokens_to_remove)
        if tokens_to_remove and self.newest is not None:
            self.newest = self.newest.without_last(-tokens_to_remove)
            self.history = self.newest.after()

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Let sequence i continue from the state of sequence ``beam_idx[i]``."""
        super().reorder_cache(beam_idx)
        self._select(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each sequence ``repeats`` times, next to each other."""
        super().batch_repeat_interleave(repeats)
        self._select(self._rows().repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Keep the given sequences; ``indices`` may also be a mask."""
        super().batch_select_indices(indices)
        self._select(self._rows()[indices.cpu()])

    def _rows(self) -> Tensor:
        return torch.arange(0 if self.history is None else self.history.batch_size)

    def _select(self, indices: Tensor) -> None:
        self.history, self.newest = None if self.history is None else self.history.select(indices), None


class StackCacheLayer(_WithHistory, DynamicLayer):
    """Keys, values and stack history of one layer."""

    def process(
        self, layer: Stepping, x: Float[Tensor, "batch time d_model"], padding: Padding | None
    ) -> Float[Tensor, "batch time d_model"]:
        """Return the outputs of a stack at the positions whose keys and values have just been added.

        Raises:
            ValueError: there are positions that the stack has not processed.
        """
        if self.columns + x.shape[1] != self.get_seq_length():
            raise ValueError(
                f"the cache holds {self.get_seq_length()} positions; expected {self.columns + x.shape[1]}: "
                f"{self.columns} that the stack has processed and {x.shape[1]} new ones"
            )
        return super().process(layer, x, padding)


class StackSlidingWindowLayer(StackCacheLayer, DynamicSlidingWindowLayer):
    """Keys and values of the newest positions, and stack history of all."""


_WITH_STACK: Mapping[type[DynamicLayer], type[StackCacheLayer]] = MappingProxyType(
    {DynamicLayer: StackCacheLayer, DynamicSlidingWindowLayer: StackSlidingWindowLayer}
)


def stack_cache_layer(cache: Cache | None, index: int) -> StackCacheLayer | None:
    """Return layer ``index`` of the cache, after making an empty layer a ``StackCacheLayer``.

    Raises:
        ValueError: the cache is not dynamic, or was filled by a model without stacks.
    """
    if cache is None:
        return None
    layers = (cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache).layers
    while len(layers) <= index:  # without a configuration, a cache creates its layers lazily
        layers.append(DynamicLayer())
    layer = layers[index]
    if layer.get_seq_length() == 0 and type(layer) in _WITH_STACK:
        layer.__class__ = _WITH_STACK[type(layer)]
    if not isinstance(layer, StackCacheLayer):
        raise ValueError(
            f"layer {index} of the cache is a {type(layer).__name__} of {layer.get_seq_length()} positions; a model "
            "with stacks needs a DynamicCache that only it has filled"
        )
    return layer


class _NoKeys(CacheLayerMixin):
    """A cache layer without keys and values, which has nothing to select or to crop."""

    is_croppable = True

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Do nothing."""

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        """Return what is given."""
        return key_states, value_states

    def get_max_length(self) -> int:
        """Return that there is no maximum."""
        return -1

    def crop(self, tokens_to_remove: int) -> None:
        """Do nothing."""

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Do nothing."""

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Do nothing."""

    def batch_select_indices(self, indices: Tensor) -> None:
        """Do nothing."""


class StateCacheLayer(_WithHistory, _NoKeys):
    """The history of a whole model of this package, the only layer of its cache."""

    def get_seq_length(self) -> int:
        """Return the number of positions so far."""
        return self.columns

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the number of positions after the next call, and the offset of the first."""
        return self.columns + query_length, 0
