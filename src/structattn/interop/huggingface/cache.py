"""Key/value cache layer that also holds the state of a stack."""

import torch
from torch import Tensor
from transformers import Cache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer

from structattn.interop.huggingface.history import StackHistory


class StackCacheLayer(DynamicLayer):
    """Keys, values and stack history of one layer.

    It cannot be cropped, because the steps of a stack cannot be undone. Assisted generation and prompt lookup, which
    crop, raise an error.
    """

    is_croppable = False

    def __init__(self) -> None:
        super().__init__()
        self.stack: StackHistory | None = None

    def reset(self) -> None:
        """Clear keys, values and history."""
        super().reset()
        self.stack = None

    def crop(self, tokens_to_remove: int) -> None:
        """Raise an error if there is anything to remove.

        Raises:
            NotImplementedError: ``tokens_to_remove`` is not 0.
        """
        if tokens_to_remove:
            raise NotImplementedError(
                "the cache of a model with stacks cannot be cropped; generate without an assistant model and without "
                "prompt lookup"
            )

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
        return torch.arange(0 if self.stack is None else self.stack.batch_size)

    def _select(self, indices: Tensor) -> None:
        self.stack = None if self.stack is None else self.stack.select(indices)


def stack_cache_layer(cache: Cache | None, index: int) -> StackCacheLayer | None:
    """Return layer ``index`` of the cache, after replacing an empty layer by a ``StackCacheLayer``.

    Raises:
        ValueError: the cache is not dynamic, or was filled by a model without stacks.
    """
    if cache is None:
        return None
    layers = (cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache).layers
    while len(layers) <= index:  # without a configuration, a cache creates its layers lazily
        layers.append(DynamicLayer())
    if type(layers[index]) is DynamicLayer and layers[index].get_seq_length() == 0:
        layers[index] = StackCacheLayer()
    layer = layers[index]
    if not isinstance(layer, StackCacheLayer):
        raise ValueError(
            f"layer {index} of the cache is a {type(layer).__name__} of {layer.get_seq_length()} positions; a model "
            "with stacks needs a DynamicCache that only it has filled"
        )
    return layer
