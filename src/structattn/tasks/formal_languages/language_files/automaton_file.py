"""Files of finite automata: a line ``q0 a q1 [0.5]`` for a transition, ``q1 [0.5]`` for the end of a string."""

from collections.abc import Sequence
from pathlib import Path

from structattn.support.errors import DataError
from structattn.tasks.formal_languages.language_files.draft import Draft, DraftRule
from structattn.tasks.formal_languages.language_files.tokens import Place, Syntax, Token, lines_of, weight_of

SYNTAX = Syntax(())
_EXPECTED = "expected STATE SYMBOL STATE [WEIGHT], or STATE [WEIGHT] for the end of a string"


def read_automaton(lines: Sequence[str], path: Path) -> Draft:
    """Read a finite automaton as a right-linear grammar: q0 -> a q1, and q1 -> ε where a string can end.

    The first state of the file is the start; the weights of a state are those of its transitions and of the end.

    Raises:
        DataError: a line has another form, or a state has neither transitions nor an end; the message names the place.
    """
    terminals: dict[str, Place] = {}
    targets: dict[str, Place] = {}
    rules: list[DraftRule] = []
    for *tokens, end in lines_of(SYNTAX.tokens(lines, path)):
        weight = weight_of(tokens.pop()) if tokens[-1].kind == "weight" else None
        state, *transition = tokens or [end]
        if not state.is_symbol or not _is_transition(transition):
            raise state.place.error(f"found a line of another form; {_EXPECTED}")
        right: tuple[str, ...] = ()
        if transition:
            symbol, target = transition
            targets.setdefault(_name(target), target.place)
            right = (_name(target),)
            if symbol.is_symbol:
                terminals.setdefault(symbol.text, symbol.place)
                right = (symbol.text, *right)
        rules.append(DraftRule(_name(state), right, weight, state.place))
    if not rules:
        raise DataError(path, f"has no transitions; {_EXPECTED}")
    for name in targets.keys() - {each.left for each in rules}:
        raise targets[name].error(f"{_shown(name)} has no transitions, and no string ends there; {_EXPECTED}")
    return Draft(path, rules[0].left, terminals, tuple(rules), shown=_shown)


def _is_transition(tokens: Sequence[Token]) -> bool:
    """Return whether tokens are a symbol, or ε, and a state; or none, for the end of a string."""
    if len(tokens) != 2:
        return not tokens
    symbol, target = tokens
    return (symbol.is_symbol or symbol.is_empty) and target.is_symbol


def _name(state: Token) -> str:
    return f"state:{state.text}"


def _shown(name: str) -> str:
    return name.replace(":", " ", 1)
