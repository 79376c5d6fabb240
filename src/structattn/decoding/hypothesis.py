"""What comes out of decoding."""

from dataclasses import dataclass

from structattn.support.special_tokens import EOS


@dataclass(frozen=True)
class Hypothesis:
    """One text that a model gave.

    Args:
        tokens: all ids after <bos>: a forced prefix, what follows, and <eos> where the text came to its end.
        log_probability: log p(tokens), in nats.
        score: what it was ranked by: log p under some length rule.
    """

    tokens: tuple[int, ...]
    log_probability: float
    score: float

    @property
    def finished(self) -> bool:
        """Whether the model ended the text; otherwise it was cut."""
        return self.tokens[-1:] == (EOS,)

    @property
    def text(self) -> tuple[int, ...]:
        """The ids without <eos>."""
        return self.tokens[:-1] if self.finished else self.tokens
