"""Positional encodings.

Added to embeddings, by ``positions(first, count)`` -> (count, d):

- ``SinusoidalPositions``: fixed sines and cosines (Vaswani et al. 2017)
- ``LearnedPositions``: one learned vector per position

Applied to attention scores, as ``ScorePositions``:

- ``AlibiPositions``: a bias that is linear in the distance (Press et al. 2022)
- ``RelativePositions``: learned scores of offsets (Dai et al. 2019)
- ``RotaryPositions``: rotated queries and keys (Su et al. 2021)
"""

from typing import TYPE_CHECKING

from structattn.support.imports import lazy_exports

if TYPE_CHECKING:
    from structattn.attention.positions.absolute import LearnedPositions, SinusoidalPositions
    from structattn.attention.positions.biases import AlibiPositions, RelativePositions, ScorePositions
    from structattn.attention.positions.rotary import RotaryPositions

__all__ = [
    "AlibiPositions",
    "LearnedPositions",
    "RelativePositions",
    "RotaryPositions",
    "ScorePositions",
    "SinusoidalPositions",
]

__getattr__, __dir__ = lazy_exports(__name__)
