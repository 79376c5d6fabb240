"""Grammars from files: probabilities, against every derivation; notation; messages; grammars written and read again."""

import math
from fractions import Fraction
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from structattn.support.errors import DataError
from structattn.support.seeds import numpy_generator
from structattn.tasks.formal_languages.context_free import ContextFreeLanguage
from structattn.tasks.formal_languages.grammar import Grammar, rule
from structattn.tasks.formal_languages.language_files.grammar_file import grammar_text
from structattn.tasks.formal_languages.language_files.language_file import parse_language_file
from structattn.tasks.formal_languages.registry import GRAMMARS, formal_language

F = Fraction
CASES = {
    "counting": ("S -> a S b [0.4] | a b [0.6]", {"S": {"a S b": F(2, 5), "a b": F(3, 5)}}),
    "palindromes": (
        "P -> 0 P 0 [1/3]\nP -> 1 P 1 [1/3]\n  | 0 | 1 | ε",
        {"P": {"0 P 0": F(1, 3), "1 P 1": F(1, 3), "0": F(1, 9), "1": F(1, 9), "": F(1, 9)}},
    ),
    "ambiguous": (
        "E -> E '+' E [.3] | '(' E ')' [0.2] | n",
        {"E": {"E + E": F(3, 10), "( E )": F(1, 5), "n": F(1, 2)}},
    ),
    "dyck": (
        "S -> S T [1/4] | ε [3/4]\nT → '(' S ')' [1/2] | \"[\" S ']' [1/2]  # two kinds",
        {"S": {"S T": F(1, 4), "": F(3, 4)}, "T": {"( S )": F(1, 2), "[ S ]": F(1, 2)}},
    ),
    "empty rules": (
        "S -> A B A c [1/2] | B [1/2]\nA -> a | ''\nB -> A A b A [1/3] | \"\" [2/3]",
        {
            "S": {"A B A c": F(1, 2), "B": F(1, 2)},
            "A": {"a": F(1, 2), "": F(1, 2)},
            "B": {"A A b A": F(1, 3), "": F(2, 3)},
        },
    ),
    "words": (
        "S -> NP VP\nNP -> the dog | the cat\nVP -> sleeps [3/4] | sees NP",
        {
            "S": {"NP VP": F(1)},
            "NP": {"the dog": F(1, 2), "the cat": F(1, 2)},
            "VP": {"sleeps": F(3, 4), "sees NP": F(1, 4)},
        },
    ),
    "brackets in symbols": (  # a part of the first alternative and one of the second are spelled <<c z> q>
        "S -> a <c z> q w | p b c z q w",
        {"S": {"a <c z> q w": F(1, 2), "p b c z q w": F(1, 2)}},
    ),
}


@pytest.fixture(params=CASES)
def case(request, language_of):
    """A language from a file, and its rules as they are meant."""
    text, rules = CASES[request.param]
    return language_of("case.cfg", text), rules


def test_probabilities_are_those_of_all_derivations(case, strings_of, ids_of):
    language, rules = case
    expected = strings_of(rules, 8)
    found = language.log_probabilities([ids_of(language, string) for string in expected])
    np.testing.assert_allclose(found, [math.log(p) for p in expected.values()], rtol=1e-12, atol=1e-14)
    for length in range(9):
        total = sum(p for string, p in expected.items() if len(string) == length)
        assert math.exp(language.log_length_probability(length)) == pytest.approx(float(total), rel=1e-12)


def test_all_other_strings_are_outside(case, strings_of):
    language, rules = case
    inside = strings_of(rules, 5)
    for length in range(6):
        strings = list(product(range(len(language.alphabet)), repeat=length))
        found = language.log_probabilities(np.array(strings, dtype=np.int64))
        accepted = {s for s, p in zip(strings, found, strict=True) if p > -math.inf}
        assert {tuple(language.alphabet[i] for i in s) for s in accepted} == {s for s in inside if len(s) == length}


def test_samples_have_the_frequencies_of_their_probabilities(case, strings_of):
    language, rules = case
    for length in language.valid_lengths(1, 6):
        expected = {string: float(p) for string, p in strings_of(rules, 6).items() if len(string) == length}
        drawn = language.sample(length, 4000, numpy_generator(1, "files", length))
        counts = dict.fromkeys(expected, 0)
        for string in drawn:
            counts[tuple(language.alphabet[index] for index in string)] += 1  # KeyError outside the language
        total = sum(expected.values())
        chi_square = sum((counts[s] - 4000 * p / total) ** 2 / (4000 * p / total) for s, p in expected.items())
        freedom = len(expected) - 1
        assert chi_square <= freedom + 5 * math.sqrt(2 * freedom)


def read(text):
    return parse_language_file("a.cfg", text, Path("a.cfg")).language.grammar


def test_weights_that_are_left_out_share_what_is_left():
    equal = read("S -> a S | b | c")
    assert [each.weight for each in equal.rules] == [F(1, 3)] * 3
    rest = read("S -> a S [0.5] | b [1/4] | c\nS -> d")
    assert [each.weight for each in rest.rules] == [F(1, 2), F(1, 4), F(1, 8), F(1, 8)]


def test_quotes_make_a_terminal_of_any_sign():
    grammar = read("""S -> '->' T "|" '[' ']' '#' "'" '"' 'ε' a'\nT -> '%' [1/1] # '""")
    assert grammar.alphabet == ("->", "|", "[", "]", "#", "'", '"', "ε", "a'", "%")
    assert read("S -> ' ' '\t'").alphabet == (" ", "\t")


def test_nonterminals_are_left_hand_sides_and_the_first_is_the_start():
    grammar = read("s->np' vp\nnp'->y\nvp -> x np'")
    assert (grammar.start, set(grammar.rules_of), grammar.alphabet) == ("s", {"s", "np'", "vp"}, ("y", "x"))


def test_directives():
    grammar = read("%start S\n%alphabet b a X c\nT -> a X\nS -> T b")
    assert (grammar.start, grammar.alphabet) == ("S", ("b", "a", "X", "c"))


def test_a_grammar_of_nltk():
    text = """
    S -> NP VP [1.0]
    NP -> Det N [0.5] | NP PP [0.25] | 'John' [0.1] | 'I' [0.15]
    Det -> 'the' [0.8] | 'my' [0.2]
    N -> 'man' [0.5] | 'telescope' [0.5]
    VP -> VP PP [0.1] | V NP [0.7] | V [0.2]
    V -> 'ate' [0.35] | 'saw' [0.65]
    PP -> P NP [1.0]
    P -> 'with' [0.61] | 'under' [0.39]
    """
    grammar = read(text)
    assert grammar.alphabet[:3] == ("John", "I", "the")
    assert grammar.rules_of["NP"][1].weight == F(1, 4)


BAD = {
    "": "a.cfg: has no rules",
    "# only a comment\n": "a.cfg: has no rules",
    "S": "a.cfg:1:2: found the end of the line after 'S'; expected ->",
    "S a": "a.cfg:1:3: found 'a' after 'S'; expected ->",
    "S '->' a": "a.cfg:1:3: found '->' after 'S'; expected ->",
    "'|' -> a": "a.cfg:1:1: found '|'; expected a nonterminal, without quotes",
    "'S' -> a": "a.cfg:1:1: found 'S'; expected a nonterminal, without quotes",
    "ε -> a": "a.cfg:1:1: found 'ε'; expected a nonterminal",
    "| a": "a.cfg:1:1: found '|'; expected a nonterminal",
    "S ->": "a.cfg:1:5: found the end of the line; expected symbols, or ε",
    "S -> a | | b": "a.cfg:1:10: found '|'; expected symbols, or ε",
    "S -> a -> b": "a.cfg:1:8: found '->'; expected one rule in a line",
    "S -> a [1] b": "a.cfg:1:12: found 'b' after a weight",
    "S -> [1]": "a.cfg:1:9: found the end of the line; expected symbols",
    "S -> é 'a": 'a.cfg:1:9: a quote "\'" that no other closes',  # the column of a byte
    "S -> a]": "a.cfg:1:7: ']' without its counterpart",
    "S -> a\u00a0b": "a.cfg:1:6: 'a\\xa0b' is not a symbol",
    "S -> \u00a0": "a.cfg:1:6: '\\xa0' is not a symbol",
    "S -> don't": 'a.cfg:1:6: "don\'t" is not a symbol',
    "S -> 'a'b": "a.cfg:1:6: a quote",
    "S -> a S b 0.3 | c 0.7": "a.cfg:1:12: 0.3 without brackets; expected [0.3], or '0.3' in quotes for a terminal",
    "S -> a S 1/3 | c": "a.cfg:1:10: 1/3 without brackets; expected [1/3]",
    "S -> a T": "a.cfg:1:8: T has no rule; expected one, or 'T' in quotes",
    "S -> 'S' | a": "a.cfg:1:6: 'S' is a terminal here, and has rules in line 1",
    "S -> a <eos>": "a.cfg:1:8: the symbol '<eos>' is reserved",
    "S -> <unk>": "a.cfg:1:6: the symbol '<unk>' is reserved",
    "S -> <root>\n<root> -> a": "the symbol '<root>' is reserved",
    "S -> 'New York' | a": "a.cfg:1:6: the symbol 'New York' has a space",
    "S -> " + "a" * 101: "a.cfg:1:6: 'aaaaaaaaaaaaaaaaaaaa'... has 101 characters; expected at most 100",
    "S -> a T\nT -> b T | S": "a.cfg:1:6: S derives no string",
    "S -> a | T\nT -> b T": "a.cfg:2:6: T derives no string",
    "S -> a\nT -> b": "a.cfg:2:6: T does not occur in any derivation from the start symbol S",
    "S -> ε": "a.cfg:1:6: the only string is empty",
    "S -> a | b | a": "a.cfg:1:14: S has the same alternative already in line 1",
    "S -> a [0.4] | b [0.5]": "a.cfg:1:6: the weights of S sum to 0.9; expected 1",
    "S -> a [0.4]\nS -> b [0.7]": "a.cfg:1:6: the weights of S sum to 1.1; expected 1",
    "S -> a [1/3] | b [1/3]": "a.cfg:1:6: the weights of S sum to 2/3; expected 1",
    "S -> a [1] | b": "a.cfg:1:6: the weights of S sum to 1; expected less than 1, for rules without a weight",
    "S -> a [0]": "a.cfg:1:8: the weight is '0'; expected a number above 0",
    "S -> a [1/0]": "a.cfg:1:8: the weight is '1/0'",
    "S -> a [-1]": "a.cfg:1:8: the weight is '-1'",
    "S -> a [1e-3]": "a.cfg:1:8: the weight is '1e-3'",
    "S -> a [x]": "a.cfg:1:8: the weight is 'x'",
    "S -> a [٣]": "a.cfg:1:8: the weight is '٣'",
    "S -> S | a": "a.cfg:1:6: S -> S is a cycle that adds no symbol; expected a finite number",
    "S -> a T\nT -> U | b\nU -> T | c": "T -> U -> T is a cycle that adds no symbol; expected",
    "S -> S S [0.4] | ε | a": "a.cfg:1:6: S -> S is a cycle that adds no symbol, as the symbols around it can be empty",
    "S -> a T\nT -> E T E [0.1] | b\nE -> ε | e": "a.cfg:2:6: T -> T is a cycle that adds no symbol, as the symbols",
    "S -> S S | a": "a.cfg:1:6: S: a step of a derivation replaces one by 1 on average",
    "S -> a T\nT -> U U [0.9] | b\nU -> T c [0.6] | d": "a.cfg:2:6: T and U: a step of a derivation replaces one by 1",
    "S -> a\n%begin S": "a.cfg:2:1: found '%begin'; expected %start SYMBOL",
    "%start T\nS -> a": "a.cfg:1:8: the start symbol T has no rule",
    "%start |\nS -> a": "a.cfg:1:8: found '|'; expected a symbol",
    "%alphabet a a\nS -> a": "a.cfg:1:13: 'a' is listed twice",
    "%alphabet a\nS -> a b": "a.cfg:2:8: 'b' has no rule and is not in %alphabet",
    "S -> " + " ".join("a" * 101): "a.cfg:1:6: the rule has 101 symbols; expected at most 100",
    "\n".join(f"S{i} -> a S{i + 1}" for i in range(1001)) + "\nS1001 -> a": "a.cfg: has 1002 nonterminals",
    "S -> " + " | ".join(f"a{i}" for i in range(1001)): "a.cfg: has 1001 terminals; expected at most 1000",
    "S -> " + " | ".join(f"a a{i % 999}" for i in range(6700)): "a.cfg: has 20100 symbols in all rules",
    "S -> " + " | ".join(f"a{i} [1/{10**60 + i}]" for i in range(99)): "denominator has more than 4096 bits",
    "S -> "
    + "X " * 60
    + "a\nX -> x | ε": "a.cfg: the grammar without empty and unary rules has more than 40000 symbols",
    "\n".join(f"S{i} -> S{i + 1} | 'x{i}'" for i in range(300))
    + "\nS300 -> b": "more than 20000 chains of unary rules",
    "S0 -> a S1\n"
    + "\n".join(f"S{i} -> S{i + 1} S{i + 1}" for i in range(1, 30))
    + "\nS30 -> ε [1/3] | a": "4096 bits",
    f"S -> A A A A | a\nA -> ε [1/{10**90}] | b": "a.cfg: a product of weights is below 2.23e-308",
    "".join(f"S{i} -> S{i + 1} [1/{10**90}] | 'x{i}'\n" for i in range(4))
    + "S4 -> a": "a.cfg: a product of weights is below 2.23e-308; expected greater weights",
}


@pytest.mark.parametrize("text", BAD, ids=[f"{index}" for index in range(len(BAD))])
def test_messages_name_place_and_expectation(text):
    with pytest.raises(DataError) as caught:
        read(text)
    assert BAD[text] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_place_in_a_long_file():
    with pytest.raises(DataError, match=r"^a\.cfg:3:11: 'b' is a terminal here, and has rules in line 4") as caught:
        read("# ü\n\nS -> ü | 'b'\nb -> c | S")
    assert (caught.value.line, caught.value.column) == (3, 11)


def test_consistency_can_be_waived():
    grammar = read("%inconsistent\nS -> S S [0.6] | a")
    assert [each.weight for each in grammar.rules] == [F(3, 5), F(2, 5)]
    with pytest.raises(DataError, match="S -> S is a cycle"):
        read("%inconsistent\nS -> S [0.6] | a")


def test_derivations_of_astronomic_length_have_an_expected_length():
    text = "\n".join(f"S{i} -> S{i + 1} S{i + 1}" for i in range(60)) + "\nS60 -> a"
    assert len(read(text).rules) == 61


@pytest.mark.parametrize("name", GRAMMARS)
def test_a_language_with_a_name_written_as_a_file_is_the_same(name):
    grammar = GRAMMARS[name]()
    text = grammar_text(grammar)
    assert read(text) == grammar
    named, written = formal_language(name), ContextFreeLanguage(name, "faithful", read(text))
    lengths = named.valid_lengths(20, 40)
    strings, again = (each.sample_each(lengths, numpy_generator(1)) for each in (named, written))
    assert [string.tobytes() for string in strings] == [string.tobytes() for string in again]
    assert named.log_probabilities(strings).tobytes() == written.log_probabilities(strings).tobytes()


@pytest.mark.parametrize(
    "grammar",
    [
        Grammar("S", ("a", "b"), (rule("T", "b", 1), rule("S", "a T", F(1, 2)), rule("S", "a", F(1, 2)))),
        Grammar("S", ("a", "b", "c"), (rule("S", "b T", F(1, 3)), rule("T", "", 1), rule("S", "a T a", F(2, 3)))),
        Grammar("S", ("'", "->", "%"), (rule("S", "' -> %", 1),)),
    ],
)
def test_what_is_written_is_read_as_equal(grammar):
    assert read(grammar_text(grammar)) == grammar


@pytest.mark.parametrize(
    ("grammar", "complaint"),
    [
        (Grammar("S", ("a",), (rule("S", "a", 2),)), "weights of S sum to 2"),
        (Grammar("S#", ("a",), (rule("S#", "a", 1),)), "cannot be written"),
        (Grammar("%S", ("a",), (rule("%S", "a", 1),)), "cannot be written"),
        (Grammar("S", ("a", "'\""), (rule("S", "a '\"", 1),)), "cannot be written"),
        (Grammar("S", ("a",), (rule("S", "S", F(1, 2)), rule("S", "a", F(1, 2)))), "cycle"),
        (Grammar("S\nT", ("a",), (rule("S\nT", "a", 1),)), "cannot be written"),
    ],
)
def test_what_no_file_can_hold_is_not_written(grammar, complaint):
    with pytest.raises(ValueError, match=complaint):
        grammar_text(grammar)


@pytest.mark.parametrize(
    ("one", "other"), [("'->'", "'%2d;>'"), ("'a b'", "'a|b'"), ("'[1/2]'", "'#'"), ("'\"'", '"\'"'), ("'→'", "s")]
)
def test_an_automaton_with_states_of_any_names_can_be_written_as_a_grammar(one, other):
    text = f"{one} a {other}\n{other} b {one}\n{one}\n"
    found = parse_language_file("a.fsa", text, Path("a")).language
    assert len(found.grammar.rules_of) == 2
    assert read(grammar_text(found.grammar)) == found.grammar


PIECES = [
    *("S", "T", "a", "b", "ε", "''", "'a'", '"T"', "'->'", "->", "→", "|", "[", "]", "[1/2]", "[0.5]", "[.25]", "[1]"),
    *("[1/0]", "(", ")", "*", "+", "?", "#", "%start", "%alphabet", "%inconsistent", " ", "\t", "\n", "'", '"', "\\"),
    *("<eos>", "<root>", "é", "\u00a0", "\u2028", "\r", "\0", "0", "1", "q", "S -> a S | b\n", "q a q\nq\n", "𝒮"),
]


@settings(max_examples=400, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=25).map(" ".join) | st.text(max_size=40))
def test_any_text_is_read_or_refused(text):
    for suffix in (".cfg", ".fsa", ".regex"):
        try:
            found = parse_language_file(f"a{suffix}", text, Path("a")).language
        except DataError as error:
            assert str(error).startswith("a")  # noqa: PT017
        else:
            assert read(grammar_text(found.grammar)) == found.grammar
            assert found.log_length_probability(3) <= 1e-9
