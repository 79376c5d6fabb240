"""Automata, their grammars, and the symbols that can follow, against enumeration."""

import random
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from structattn.extraction.automaton import BOTTOM, Configuration, PushdownAutomaton, Start, Transition
from structattn.extraction.comparison import compare, prefix_pairs
from structattn.extraction.configurations import Simulator
from structattn.extraction.minimization import minimized, simplified, unmerged
from structattn.extraction.to_grammar import grammar_of
from structattn.support.errors import UsageError
from structattn.tasks.formal_languages.context_free import ContextFreeLanguage
from structattn.tasks.formal_languages.grammar import EmptyLanguageError, Grammar, Rule, normalized, rule
from structattn.tasks.formal_languages.language_files.grammar_file import grammar_text
from structattn.tasks.formal_languages.language_files.language_file import read_language_file
from structattn.tasks.formal_languages.next_symbols import END, Recognizer, contains, following
from structattn.tasks.formal_languages.registry import GRAMMARS

REVERSAL = PushdownAutomaton(
    ("0", "1", "#"),
    frozenset([Start(0, (0,))]),
    {
        **{Transition(0, bit, top, "push", 0, item): 1 for bit, item in (("0", 1), ("1", 2)) for top in range(3)},
        **{Transition(0, "#", top, "replace", 1, top): 1 for top in range(3)},
        **{Transition(1, bit, item, "pop", 1, None): 1 for bit, item in (("0", 1), ("1", 2))},
    },
    frozenset([Configuration(1, 0)]),
)


def strings(alphabet, longest):
    return [string for length in range(longest + 1) for string in product(alphabet, repeat=length)]


def accepts(automaton, string):
    """Follow every run, with whole stacks: the definition."""
    now = {(each.control, each.stack) for each in automaton.starts}
    for symbol in string:
        after = set()
        for (control, stack), each in product(now, automaton.transitions):
            if (each.source, each.symbol, each.top) == (control, symbol, stack[-1]):
                rest = stack if each.action == "push" else stack[:-1]
                new = rest if each.item is None else (*rest, each.item)
                if new:
                    after.add((each.target, new))
        now = after
    return any((control, stack[-1]) in automaton.finals for control, stack in now)


def next_symbols(language, alphabet, longest):
    """Return prefix -> symbols that can follow, of a finite language given as a set of strings, for short prefixes."""
    found = {}
    for string in language:
        for length in range(len(string) + 1):
            found.setdefault(string[:length], set()).add(string[length] if length < len(string) else END)
    return {prefix: following for prefix, following in found.items() if len(prefix) <= longest}


def random_automaton(seed):
    draw = random.Random(seed)
    transitions = {}
    for _ in range(draw.randint(4, 12)):
        action = draw.choice(("push", "replace", "pop"))
        item = None if action == "pop" else draw.randrange(3)
        each = Transition(draw.randrange(3), draw.choice("ab"), draw.randrange(3), action, draw.randrange(3), item)
        transitions[each] = 1
    finals = frozenset(Configuration(draw.randrange(3), draw.randrange(3)) for _ in range(2))
    return PushdownAutomaton(("a", "b"), frozenset([Start(0, (0,)), Start(1, (0, 1))]), transitions, finals)


@pytest.mark.parametrize("seed", range(40))
def test_grammar_and_simulation_of_an_automaton_are_its_language(seed):
    automaton = random_automaton(seed)
    members = {string for string in strings("ab", 7) if accepts(automaton, string)}
    try:
        grammar = grammar_of(automaton)
    except EmptyLanguageError:
        assert not members
        with pytest.raises(EmptyLanguageError):
            Simulator(automaton)
        return
    readers = Recognizer(grammar), Recognizer(simplified(grammar)), Simulator(automaton)
    for reader in readers:
        assert {string for string in strings("ab", 7) if contains(reader, string)} == members


def test_what_can_follow_is_that_of_all_strings():
    """Prefixes of up to 3 symbols and one more can be completed within 9 symbols."""
    words = ["".join(bits) for bits in strings("01", 4)]
    members = [tuple(f"{word}#{word[::-1]}") for word in words]
    expected = next_symbols(members, REVERSAL.alphabet, 3)
    for reader in (Simulator(REVERSAL), Recognizer(grammar_of(REVERSAL))):
        for string in strings(REVERSAL.alphabet, 3):
            found = following(reader, string)
            assert (len(found) > len(string)) == (string in expected)
            if string in expected:
                assert found[-1] == expected[string]


@pytest.mark.parametrize("name", ["dyck", "padded-reversal", "unmarked-reversal"])
def test_recognizer_has_the_strings_of_positive_probability(name):
    language = ContextFreeLanguage(name, "faithful", GRAMMARS[name]())
    recognizer = Recognizer(language.grammar)
    longest = 8 if len(language.alphabet) == 2 else 5
    drawn = strings(range(len(language.alphabet)), longest)
    log_probabilities = language.log_probabilities([np.array(string, dtype=np.int64) for string in drawn])
    for string, value in zip(drawn, log_probabilities, strict=True):
        assert contains(recognizer, [language.alphabet[each] for each in string]) == (value > -np.inf)


def test_recognizer_reads_empty_and_ambiguous_rules_and_drops_useless_ones():
    rules = (rule("S", "A S", 1), rule("S", "A", 1), rule("A", "", 1), rule("A", "a A b", 1), rule("S", "B", 1))
    grammar = Grammar("S", ("a", "b"), normalized((*rules, rule("B", "b B", 1))))
    found = {"".join(string) for string in strings("ab", 6) if contains(Recognizer(grammar), string)}
    assert found == {"", "ab", "aabb", "abab", "aaabbb", "aabbab", "abaabb", "ababab"}


def test_a_language_without_strings_is_refused():
    with pytest.raises(EmptyLanguageError):
        Recognizer(Grammar("S", ("a",), (Rule("S", ("a", "S"), Fraction(1)),)))


def test_minimal_form_keeps_the_language_and_merges_copies():
    copies = REVERSAL.renamed(lambda control: control, lambda item: item)
    doubled = PushdownAutomaton(
        REVERSAL.alphabet,
        REVERSAL.starts | {Start(5, (0,))},
        {
            **copies.transitions,
            **{each._replace(source=each.source + 5, target=each.target + 5): 1 for each in REVERSAL.transitions},
        },
        REVERSAL.finals | {Configuration(6, 0)},
    )
    assert (doubled.num_choices, doubled.is_deterministic) == (1, False), "where to start"
    minimal = minimized(doubled)
    assert len(minimal.automaton.controls) == 2
    assert minimal.automaton.is_deterministic
    assert compare(Simulator(minimal.automaton), Recognizer(GRAMMARS["marked-reversal"]()), "01#", 9).is_equal
    assert len(minimal.grammar.rules) <= 9


def chain(symbols):
    transitions = {Transition(i, symbol, 0, "replace", i + 1, 0): 1 for i, symbol in enumerate(symbols)}
    return PushdownAutomaton(
        tuple(dict.fromkeys(symbols)),
        frozenset([Start(0, (0,))]),
        transitions,
        frozenset([Configuration(len(symbols), 0)]),
    )


@pytest.mark.parametrize("symbols", ["abcdefghijkl", "aaaaaaaaaaaa", "abababababababababababab"])
def test_controls_beyond_the_first_prefixes_are_not_merged(symbols):
    whole, minimal = chain(symbols), minimized(chain(symbols))
    assert minimal.max_length >= len(symbols)
    assert compare(Simulator(minimal.automaton), Simulator(whole), whole.alphabet, 40).is_equal


def test_the_bottom_is_never_pushed_or_popped_after_merges():
    """It could be the item that is pushed on each a, since nothing is popped."""
    transitions = {Transition(control, "a", 1, "push", 1, 1): 1 for control in (0, 1)}
    finals = frozenset(Configuration(control, 1) for control in (0, 1))
    found = minimized(PushdownAutomaton(("a",), frozenset([Start(0, (BOTTOM, 1))]), transitions, finals)).automaton
    for each in found.transitions:
        assert each.item != BOTTOM
        assert (each.top, each.action) != (BOTTOM, "pop")
    assert next(iter(found.starts)).stack == (BOTTOM, 1)
    assert found.controls == (0,)


def test_items_above_a_replaced_bottom_are_not_named_like_it():
    only = {Transition(0, "a", 3, "replace", 0, 3): 1}
    automaton = PushdownAutomaton(("a",), frozenset([Start(0, (3,))]), only, frozenset([Configuration(0, 3)]))
    assert automaton.numbered().items == (1,)


def test_an_unmerged_automaton_has_the_same_language_and_its_grammar():
    whole = unmerged(REVERSAL)
    assert whole.max_length == 0
    for reader in (Simulator(whole.automaton), Recognizer(whole.grammar)):
        assert compare(reader, Simulator(REVERSAL), "01#", 7).is_equal


def test_the_grammar_is_read_by_prepare(tmp_path):
    path = tmp_path / "grammar.cfg"
    path.write_text(grammar_text(minimized(REVERSAL).grammar))
    language = read_language_file(path).language
    assert compare(Recognizer(language.grammar), Simulator(REVERSAL), "01#", 9).is_equal


def test_comparison_finds_the_shortest_counterexample():
    dyck = Recognizer(GRAMMARS["dyck"]())
    rules = [rule(*each, 1) for each in (("S", "S S"), ("S", "( S )"), ("S", "( )"), ("S", "[ T ]"), ("T", "( )"))]
    fewer = Recognizer(Grammar("S", ("(", ")", "[", "]"), normalized(rules)))
    found = compare(dyck, fewer, ("(", ")", "[", "]"), 6)
    assert found.counterexample == ("[", "]")
    assert found.in_first
    assert found.difference.prefix == ("[",)
    assert 0 < found.num_equal < found.num_prefixes
    assert compare(dyck, dyck, ("(", ")", "[", "]"), 6).is_equal


def test_comparison_ends_before_there_are_too_many_prefixes():
    dyck = Recognizer(GRAMMARS["dyck"]())
    assert 6 <= compare(dyck, dyck, ("(", ")", "[", "]"), 12, max_prefixes=500).max_length < 12
    with pytest.raises(UsageError, match=r"max_length=-1; expected a whole number of at least 0"):
        compare(dyck, dyck, ("(", ")", "[", "]"), -1)


def test_comparison_counts_prefixes_that_are_continued_alike_without_following_each():
    dyck, alphabet = Recognizer(GRAMMARS["dyck"]()), ("(", ")", "[", "]")
    apart = [each for layer in prefix_pairs(dyck, dyck, alphabet, 7, 20_000) for each in layer]
    assert compare(dyck, dyck, alphabet, 7).num_prefixes == len(apart)
    rules = (rule("S", "{ I }", 1), rule("I", "S I", 1), rule("I", "n I", 1), rule("I", "", 1))
    lists = Recognizer(Grammar("S", ("{", "}", "n"), normalized(rules)))
    found = compare(lists, lists, ("{", "}", "n"), 30, max_prefixes=2_000)
    assert found.max_length == 30
    assert found.num_prefixes > 10**6
