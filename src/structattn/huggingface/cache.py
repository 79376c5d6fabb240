"""Stack states that live in a key/value cache, and go with it through reordering, copying and resetting."""

import torch
from torch import Tensor
from transformers import Cache, EncoderDecoderCache
from transformers.cache_utils import DynamicLayer

from structattn.huggingface.history import StackHistory


class StackCacheLayer(DynamicLayer):
    """One layer's keys and values, and the history of its stack.

    It does not crop, so that generation with an assistant or by prompt look-up is refused: steps of a stack cannot be
    taken back.
    """

    is_croppable = False

    def __init__(self) -> None:
        super().__init__()
        self.stack: StackHistory | None = None

    def reset(self) -> None:
        """Forget everything."""
        super().reset()
        self.stack = None

    def crop(self, tokens_to_remove: int) -> None:
        """Refuse to.

        Raises:
            NotImplementedError: there is something to remove.
        """
        if tokens_to_remove:
            raise NotImplementedError(
                "a stack cannot take back its steps, so its cache cannot be cropped; generate without an assistant "
                "model and without prompt look-up"
            )

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Sequence i goes on from where sequence ``beam_idx[i]`` was."""
        super().reorder_cache(beam_idx)
        self._select(beam_idx)

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Each sequence ``repeats`` times, one beside the other."""
        super().batch_repeat_interleave(repeats)
        self._select(self._rows().repeat_interleave(repeats))

    def batch_select_indices(self, indices: Tensor) -> None:
        """Only some of the sequences; ``indices`` may also be a mask."""
        super().batch_select_indices(indices)
        self._select(self._rows()[indices.cpu()])

    def _rows(self) -> Tensor:
        return torch.arange(0 if self.stack is None else self.stack.batch_size)

    def _select(self, indices: Tensor) -> None:
        self.stack = None if self.stack is None else self.stack.select(indices)


def stack_cache_layer(cache: Cache | None, index: int) -> StackCacheLayer | None:
    """The cache's layer ``index``, which is made to hold a stack's history where it is still empty.

    Raises:
        ValueError: the cache is not a dynamic one, or was filled without the stack.
    """
    if cache is None:
        return None
    layers = (cache.self_attention_cache if isinstance(cache, EncoderDecoderCache) else cache).layers
    while len(layers) <= index:  # a cache that was made without a configuration makes its layers as they come
        layers.append(DynamicLayer())
    if type(layers[index]) is DynamicLayer and layers[index].get_seq_length() == 0:
        layers[index] = StackCacheLayer()
    layer = layers[index]
    if not isinstance(layer, StackCacheLayer):
        raise ValueError(
            f"layer {index} of the cache is a {type(layer).__name__} of {layer.get_seq_length()} positions; a model "
            "with stacks needs a DynamicCache that nothing but itself has filled"
        )
    return layer
