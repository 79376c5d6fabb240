"""Regular expressions from files, against ``re`` and against the rules that they stand for."""

import math
import re
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from structattn.support.errors import DataError

F = Fraction
H = F(1, 2)
EXPRESSIONS = ["(a b)* c | b+", "a (b | c | ε) a?", "((a|b)(a|b))* c", "(a+ b)+ | c c", "(a|a b)(b|ε)", "a* | b? c"]


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_strings_are_those_that_re_matches(text, language_of):
    language = language_of("x.regex", text)
    pattern = re.compile(text.replace(" ", "").replace("ε", ""))
    for length in range(7):
        strings = list(product(range(len(language.alphabet)), repeat=length))
        found = language.log_probabilities(np.array(strings, dtype=np.int64))
        for string, p in zip(strings, found, strict=True):
            matched = pattern.fullmatch("".join(language.alphabet[index] for index in string)) is not None
            assert matched == (p > -math.inf)


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("(a b)* c | d+", {"S": {"R c": H, "P": H}, "R": {"a b R": H, "": H}, "P": {"d P": H, "d": H}}),
        ("a | b\n | c d?  # a comment", {"S": {"a": F(1, 3), "b": F(1, 3), "c D": F(1, 3)}, "D": {"d": H, "": H}}),
        (
            "'(' (word | '*')+ ')'",
            {"S": {"( P )": F(1)}, "P": {"C P": H, "C": H}, "C": {"word": H, "*": H}},
        ),
        ("(a|b)*(a|b)", {"S": {"R C": F(1)}, "R": {"C R": H, "": H}, "C": {"a": H, "b": H}}),
    ],
)
def test_alternatives_are_equally_probable_and_repetitions_go_on_with_one_half(
    text, rules, language_of, ids_of, strings_of
):
    language, expected = language_of("x.regex", text), strings_of(rules, 7)
    found = language.log_probabilities([ids_of(language, string) for string in expected])
    np.testing.assert_allclose(np.exp(found), [float(p) for p in expected.values()], rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("", "x.regex: has no regular expression"),
        ("  # nothing", "x.regex: has no regular expression"),
        ("a |", "x.regex:1:4: found the end of the line; expected a symbol, '(', or ε"),
        ("| a", "x.regex:1:1: found '|'; expected a symbol"),
        ("a (b | c", "x.regex:1:9: found the end of the line; expected ')' for '(' in line 1"),
        ("a b)", "x.regex:1:4: found ')' without '('"),
        ("a ()", "x.regex:1:4: found ')'; expected a symbol"),
        ("* a", "x.regex:1:1: found '*'; expected a symbol"),
        ("a [0.5] | b", "x.regex:1:3: found [0.5]; expected a symbol or '('"),
        (
            "a{2,3} b",
            "x.regex:1:1: found 'a{2,3}': there are no counts, classes and escapes; expected a symbol, or 'a{",
        ),
        ("[a-z]+", "x.regex:1:1: found [a-z]; expected a symbol or '('; there are no classes"),
        ("(a* b*)* c", "x.regex:1:8: '*' follows what can be empty"),
        ("a (b?\nc?)+", "x.regex:2:4: '+' follows what can be empty"),
        ("ε? a", "x.regex:1:3: '?' follows what can be empty"),
        ("(" * 60 + "a" + ")" * 60, "x.regex:1:51: parentheses are nested more than 50 deep"),
        ("ε", "x.regex:1:1: the only string is empty"),
        ("a | b | a", "has the same alternative already in line 1"),
        ("a <bos>", "x.regex:1:3: the symbol '<bos>' is reserved"),
    ],
)
def test_messages_name_the_place(text, complaint, language_of):
    with pytest.raises(DataError) as caught:
        language_of("x.regex", text)
    assert complaint in str(caught.value)
