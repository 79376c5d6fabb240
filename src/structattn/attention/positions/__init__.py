"""What tells a layer where it is. A model without positions is given None."""

from structattn.attention.positions.sinusoidal import SinusoidalPositions

__all__ = ["SinusoidalPositions"]
