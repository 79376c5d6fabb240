"""Structured attention in transformers: stack attention and its baselines behind one contract.

The parts are imported by name (``structattn.operators``, ``structattn.attention``, ...), so that a part that needs no
torch, such as the command line's ``--help``, does not pay for importing it.
"""

from structattn.support.version import __version__ as __version__
