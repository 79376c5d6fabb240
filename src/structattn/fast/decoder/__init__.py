"""Translation models whose decoder runs in one kernel call for each step, or in one for each run of layers in it.

``accelerate_decoder`` returns such a model: to decoding it is like the model itself. It is checked against the modules
first, and follows their weights.
"""

from structattn.fast.decoder.check import accelerate_decoder
from structattn.fast.decoder.model import AcceleratedDecoder

__all__ = ["AcceleratedDecoder", "accelerate_decoder"]
