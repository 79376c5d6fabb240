"""Formulas over the surprisals of regions: precedence, what holds, and where one is wrong."""

import pytest

from structattn.tasks.syntaxgym.formula import parse_formula

SURPRISALS = {("a", 1): 3.0, ("a", 2): 5.0, ("b", 1): 4.0, ("b", 2): 1.0}


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("(1;%a%) < (1;%b%)", True),
        ("(1;%a%) > (1;%b%)", False),
        ("( 1 ; %a% )>( 2;%b%)", True),
        ("(1;%a%) + (2;%a%) = 8", True),
        ("(1;%a%) + 0.0010 = (1;%a%)", True),
        ("(1;%a%) + 0.0011 = (1;%a%)", False),
        ("10000 = 10000.1", True),  # 0.001 + 0.1
        ("10000 = 10000.2", False),
        ("(2;%a%) - (1;%a%) - (2;%b%) = 1", True),  # from left to right
        ("(2;%a%) - ((1;%a%) - (2;%b%)) = 3", True),
        ("(*;%a%) - (*;%b%) > 2.5", True),
        ("(1;%a%) - (2;%a%) > -3", True),
        ("1 > 2 & 1 > 2 | 2 > 1", True),
        ("1 > 2 & (1 > 2 | 2 > 1)", False),
        ("2 > 1 | 2 > 1 & 1 > 2", False),  # from left to right
        ("2 > 1 | (2 > 1 & 1 > 2)", True),
        ("((1;%a%) < (1;%b%)) & ((2;%a%) > (2;%b%))", True),
        ("((((1;%a%)) < ((1;%b%))))", True),
        ("[(1;%a%) < (1;%b%)] & [(2;%a%) < (2;%b%)]", False),
        ("[[(2;%a%) - (1;%a%)] - ((2;%b%) - (1;%b%))] > 4", True),
        ("+".join(["1"] * 4000) + "= 4000", True),  # as long as one may be, without deep recursion
    ],
)
def test_formulas(text, holds):
    assert parse_formula(text).holds(SURPRISALS) is holds


def test_references():
    assert parse_formula("(1;%a b%) < (*;%c-d%) & (1;%a b%) < 3").references == {("a b", 1), ("c-d", None)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"column 1: found 'the end'; expected a region"),
        ("(1;%a%)", "column 1: is a number; expected a comparison"),
        ("(1;%a%) < (1;%b%) < 3", "column 19: '<' joins numbers only"),
        ("1 < 2 & 3", "column 7: '&' joins comparisons only"),
        ("1 + (1 < 2) > 1", r"column 3: '\+' joins numbers only"),
        ("(1;%a%) <", "column 10: found 'the end'"),
        ("(1;a) < 2", "column 3: found ';a\\) < 2'"),
        ("(1 < 2", r"column 7: found 'the end'; expected an operator or '\)'"),
        ("[1 < 2)", r"column 7: found '\)'; expected an operator or '\]'"),
        ("1 < 2)", r"column 6: found '\)'; expected an operator or the end"),
        ("1 < 2 3", "column 7: found '3'"),
        ("1 ! 2", "column 3: found '! 2'"),
        ("--1 < 2", "column 1: found '-'"),
        ("(" * 65 + "1 < 2", r"column 65: found '\('"),
        ("__import__('os')", "column 1: found"),
    ],
)
def test_wrong_formulas_are_refused_with_their_column(text, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        parse_formula(text)
