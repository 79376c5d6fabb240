"""Tasks that turn strings into others: the Chomsky-hierarchy suite (Delétang et al. 2023), made on the fly."""

from structattn.data.transductions.registry import TRANSDUCTIONS, transduction
from structattn.data.transductions.transduction import Pairs, Strings, Transduction

__all__ = ["TRANSDUCTIONS", "Pairs", "Strings", "Transduction", "transduction"]
