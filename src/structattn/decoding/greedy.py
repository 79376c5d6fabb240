"""Decoding with one hypothesis for each sentence: the loop shared by greedy search and sampling, and greedy search."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from structattn.decoding.batches import MaxLengths, check_max_lengths, check_prefixes
from structattn.decoding.continuations import forced_classes, with_log_normalizer
from structattn.decoding.stepper import DecoderState, DecodingStart, Hypothesis, Stepper
from structattn.operators.common.states import Selectable
from structattn.support.shapes import Float, Int
from structattn.support.special_tokens import EOS_CLASS, PAD, id_of

ChooseClasses = Callable[[Float[Tensor, "open classes"], Int[Tensor, " open"]], Int[Tensor, " open"]]
"""Returns the class to take for each unfinished sentence, given logits and the sentences' indices in the batch."""

IsComplete = Callable[[int, Sequence[int]], bool]
"""Returns whether a text, given as all its ids so far, ends here although it has no <eos>."""


def greedy_search(
    model: Stepper, start: DecodingStart, max_lengths: MaxLengths, prefixes: Sequence[Sequence[int]] | None = None
) -> list[Hypothesis]:
    """Take the most probable token at each step, the one of lower id among equals.

    Args:
        model: in evaluation mode.
        start: the sentences, from ``start_translation`` or ``start_continuation``.
        max_lengths: the maximum number of tokens of each text, <eos> and prefix included; one number for all, or one
            for each sentence.
        prefixes: ids, without <bos>, that each text must begin with.

    Returns:
        One hypothesis for each sentence, unfinished where it was cut at the maximum length. Its score is its
        log-probability.

    Raises:
        ValueError: the model returns NaN or +inf, or ``max_lengths`` or ``prefixes`` is invalid.
    """
    return decode_loop(model, start, lambda logits, _: logits.argmax(1), max_lengths, prefixes)


@dataclass(frozen=True)
class _OpenSentences(Selectable):
    """The sentences that are not finished.

    Args:
        tokens: the next one to give to the model.
    """

    sentences: Int[Tensor, " open"]
    tokens: Int[Tensor, " open"]
    state: DecoderState

    def keep(self, kept: Tensor) -> "_OpenSentences":
        """Return those where ``kept`` is true."""
        return self if bool(kept.all()) else self.select(kept.nonzero()[:, 0])


@torch.no_grad()
def decode_loop(
    model: Stepper,
    start: DecodingStart,
    choose: ChooseClasses,
    max_lengths: MaxLengths,
    prefixes: Sequence[Sequence[int]] | None,
    is_complete: IsComplete | None = None,
    num_eos: int = 1,
) -> list[Hypothesis]:
    """Decode one text for each sentence, until it has ``num_eos`` <eos> or the maximum length, or ``is_complete``.

    Finished sentences leave the batch. A text is cut where the model forbids every token (all logits are -inf).

    Raises:
        ValueError: the model returns NaN or +inf, or ``max_lengths`` or ``prefixes`` is invalid.

    Cost: one step of the model for each token of the longest text, with one row for each unfinished text.
    """
    batch_size, device = len(start.tokens), start.tokens.device
    limits = check_max_lengths(max_lengths, batch_size)
    forced = check_prefixes(prefixes, limits, device)
    longest = int(limits.max()) if batch_size else 0
    limits = limits.to(device)
    texts = torch.zeros(batch_size, longest, dtype=torch.int64, device=device)
    totals = torch.zeros(batch_size, dtype=torch.float32, device=device)
    num_ended = torch.zeros(batch_size, dtype=torch.int64, device=device)
    current = _OpenSentences(torch.arange(batch_size, device=device), start.tokens, start.state)
    current = current.keep(limits > 0)
    for length in range(longest):
        logits, state = model.step(current.tokens, current.state)
        logits, log_normalizer = with_log_normalizer(logits)
        sentences = current.sentences
        classes = choose(logits, sentences)
        if length < forced.shape[1]:
            required = forced_classes(forced[sentences, length], logits.shape[1])
            classes = torch.where(required < 0, classes, required)
        log_probs = logits.gather(1, classes[:, None])[:, 0] - log_normalizer
        possible = (logits > -torch.inf).any(1)
        totals = totals.to(logits.dtype).index_add(0, sentences, torch.where(possible, log_probs, 0))
        texts[sentences, length] = torch.where(possible, id_of(classes), PAD)
        num_ended[sentences] += (classes == EOS_CLASS).long()
        unfinished = possible & (num_ended[sentences] < num_eos) & (limits[sentences] > length + 1)
        if is_complete is not None:
            so_far = zip(sentences.tolist(), texts[sentences, : length + 1].tolist(), strict=True)
            complete = [is_complete(*each) for each in so_far]
            unfinished &= ~torch.tensor(complete, device=device)
        if not bool(unfinished.any()):
            break
        current = _OpenSentences(sentences, id_of(classes), state).keep(unfinished)
    return [
        Hypothesis(tuple(token for token in text if token != PAD), total, total, num_eos)
        for text, total in zip(texts.tolist(), totals.tolist(), strict=True)
    ]
