"""Strict reading and normalization of text."""

from structattn.data.text.normalization import Normalization
from structattn.data.text.reading import Line, Notices, read_lines

__all__ = ["Line", "Normalization", "Notices", "read_lines"]
