"""Decoding with one hypothesis for each sentence: what greedy search and sampling have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from structattn.decoding.hypothesis import Hypothesis
from structattn.decoding.limits import Limits, checked_limits, checked_prefixes
from structattn.decoding.logits import at_least_single, log_normalizer
from structattn.decoding.stepper import DecoderState, Start, Stepper
from structattn.support.special_tokens import EOS_CLASS, PAD, class_of, id_of

Choose = Callable[[Float[Tensor, "open classes"], Int[Tensor, " open"]], Int[Tensor, " open"]]
"""Of the logits of the sentences that go on, and their numbers, the classes that are taken."""


@dataclass
class _Open:
    """The sentences that still go on, by their numbers: the token that each reads next, and the state before it."""

    sentences: Int[Tensor, " open"]
    tokens: Int[Tensor, " open"]
    state: DecoderState

    def only(self, going_on: Tensor) -> "_Open":
        """Those of them that go on."""
        if bool(going_on.all()):
            return self
        rows = going_on.nonzero()[:, 0]
        return _Open(self.sentences[rows], self.tokens[rows], self.state.select(rows))


@torch.no_grad()
def one_by_one(
    model: Stepper, start: Start, choose: Choose, limits: Limits, prefixes: Sequence[Sequence[int]] | None
) -> list[Hypothesis]:
    """One text for each sentence, each token chosen from the logits after those before it, until <eos> or the limit.

    Finished sentences leave the batch. A text that nothing may follow, all logits being -inf, is cut there.
    Cost: a step of the model for each token of the longest text, with as many rows as there are open texts.
    """
    batch, device = len(start.tokens), start.tokens.device
    limits = checked_limits(limits, batch)
    forced = checked_prefixes(prefixes, limits, device)
    longest = int(limits.max()) if batch else 0
    limits = limits.to(device)
    texts = torch.zeros(batch, longest, dtype=torch.int64, device=device)
    totals = torch.zeros(batch, device=device)
    rest = _Open(torch.arange(batch, device=device), start.tokens, start.state).only(limits > 0)
    for length in range(longest):
        logits, state = model.step(rest.tokens, rest.state)
        logits, numbers = at_least_single(logits), rest.sentences
        chosen = choose(logits, numbers)
        if length < forced.shape[1]:
            ids = forced[numbers, length]
            chosen = torch.where(ids == PAD, chosen, class_of(ids))
        gained = logits.gather(1, chosen[:, None])[:, 0] - log_normalizer(logits)
        possible = (logits > -torch.inf).any(1)
        totals = totals.to(logits.dtype).index_add(0, numbers, torch.where(possible, gained, 0))
        texts[numbers, length] = torch.where(possible, id_of(chosen), PAD)
        going_on = possible & (chosen != EOS_CLASS) & (limits[numbers] > length + 1)
        if not bool(going_on.any()):
            break
        rest = _Open(numbers, id_of(chosen), state).only(going_on)
    return [
        Hypothesis(tuple(token for token in text if token != PAD), total, total)
        for text, total in zip(texts.tolist(), totals.tolist(), strict=True)
    ]
