"""The source tokens that translations attend to, and the alignment of words that follows from them.

Hypotheses are processed once more, as whole sequences, to recover the attention weights.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from structattn.attention import Explanation
from structattn.decoding import Hypothesis, pad_sequences
from structattn.models import EncoderDecoder
from structattn.support.errors import UsageError
from structattn.support.shapes import Float, Int
from structattn.support.special_tokens import BOS
from structattn.text.folders.text_tokenizer import TextTokenizer
from structattn.text.tokenization.splitting import parts_of_tokens
from structattn.text.tokenization.tokenizers import get_level


@dataclass(frozen=True)
class EncodedSources:
    """A batch of source sentences as the models' inputs.

    Args:
        inputs: for each model, ids that end with <eos>, and the spellings of the ids past its vocabulary.
        lengths: number of tokens of each sentence, <eos> included.
        words: of each sentence, where tokens are words.
    """

    inputs: tuple[tuple[Int[Tensor, "batch source"], Int[Tensor, "rare characters"] | None], ...]
    lengths: Int[Tensor, " batch"]
    words: Sequence[Sequence[str]]


@torch.no_grad()
def attended_positions(
    models: Sequence[EncoderDecoder],
    sources: EncodedSources,
    sentences: Sequence[int],
    hypotheses: Sequence[Hypothesis],
) -> list[list[int]]:
    """Return, for each token of each hypothesis, the source token with the greatest attention weight.

    The weights are those from which the token was predicted, of the last layer with cross-attention, whatever its
    mechanism, averaged over its heads and over models; <eos> is excluded, and the first among equals is taken.

    Args:
        models: in evaluation mode.
        sources: a batch of sentences.
        sentences: of each hypothesis, the index of its sentence.
        hypotheses: translations. Past their length, results mean nothing.

    Raises:
        UsageError: a model has no cross-attention weights.
    """
    rows, inputs, lengths = decoder_inputs(sources, sentences, hypotheses)
    source_lengths = sources.lengths[rows]
    weights = torch.stack(
        [
            last_cross_attention(model.explain(source[rows], inputs, source_lengths, lengths, rare).decoder)
            for model, (source, rare) in zip(models, sources.inputs, strict=True)
        ]
    ).mean(0)
    is_word = torch.arange(weights.shape[2], device=weights.device) < source_lengths[:, None] - 1  # not <eos>
    positions: list[list[int]] = weights.masked_fill(~is_word[:, None], -1).argmax(2).tolist()
    return positions


def last_cross_attention(layers: Sequence[Explanation]) -> Float[Tensor, "batch time source"]:
    """Return the weights of the last layer with cross-attention, averaged over its heads.

    Raises:
        UsageError: no layer has cross-attention weights.
    """
    weights = [layer.weights for layer in layers if layer.sublayer == "cross"]
    if not weights:
        raise UsageError("no layer of the decoder has cross-attention weights, by which words are copied and aligned")
    return weights[-1].mean(1)


def decoder_inputs(
    sources: EncodedSources, sentences: Sequence[int], hypotheses: Sequence[Hypothesis]
) -> tuple[Int[Tensor, " rows"], Int[Tensor, "rows time"], Int[Tensor, " rows"]]:
    """Return the sentence of each hypothesis, its tokens as inputs of the decoder, and its length."""
    device = sources.lengths.device
    inputs, lengths = pad_sequences([[BOS, *hypothesis.tokens[:-1]] for hypothesis in hypotheses], device)
    return torch.tensor(sentences, device=device), inputs, lengths


Alignment = tuple[tuple[int, int], ...]
"""Links of words of a translation: index of the source word, and of the target word, from 0, in increasing order."""


def word_alignment(
    source: tuple[TextTokenizer, Sequence[int]], target: tuple[TextTokenizer, Sequence[int]], attended: Sequence[int]
) -> Alignment:
    """Return the alignment of words: two are linked if a token of the target word attends to one of the source word.

    Words are separated by spaces and tabs only. A line of these alone has no words, and so no links.

    Args:
        source: the tokenizer, and the ids of the source without <eos>.
        target: the tokenizer, and the ids of the translation without <eos>.
        attended: for each target token, the position of a source token.
    """
    split = get_level("word").split
    words = [parts_of_tokens(each, ids, split(each.decode(ids))) for each, ids in (source, target)]
    if any(-1 in of_side for of_side in words):
        return ()
    return tuple(sorted({(words[0][position], word) for word, position in zip(words[1], attended, strict=False)}))


def pharaoh(alignment: Alignment) -> str:
    """Return an alignment in the format of Pharaoh: ``0-0 1-2``, source words first."""
    return " ".join(f"{source}-{target}" for source, target in alignment)
