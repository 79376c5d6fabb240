"""Log-probabilities of given texts."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class TokenScore:
    """Log-probability of a token of a text, in nats.

    Args:
        token: as it stands in the vocabulary.
        log_probability: given the tokens before it, and the source of a translation; of a masked model, given all
            other tokens. That of an <unk> that is spelled includes its spelling.
    """

    token: str
    log_probability: float


@dataclass(frozen=True)
class Score:
    """Log-probability of a text, of a translation given its source, or pseudo-log-probability of a masked model.

    Args:
        log_probability: the sum over the tokens, in nats.
        num_tokens: <eos> included, but for masked models, which do not predict it; characters of spellings are not
            counted.
        tokens: the score of each token; None if not asked for.
    """

    log_probability: float
    num_tokens: int
    tokens: tuple[TokenScore, ...] | None = None


def score_of(symbols: Sequence[str], ids: Sequence[int], log_probs: Sequence[float], per_token: bool) -> Score:
    """Return the score of a text.

    Args:
        symbols: of the vocabulary.
        ids: the tokens that are scored.
        log_probs: of these tokens.
        per_token: whether to return the scores of the tokens.
    """
    tokens = tuple(TokenScore(symbols[token], each) for token, each in zip(ids, log_probs, strict=True))
    return Score(sum(log_probs), len(ids), tokens if per_token else None)
