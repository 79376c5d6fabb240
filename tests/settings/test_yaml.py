"""YAML within limits: what is accepted, and what ends in one line with the position."""

import itertools
import time
import tracemalloc

import pytest
import yaml

from structattn.settings.yaml import MAX_CHARACTERS, MAX_DEPTH, MAX_NODES, MAX_SCALAR, parse_yaml

NAMES = "abcdefghij"
ALIAS_BOMB = "a: &a [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n" for before, name in itertools.pairwise(NAMES)
)
MERGE_BOMB = "a0: &a0 {x: 1}\n" + "".join(f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n" for i in range(1, 60))
DEEP_ALIASES = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 600))


def test_values_are_those_of_yaml():
    text = "a: [1, 2.5, -0x1F, true, ~, 'it''s', é]\nb: &b {c: 3}\nd: *b\ne: {<<: *b, f: 4}\n"
    assert parse_yaml(text) == yaml.safe_load(text)
    assert parse_yaml(text)["e"] == {"c": 3, "f": 4}
    assert parse_yaml("") is None


def test_what_is_set_in_one_copy_of_an_alias_sets_no_other():
    tree = parse_yaml("a: &a {b: [1], c: {d: 2}}\ne: *a\nf: {<<: *a}\n")
    tree["a"]["b"].append(3)
    tree["a"]["c"]["d"] = 4
    assert tree["e"] == tree["f"] == {"b": [1], "c": {"d": 2}}


def test_dates_are_text():
    assert parse_yaml("2024-01-31") == "2024-01-31"
    assert parse_yaml("2024-99-99") == "2024-99-99"


def test_the_limits_themselves_are_allowed():
    count = MAX_DEPTH - 1
    assert str(parse_yaml("[" * count + "x" + "]" * count)).count("[") == count
    assert parse_yaml("x" * MAX_SCALAR) == "x" * MAX_SCALAR
    assert parse_yaml(str(2**63 - 1)) == 2**63 - 1
    assert parse_yaml(str(-(2**63))) == -(2**63)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("!!float abc", "line 1, column 1: 'abc' is not of the type float"),
        ("a: !!int abc", "line 1, column 4: 'abc' is not of the type int"),
        ("!!int ''", "'' is not of the type int"),
        ("!!bool abc", "'abc' is not of the type bool"),
        ("9" * 6000, "is not of the type int"),
        ("0x" + "f" * 6000, "the integer has more than 64 bits"),
        (":".join(["1"] * 3000), "the integer has more than 64 bits"),
        (":".join(["1"] * 3000) + ".5", "is not of the type float"),
        (str(2**63), "the integer has more than 64 bits"),
        ("[" * 1000, f"nested more than {MAX_DEPTH} levels deep"),
        ("- " * 100_000, f"nested more than {MAX_DEPTH} levels deep"),
        ("{a: " * 1000, f"nested more than {MAX_DEPTH} levels deep"),
        (ALIAS_BOMB, "line 5, column 4: more than 100,000 values"),
        (MERGE_BOMB, "more than 100,000 values"),
        (DEEP_ALIASES, "or 32 levels, with aliases expanded"),
        ("&a [*a]", r"the alias \*a is part of what it refers to"),
        ("&a {b: {c: *a}}", r"the alias \*a is part of what it refers to"),
        ("[*x]", "undefined alias 'x'"),
        ("seed: 1\nseed: 2", "the key 'seed' occurs twice"),
        ("!!python/object/apply:os.system [ls]", "could not determine a constructor"),
        ("!!binary aa", "could not determine a constructor"),
        ("!!timestamp 2024-01-31", "could not determine a constructor"),
        ("!!map x", "expected a mapping"),
        ("!" + "a" * 100_000 + " x", "could not determine a constructor"),
        ("? [a]\n: b", "unhashable"),
        ("a: 'x", "unexpected end of stream"),
        ("a: b: c", "line 1, column 5: mapping values are not allowed here"),
        ("--- a\n--- b", "another document"),
        ("\0", "unacceptable character #x0000"),
        ("\udcff", "unacceptable character #xdcff"),
        (r'"\0"', "has a NUL"),
        (r'"\ud800"', "has a NUL or a surrogate"),
        (r'"\UFFFFFFFF"', "is no Unicode character"),
        (r'"\U00110000"', "is no Unicode character"),
        ("x" * (MAX_SCALAR + 1), "a value of 10,001 characters; expected at most 10,000"),
        ("x" * (MAX_CHARACTERS + 1), "1,048,577 characters of YAML; expected at most 1,048,576"),
    ],
)
def test_faults_end_in_one_line(text, message):
    with pytest.raises(ValueError, match=message) as caught:
        parse_yaml(text)
    assert len(str(caught.value)) < 300
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.slow  # PyYAML needs five seconds for so many values
def test_many_values_are_refused_before_all_are_read():
    with pytest.raises(ValueError, match=f"more than {MAX_NODES:,} values"):
        parse_yaml("[" + "1," * 300_000 + "]")


def test_an_alias_bomb_takes_neither_time_nor_memory():
    began = time.process_time()
    tracemalloc.start()
    try:
        for bomb in (ALIAS_BOMB, MERGE_BOMB):
            with pytest.raises(ValueError, match="aliases expanded"):
                parse_yaml(bomb)
        assert tracemalloc.get_traced_memory()[1] < 20 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < 5
