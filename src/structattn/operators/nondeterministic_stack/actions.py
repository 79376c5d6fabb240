"""The kinds of transition of the automaton."""

from enum import IntEnum


class StackAction(IntEnum):
    """What a step does to the stack, as `nondeterministic_stack_best_run` numbers it."""

    PUSH = 0
    REPLACE = 1
    POP = 2
