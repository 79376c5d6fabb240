"""Learning of visibly pushdown automata from the answers of known languages, and the calls that stacks make."""

from itertools import product

import numpy as np
import pytest

from structattn.attention import SuperpositionStackAttention
from structattn.extraction.agreement import Modelled
from structattn.extraction.calls import candidates
from structattn.extraction.comparison import compare, prefix_pairs
from structattn.extraction.configurations import Simulator
from structattn.extraction.learned import learned_automata
from structattn.extraction.letters import find_letters
from structattn.extraction.minimization import minimized
from structattn.extraction.observations import observe
from structattn.extraction.reading import Subject, sampled_strings, validation_strings
from structattn.extraction.stacks import Observation, Step, SuperpositionReader, stack_reader
from structattn.extraction.threshold import find_threshold
from structattn.extraction.visibly_pushdown import Letter, NotVisiblyPushdownError, State, learn, matched
from structattn.loading.runs import open_run
from structattn.settings.run import resolve_settings
from structattn.tasks.formal_languages.grammar import Grammar, normalized, rule
from structattn.tasks.formal_languages.next_symbols import END, Recognizer, contains
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.formal_languages.registry import GRAMMARS
from structattn.training.run_training import train

CALL, RETURN, INTERNAL = "call", "return", "internal"
BOS = Letter("<bos>", CALL)


def grammar(alphabet, *rules):
    return Grammar(rules[0][0], alphabet, normalized([rule(*each, 1) for each in rules]))


LISTS = grammar(tuple("{}n"), ("L", "{ I }"), ("I", "L I"), ("I", "n I"), ("I", ""))
EITHER = grammar(tuple("abc"), ("S", "B"), ("S", "C"), ("B", "a B b"), ("B", "a b"), ("C", "a C c"), ("C", "a c"))
DYCK = GRAMMARS["dyck"]()


def words_and_answers(language, longest, kinds, wrong=0.0):
    """Return the words of a language, and answers about others, some of which are wrong."""
    recognizer = Recognizer(language)
    layers = prefix_pairs(recognizer, recognizer, language.alphabet, longest, 100_000)
    strings = [each.string for layer in layers for each in layer if END in each.first.next_symbols]
    words = [tuple(Letter(symbol, kinds[symbol]) for symbol in string) for string in strings]
    draw = np.random.default_rng(1)

    def answers(questions):
        wholes = ([each.symbol for each in before + word + after] for before, word, after in questions)
        return np.array([contains(recognizer, whole) != (draw.random() < wrong) for whole in wholes], dtype=bool)

    return words, answers


def language_of(automaton, words, alphabet, first=None):
    """Return the language of an automaton that ends where the words end."""
    finals = frozenset(state for word in words if (state := automaton.states(word)[-1]) is not None)
    assert None not in {automaton.states(word)[-1] for word in words}
    complete = type(automaton)(automaton.sizes, automaton.internals, automaton.returns, finals)
    return Simulator(minimized(complete.automaton(alphabet, first)).automaton)


CASES = {
    "lists": (LISTS, 6, {"{": CALL, "}": RETURN, "n": INTERNAL}),
    "either": (EITHER, 10, {"a": CALL, "b": RETURN, "c": RETURN}),
    "dyck": (DYCK, 6, {"(": CALL, "[": CALL, ")": RETURN, "]": RETURN}),
}


@pytest.mark.parametrize("wrong", [0.0, 0.02])
@pytest.mark.parametrize("name", CASES)
def test_languages_are_learned_from_answers_some_of_them_wrong(name, wrong):
    language, longest, kinds = CASES[name]
    words, answers = words_and_answers(language, longest, kinds, wrong=wrong)
    learned = language_of(learn(words, answers), words, language.alphabet)
    assert compare(learned, Recognizer(language), language.alphabet, 10).is_equal


def test_a_call_before_the_first_symbol_shifts_what_matches():
    """Each symbol after the marker returns from the one before its counterpart, the marker from the last one."""
    reversal, alphabet = Recognizer(GRAMMARS["marked-reversal"]()), ("0", "1", "#")
    bits = ["".join(each) for n in range(5) for each in product("01", repeat=n)]

    def word_of(string):
        middle = string.index("#")
        return (BOS, *(Letter(x, CALL) for x in string[:middle]), *(Letter(x, RETURN) for x in string[middle:]))

    def answers(questions):
        wholes = [before + word + after for before, word, after in questions]
        strings = [[each.symbol for each in whole[1:]] for whole in wholes]
        return np.array(
            [contains(reversal, x) and whole == word_of(x) for x, whole in zip(strings, wholes, strict=True)]
        )

    words = [word_of(f"{each}#{each[::-1]}") for each in bits]
    learned = language_of(learn(words, answers), words, alphabet, BOS)
    assert compare(learned, reversal, alphabet, 9).is_equal


def test_states_end_where_a_word_cannot_be_read():
    language, longest, kinds = CASES["dyck"]
    automaton = learn(*words_and_answers(language, longest, kinds))
    read = automaton.states(tuple(Letter(symbol, kinds[symbol]) for symbol in "(])"))
    assert read[0] == State(None, 0)
    assert read[1] == State(Letter("(", CALL), 0)
    assert read[2:] == [None, None]


def test_words_without_calls_or_with_too_many_classes_are_refused():
    with pytest.raises(NotVisiblyPushdownError, match="no letter calls"):
        learn([(Letter("a", INTERNAL),)], lambda questions: np.ones(len(questions), bool))
    words = [(Letter("a", CALL), *[Letter("c", INTERNAL)] * count, Letter("b", RETURN)) for count in range(40)]
    draw = np.random.default_rng(1)
    with pytest.raises(NotVisiblyPushdownError, match="more than 6 classes"):
        learn(words, lambda questions: draw.random(len(questions)) < 0.5)  # each word is like no other


def test_matched_positions_are_those_of_the_innermost_call():
    call, back = Letter("a", CALL), Letter("b", RETURN)
    assert matched((call, call, back, back)) == [-1, 0, 1, 0, -1]
    assert matched((call, back, back)) is None
    assert matched((call,)) is None


def test_calls_and_returns_are_the_actions_of_best_runs_where_they_match():
    reader = SuperpositionReader(SuperpositionStackAttention(4, 2))
    symbols = ("<pad>", "<bos>", "<eos>", "a", "b")
    steps = {1: Step("replace", 0, 0), 3: Step("push", 0, 0), 4: Step("pop", 0, 0)}

    def observed(ids):
        rows = np.array([[0.0, -9, -9], [-9, 0.0, -9], [-9, -9, 0.0]])
        features = rows[[{1: 1, 3: 0, 4: 2}[each] for each in ids]]
        runs = tuple(tuple(steps[each] for each in ids[: t + 1]) for t in range(len(ids)))
        return Observation(np.array(ids), features, np.zeros((len(ids), 2)), np.zeros((len(ids), 3)), runs)

    strings = [observed([1, *[3] * count, *[4] * count]) for count in range(1, 9)]
    letters = find_letters(reader, strings)
    (calls,) = candidates(letters, strings, symbols)
    assert calls.word(strings[1]) == (*[Letter("a", CALL)] * 2, *[Letter("b", RETURN)] * 2)
    assert not list(candidates(letters, [observed([1, 3, 3, 4])] * 4, symbols))


@pytest.mark.slow
def test_automaton_of_a_trained_stack_is_learned_and_explains_its_weights(tmp_path):
    sizes = FormalLanguageSizes(10_000, 200, 2, (2, 40), (2, 40))
    (tmp_path / "either.cfg").write_text(
        "S -> B [0.5] | C [0.5]\nB -> a B b [0.95] | a b [0.05]\nC -> a C c [0.95] | a c [0.05]\n"
    )
    prepare_formal_language(tmp_path / "data", str(tmp_path / "either.cfg"), sizes=sizes)
    model = {"d_model": 32, "d_ff": 64, "num_heads": 4, "embedding_init": "normal", "layers": "1.superposition-16.1"}
    training = {"batches": {"kind": "sequences", "batch_size": 10}, "optimizer": {"learning_rate": 0.003}}
    tree = {"task": "formal_language", "data": str(tmp_path / "data"), "model": model}
    settings = resolve_settings(
        {**tree, "training": {**training, "max_updates": 1500, "num_threads": 1}}, source="test"
    )
    train(settings, tmp_path / "run")
    run = open_run(tmp_path / "run")
    reader, valid = stack_reader(run), validation_strings(run)
    observed = observe(run, reader, valid)
    modelled = Modelled(run.prepared.vocabulary.symbols, np.log(find_threshold(observed).value))
    subject = Subject(run, reader, valid, observed)
    sampled = sampled_strings(subject, modelled, 200, 0, with_runs=True)
    learned = next(learned_automata(subject, sampled, modelled, 0))
    automaton = minimized(learned.automaton.automaton(EITHER.alphabet, learned.first)).automaton
    assert compare(Simulator(automaton), Recognizer(EITHER), EITHER.alphabet, 12).is_equal
    assert learned.causal.difference < 0.01
