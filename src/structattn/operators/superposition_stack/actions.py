"""The actions of the superposition stack."""

from enum import IntEnum


class SuperpositionAction(IntEnum):
    """Where each action stands on the last axis of ``actions``."""

    PUSH = 0
    NO_OP = 1
    POP = 2
