"""Stack manipulation: a stack, operations on it, and the stack that they leave."""

from numpy.random import Generator

from structattn.tasks.recognition.copies import word
from structattn.tasks.recognition.language import FlareLanguage, NextSymbols, String

ALPHABET = ("0", "1", "PUSH", "POP", "#")
PUSH, POP, MARK, END = 2, 3, 4, 5


def _sizes_of(length: int) -> list[tuple[int, int]]:
    """Return the numbers of initial symbols a and of pushes b with 2 a + 3 b + 1 = length."""
    pushes = (b for b in range(length // 3 + 1) if length - 1 >= 3 * b and (length - 1 - 3 * b) % 2 == 0)
    return [((length - 1 - 3 * b) // 2, b) for b in pushes]


def _run(initial: int, pushes: int, generator: Generator) -> String:
    """Draw operations until a push is drawn after the last one; pops do not change the length of the string."""
    stack = [*word(initial, 2, generator)]
    string = [*stack]
    while True:
        if stack and generator.random() < 0.5:
            stack.pop()
            string.append(POP)
        elif pushes:
            stack.append(int(generator.integers(2)))
            string += [PUSH, stack[-1]]
            pushes -= 1
        else:
            return (*string, MARK, *reversed(stack))


def _sample(length: int, generator: Generator) -> String:
    possible = _sizes_of(length)
    return _run(*possible[generator.integers(len(possible))], generator)


def _draw(high: int, generator: Generator) -> String:
    initial = int(generator.integers((high - 1) // 2 + 1))
    return _run(initial, int(generator.integers((high - 1 - 2 * initial) // 3 + 1)), generator)


def _operations(string: String) -> tuple[list[int], list[int]] | None:
    """Return the initial stack and the operations before #, -1 for a pop or the pushed bit; None if ill-formed."""
    initial: list[int] = []
    while len(initial) < len(string) and string[len(initial)] < PUSH:
        initial.append(string[len(initial)])
    operations, place = [], len(initial)
    while place < len(string) and string[place] != MARK:
        if string[place] == POP:
            operations.append(-1)
            place += 1
        elif string[place] == PUSH and place + 1 < len(string) and string[place + 1] < PUSH:
            operations.append(string[place + 1])
            place += 2
        else:
            return None
    return None if place == len(string) else (initial, operations)


def _result(string: String) -> list[int] | None:
    """Return the stack that the operations leave, top first; None if they are ill-formed or pop an empty stack."""
    found = _operations(string)
    if found is None:
        return None
    stack, operations = found
    for operation in operations:
        if operation >= 0:
            stack.append(operation)
        elif stack:
            stack.pop()
        else:
            return None
    return stack[::-1]


def _accepts(string: String) -> bool:
    result = _result(string)
    return result is not None and string[string.index(MARK) + 1 :] == tuple(result)


def _next_symbols(string: String) -> NextSymbols:
    """Return the sets as functions of the prefix: PUSH always, POP if the stack is not empty."""
    depth, found, can_extend, place = 0, [frozenset({0, 1, PUSH, MARK})], True, 0
    while string[place] != MARK:
        symbol = string[place]
        can_extend &= symbol < PUSH
        depth += -1 if symbol == POP else 1
        if symbol == PUSH:
            found.append(frozenset({0, 1}))
            place += 1
        operations = {PUSH, MARK} | ({POP} if depth else set()) | ({0, 1} if can_extend else set())
        found.append(frozenset(operations))
        place += 1
    return found + [frozenset({symbol}) for symbol in (*string[place + 1 :], END)]


def _has_shape(string: String) -> bool:
    """Return whether bits are followed by operations, # and bits."""
    return _operations(string) is not None and max(string[string.index(MARK) + 1 :], default=0) < PUSH


STACK_MANIPULATION = FlareLanguage(
    "stack-manipulation",
    "a stack, operations on it, and the stack that they leave, top first",
    ALPHABET,
    lambda length: bool(_sizes_of(length)),
    _sample,
    _accepts,
    _next_symbols,
    (0, 0, 1, 2, 3),
    _has_shape,
    draw_one=_draw,
)
