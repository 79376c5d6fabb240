"""What tells a layer where it is. A model without positions is given None.

Added to the embeddings: ``positions(first, count)`` gives (count, d). Acting on the scores of attention:
``ScorePositions``.
"""

from structattn.attention.positions.alibi import AlibiPositions
from structattn.attention.positions.contract import ScorePositions
from structattn.attention.positions.learned import LearnedPositions
from structattn.attention.positions.relative import RelativePositions
from structattn.attention.positions.rotary import RotaryPositions
from structattn.attention.positions.sinusoidal import SinusoidalPositions

__all__ = [
    "AlibiPositions",
    "LearnedPositions",
    "RelativePositions",
    "RotaryPositions",
    "ScorePositions",
    "SinusoidalPositions",
]
