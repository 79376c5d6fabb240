"""The actions of the stratified stack."""

from enum import IntEnum


class StratifiedAction(IntEnum):
    """Where each strength stands on the last axis of ``actions``."""

    PUSH = 0
    POP = 1
