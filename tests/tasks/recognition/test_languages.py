"""The languages of FLaRe against independent definitions: members, next symbols, and how members are drawn."""

import itertools
import math
import re
from collections import Counter

import numpy as np
import pytest

from structattn.support.errors import UsageError
from structattn.support.seeds import numpy_generator
from structattn.tasks.recognition.adapted import AdaptedLanguage
from structattn.tasks.recognition.arithmetic import below, double_root, sizes, square_root
from structattn.tasks.recognition.registry import FLARE_LANGUAGES, find_recognition_language, recognition_language

DEVIATIONS = 4.5  # of a chi-square statistic from its expectation that a test allows


def number(bits):
    return int(bits[::-1], 2)


def balanced(symbols):
    text = "".join(symbols)
    for _ in range(3):
        text = text.replace("(0)0", "").replace("(1)1", "")
    return not text and max(itertools.accumulate((1 if s[0] == "(" else -1 for s in symbols), initial=0)) <= 3


def walk(text):
    match = re.fullmatch(r"([<>=]*)([0-4])", text)
    return match is not None and (match[1].count(">") - match[1].count("<")) % 5 == int(match[2])


def arithmetic(text):
    match = re.fullmatch(r"[0-4]([-+*][0-4])*=([0-4])", text)
    if match is None:
        return False
    left = text[:-2]
    # Python computes it: digits and signs alone, as matched above.
    nested = "(" * (len(left) // 2) + re.sub(r"([-+*][0-4])", r"\1)", left)
    return eval(nested) % 5 == int(match[2])


def stacked(symbols):
    text = " ".join(symbols)
    match = re.fullmatch(r"((?:[01] )*)((?:POP |PUSH [01] )*)#((?: [01])*)", text)
    if match is None:
        return False
    stack = match[1].split()
    for operation in re.findall(r"POP|PUSH [01]", match[2]):
        if operation == "POP":
            if not stack:
                return False
            stack.pop()
        else:
            stack.append(operation[-1])
    return match[3].split() == stack[::-1]


def computed(pattern, holds):
    def accepts(text):
        match = re.fullmatch(pattern, text)
        return match is not None and holds(*map(number, match.groups()))

    return accepts


def odds_first(text):
    left, mark, right = text.partition("#")
    odds = [s for place, s in enumerate(left) if place % 2 == 0]
    return bool(mark) and right == "".join(odds + [s for place, s in enumerate(left) if place % 2])


def missing(text):
    if len(text) % 2 or text.count("_") != 1:
        return False
    filled = text.replace("_", "1")
    return filled == 2 * filled[: len(filled) // 2]


def halves(image):
    def accepts(text):
        left, mark, right = text.partition("#")
        return bool(mark) and right == image(left)

    return accepts


def of_text(accepts):
    return lambda symbols: bool(accepts("".join(symbols)))


BINARY = "([01]+)"
DEFINITIONS = {
    "even-pairs": of_text(lambda s: (s.count("01") + sum(s[i : i + 2] == "10" for i in range(len(s)))) % 2 == 0),
    "repeat-01": of_text(lambda s: re.fullmatch("(01)*", s)),
    "parity": of_text(lambda s: s.count("1") % 2),
    "cycle-navigation": of_text(walk),
    "modular-arithmetic-simple": of_text(arithmetic),
    "dyck-2-3": balanced,
    "first": of_text(lambda s: s.startswith("1")),
    "majority": of_text(lambda s: s.count("1") > s.count("0")),
    "stack-manipulation": stacked,
    "marked-reversal": of_text(halves(lambda w: w[::-1])),
    "unmarked-reversal": of_text(lambda s: len(s) % 2 == 0 and s == s[::-1]),
    "marked-copy": of_text(halves(lambda w: w)),
    "missing-duplicate-string": of_text(missing),
    "odds-first": of_text(odds_first),
    "binary-addition": of_text(computed(rf"{BINARY}\+{BINARY}={BINARY}", lambda x, y, z: x + y == z)),
    "binary-multiplication": of_text(computed(rf"{BINARY}×{BINARY}={BINARY}", lambda x, y, z: x * y == z)),
    "compute-sqrt": of_text(computed(rf"{BINARY}={BINARY}", lambda x, z: z * z <= x < (z + 1) ** 2)),
    "bucket-sort": of_text(halves(lambda w: "".join(sorted(w)))),
}


def strings(language, high):
    for length in range(high + 1):
        yield from itertools.product(range(len(language.alphabet)), repeat=length)


def symbols_of(language, string):
    return [language.alphabet[symbol] for symbol in string]


def check_members(name, high):
    language = recognition_language(name)
    every = [*strings(language, high)]
    expected = [bool(DEFINITIONS[name](symbols_of(language, string))) for string in every]
    assert language.accepts_each(every) == expected
    with_members = {len(string) for string, member in zip(every, expected, strict=True) if member}
    assert language.valid_lengths(0, high) == sorted(with_members)
    if language.has_shape is not None:
        assert all(language.has_shape(string) for string, member in zip(every, expected, strict=True) if member)


def test_every_language_of_flare_is_defined_here():
    assert DEFINITIONS.keys() == FLARE_LANGUAGES.keys()


@pytest.mark.parametrize("name", DEFINITIONS)
def test_members(name):
    check_members(name, {2: 8, 3: 8, 4: 6}.get(len(recognition_language(name).alphabet), 4))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, each in FLARE_LANGUAGES.items() if len(each.alphabet) > 3])
def test_members_of_more_symbols(name):
    check_members(name, 8 if len(recognition_language(name).alphabet) == 4 else 5)


def prefixes_of(name, high):
    """Return each prefix of a member up to a length -> what may follow it, by enumeration."""
    language, follows = recognition_language(name), {}
    for string in strings(language, high):
        if DEFINITIONS[name](symbols_of(language, string)):
            for size, symbol in enumerate((*string, len(language.alphabet))):
                follows.setdefault(string[:size], set()).add(symbol)
    return follows


@pytest.mark.parametrize(
    ("name", "length", "enough"),
    [
        ("even-pairs", 4, 6), ("repeat-01", 6, 8), ("parity", 4, 6), ("first", 4, 5), ("majority", 3, 8),
        ("cycle-navigation", 3, 4), ("modular-arithmetic-simple", 3, 5), ("dyck-2-3", 4, 8),
        ("marked-reversal", 5, 7), ("unmarked-reversal", 4, 10), ("marked-copy", 5, 7), ("odds-first", 5, 7),
        ("bucket-sort", 3, 5), ("missing-duplicate-string", 4, 10), ("compute-sqrt", 4, 7),
        ("binary-addition", 5, 8), ("binary-multiplication", 5, 8), ("stack-manipulation", 4, 7),
    ],
)  # fmt: skip
def test_next_symbols(name, length, enough):
    language, follows = recognition_language(name), prefixes_of(name, enough)
    members = [string for string in strings(language, length) if DEFINITIONS[name](symbols_of(language, string))]
    assert members
    for member in members:
        expected = [frozenset(follows[member[:size]]) for size in range(len(member) + 1)]
        assert language.next_symbols(member) == expected, symbols_of(language, member)


def require_distribution(drawn, expected):
    """Compare counts of what was drawn with probabilities, by a chi-square statistic of classes of at least five."""
    counts, total = Counter(drawn), len(drawn)
    assert counts.keys() <= expected.keys()
    assert math.isclose(sum(expected.values()), 1, rel_tol=1e-9)
    pairs = sorted((total * share, counts[value]) for value, share in expected.items())
    classes, rest = [], (0.0, 0)
    for mean, count in pairs:
        rest = rest[0] + mean, rest[1] + count
        if rest[0] >= 5:
            classes.append(rest)
            rest = 0.0, 0
    statistic = sum((count - mean) ** 2 / mean for mean, count in classes)
    freedom = len(classes) - 1
    assert statistic < freedom + DEVIATIONS * math.sqrt(2 * freedom) + 5, (statistic, freedom)


def probabilities(name, length, weight):
    """Return P(member | length), proportional to a weight of its symbols."""
    language = recognition_language(name)
    members = [
        string
        for string in itertools.product(range(len(language.alphabet)), repeat=length)
        if DEFINITIONS[name](symbols_of(language, string))
    ]
    weights = {string: weight(symbols_of(language, string)) for string in members}
    return {string: each / sum(weights.values()) for string, each in weights.items()}


def prefix_product(share):
    return lambda symbols: math.prod(share(symbols[:size]) for size in range(len(symbols) + 1))


def actions_of_dyck(prefix):
    depth = sum(1 if symbol[0] == "(" else -1 for symbol in prefix)
    return 1 / (1 if depth == 3 else 3)  # two opens, and the close or the end; at depth three the close alone


def actions_of_even_pairs(prefix):
    return 1 / 3 if not prefix or prefix[-1] == prefix[0] else 1 / 2


WEIGHTS = {
    "even-pairs": (7, prefix_product(actions_of_even_pairs)),
    "parity": (7, prefix_product(lambda prefix: 1 / 3 if prefix.count("1") % 2 else 1 / 2)),
    "dyck-2-3": (8, prefix_product(actions_of_dyck)),
    "first": (7, lambda symbols: 1),
    "cycle-navigation": (5, lambda symbols: 1),
    "modular-arithmetic-simple": (5, lambda symbols: 1),
    "unmarked-reversal": (8, lambda symbols: 1),
    "marked-copy": (9, lambda symbols: 1),
    "bucket-sort": (5, lambda symbols: 1),
    "majority": (6, lambda symbols: 1 / (3 * math.comb(6, symbols.count("1")))),
    "missing-duplicate-string": (
        6,
        # each w with that bit set comes from two draws for each of its ones, and _ replaces one of the 2 k ones
        lambda symbols: 1 / 3 * 2 * (k := (symbols.count("1") + 1) // 2) / (2 * k),
    ),
}


@pytest.mark.parametrize("name", WEIGHTS)
def test_distribution_given_the_length(name):
    length, weight = WEIGHTS[name]
    drawn = recognition_language(name).sample_each([length] * 2500, numpy_generator(1, name))
    require_distribution(drawn, probabilities(name, length, weight))


@pytest.mark.parametrize(
    ("name", "length"),
    [
        ("parity", 5), ("even-pairs", 5), ("dyck-2-3", 6), ("cycle-navigation", 3), ("majority", 6), ("majority", 7),
        ("marked-reversal", 7), ("unmarked-reversal", 6), ("marked-copy", 7), ("odds-first", 7), ("bucket-sort", 5),
        ("dyck", 6), ("padded-reversal", 5), ("count-and-copy", 6),
    ],
)  # fmt: skip
def test_log_conditionals_are_those_of_what_is_drawn(name, length):
    language, generator = recognition_language(name), numpy_generator(1, name, length)
    drawn = language.sample_each([length] * 2000, generator)
    every = [*itertools.product(range(len(language.alphabet)), repeat=length)]
    members = [string for string, member in zip(every, language.accepts_each(every), strict=True) if member]
    log_conditionals = language.log_conditionals(members)
    require_distribution(drawn, dict(zip(members, np.exp(log_conditionals), strict=True)))


def test_some_languages_have_no_log_conditionals():
    assert recognition_language("binary-addition").log_conditionals([(0, 2, 0, 3, 0)]) is None


def test_the_published_shares():
    shares = probabilities("parity", 3, WEIGHTS["parity"][1])
    assert {"".join(map(str, s)): round(p, 3) for s, p in shares.items()} == {
        "001": 0.36, "010": 0.24, "100": 0.16, "111": 0.24
    }  # fmt: skip
    shares = probabilities("even-pairs", 4, WEIGHTS["even-pairs"][1])
    expected = {"0000": 0.08, "0010": 0.12, "0100": 0.12, "0110": 0.18}
    assert {"".join(map(str, s)): round(p, 3) for s, p in shares.items() if s[0] == 0} == expected


@pytest.mark.parametrize("name", ["parity", "marked-reversal", "missing-duplicate-string", "binary-addition"])
def test_lengths_are_uniform(name):
    language, valid = recognition_language(name), recognition_language(name).valid_lengths(0, 15)
    drawn = [len(string) for string in language.draw(2000, 15, numpy_generator(2, name))]
    require_distribution(drawn, dict.fromkeys(valid, 1 / len(valid)))


def test_stack_manipulation_draws_sizes_and_not_lengths():
    language, high = recognition_language("stack-manipulation"), 12
    firsts = range((high - 1) // 2 + 1)
    expected = Counter()
    for initial in firsts:
        most = (high - 1 - 2 * initial) // 3
        for pushes in range(most + 1):
            expected[initial, pushes] += 1 / len(firsts) / (most + 1)
    drawn = language.draw(4000, high, numpy_generator(3))
    sizes_of = [(next(i for i, s in enumerate(w) if s > 1), w.count(2)) for w in drawn]
    require_distribution(sizes_of, expected)
    # after the initial stack 0, the first operation is a pop or a push, or the end where no push is left
    after = [w[1] for w in drawn if w[0] < 2 <= w[1] and w.count(2)]
    require_distribution(after, {2: 0.5, 3: 0.5})


def test_sums_are_uniform_below_what_fits():
    language = recognition_language("binary-addition")
    drawn = ["".join(symbols_of(language, w)) for w in language.sample_each([8] * 3000, numpy_generator(4))]
    parts = [re.fullmatch(rf"{BINARY}\+{BINARY}={BINARY}", text).groups() for text in drawn]
    assert {len(z) for *_, z in parts} == {2, 3, 4}  # the last number takes what rounding down leaves
    equal = [number(x) for x, y, z in parts if (len(x), len(y), len(z)) == (2, 2, 2)]
    # either operand is x with probability 1/2; x is uniform on 0..3 and y on 0..3 - x
    second = {value: sum(1 / 4 / (4 - x) for x in range(4 - value)) for value in range(4)}
    require_distribution(equal, {value: (1 / 4 + second[value]) / 2 for value in range(4)})


def test_sizes_follow_the_shares():
    generator = numpy_generator(5)
    drawn = [tuple(sizes(4, (1.0, 1.0), generator)) for _ in range(3000)]
    require_distribution(drawn, {(1 + left, 5 - left): 1 / 4 for left in range(4)})


def test_large_numbers_are_uniform():
    bound = 3 << 70
    generator = numpy_generator(6)
    drawn = [below(bound, generator) >> 70 for _ in range(900)]
    require_distribution(drawn, dict.fromkeys(range(3), 1 / 3))
    assert {below(1, generator) for _ in range(5)} == {0}


def test_square_roots_in_double_precision_differ_from_88_bits_on():
    assert all(math.isqrt(x) == double_root(x) for x in range(4000))
    x = (1 << 45) ** 2 - 1
    assert (math.isqrt(x), double_root(x)) == ((1 << 45) - 1, 1 << 45)
    beyond_doubles = (1 << 600) ** 2 + 1
    assert double_root(beyond_doubles) == 1 << 600
    generator = numpy_generator(8)
    roots = {name: square_root(root) for name, root in (("exact", math.isqrt), ("double", double_root))}
    drawn = roots["double"].sample_each([400] * 20, generator)
    assert all(roots["double"].accepts_each(drawn))
    assert not all(roots["exact"].accepts_each(drawn))


@pytest.mark.parametrize("name", ["dyck", "padded-reversal", "hardest-cfl"])
def test_next_symbols_of_grammars(name):
    language = recognition_language(name)
    most = {"dyck": 6, "padded-reversal": 10, "hardest-cfl": 0}[name]
    every = [*strings(language, most)] if most else near_hardest(language)
    members = [w for w, member in zip(every, language.accepts_each(every), strict=True) if member]
    follows = {}
    for string in members:
        for size, symbol in enumerate((*string, len(language.alphabet))):
            follows.setdefault(string[:size], set()).add(symbol)
    for member in members:
        found = language.next_symbols(member)
        assert len(found) == len(member) + 1
        assert all(follows[member[:size]] <= symbols for size, symbols in enumerate(found))
        if most and len(member) <= 4:
            assert [follows[member[:size]] for size in range(len(member) + 1)] == found


@pytest.mark.parametrize(
    ("name", "length", "enough"),
    [
        ("count-3", 3, 9), ("unmarked-copy", 4, 10), ("unmarked-copy-different-alphabets", 2, 6),
        ("marked-reverse-and-copy", 2, 8), ("unmarked-reverse-and-copy", 3, 12), ("count-and-copy", 3, 9),
        ("stack-language", 2, 3),
    ],
)  # fmt: skip
def test_next_symbols_of_other_languages(name, length, enough):
    language, follows = recognition_language(name), {}
    assert isinstance(language, AdaptedLanguage)
    lengths = language.valid_lengths(0, enough)
    drawn = {*language.sample_each([size for size in lengths for _ in range(300)], numpy_generator(10, name))}
    for string in drawn:
        for size, symbol in enumerate((*string, len(language.alphabet))):
            follows.setdefault(string[:size], set()).add(symbol)
    short = [string for string in drawn if len(string) <= length]
    assert short
    for member in short:
        expected = [frozenset(follows[member[:size]]) for size in range(len(member) + 1)]
        assert language.next_symbols(member) == expected, symbols_of(language, member)


def near_hardest(language):
    """Return members of the hardest context-free language of length 12 and less."""
    return language.sample_each([n for n in language.valid_lengths(0, 12) for _ in range(10)], numpy_generator(9))


def test_own_files(tmp_path):
    (tmp_path / "count.cfg").write_text("S -> a S b | a b\n")
    (tmp_path / "end.fsa").write_text("q0 a q0\nq0 b q1\nq1\n")
    grammar, file = find_recognition_language(str(tmp_path / "count.cfg"))
    assert grammar.accepts_each([(0, 0, 1, 1), (0, 1, 1), ()]) == [True, False, False]
    assert grammar.next_symbols((0, 1)) == [{0}, {0, 1}, {2}]
    assert file.language.name == "count.cfg"
    automaton, _ = find_recognition_language(str(tmp_path / "end.fsa"))
    assert automaton.accepts_each([(0, 0, 1), (1, 0)]) == [True, False]
    assert automaton.next_symbols((0, 1)) == [{0, 1}, {0, 1}, {2}]


def test_names():
    assert recognition_language("count-3").valid_lengths(0, 7) == [0, 3, 6]
    unknown = r"'party' is unknown; expected a file .*, or one of even-pairs, .*mean parity\?; one of your own needs --"
    with pytest.raises(UsageError, match=unknown):
        recognition_language("party")
    with pytest.raises(UsageError, match=r"parity: has no strings of the lengths 0 to 0"):
        recognition_language("parity").draw(1, 0, numpy_generator(1))
    assert np.array(recognition_language("dyck").sample_each([4], numpy_generator(1))).shape == (1, 4)
