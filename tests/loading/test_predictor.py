"""Answers, translations and embeddings of loaded runs: against evaluation, in batches, and from the commands."""

import json
import re
from dataclasses import asdict

import numpy as np
import pytest
import torch
from tests.program import invoke, succeed

from structattn.loading.evaluate import evaluate_run
from structattn.loading.runs import load
from structattn.support.devices import device_of
from structattn.support.errors import DataError, UsageError
from structattn.tasks.parsing.prepare import read_trees
from structattn.tasks.parsing.trees import leaves_of
from structattn.tasks.transductions.batches import stored_pairs
from structattn.tasks.transformations.predict import language_model_answers
from structattn.tasks.transformations.rules import TRANSFORMATIONS
from structattn.tasks.translation.translators import make_translator
from structattn.text.reading import Notices

TRANSDUCTIONS = ("masked", "autoregressive", "recurrent autoregressive")
STRINGS = ["a b", "b b a b", "b a", "a"]
INPUTS = {**dict.fromkeys(TRANSDUCTIONS, STRINGS), "parser": ["the cat sat .", "", "dog ( ran"],
          "question": ["my yak does sleep . quest", "my yaks that the newt does admire don't eat . quest"]}  # fmt: skip
LINES = ["eins zwei", "", "drei vier fünf eins zwei", "zwei"]


@pytest.mark.parametrize("kind", TRANSDUCTIONS)
def test_outputs_of_transductions_are_as_accurate_as_evaluation_says(run_dir, kind):
    run = load(run_dir(kind))
    symbols, scores = run.prepared.vocabulary.symbols, evaluate_run(run, "valid")
    for length, (_, x, y) in zip(scores.by_length, stored_pairs(run.prepared, "valid"), strict=True):
        lines = [" ".join(symbols[token] for token in row) for row in x.tolist()]
        answers = [found.text.split(" ") for found in run.predict(lines)]
        expected = [[symbols[token] for token in row] for row in y.tolist()]
        stated = length.accuracy if length.accuracy_greedy is None else length.accuracy_greedy
        assert np.mean(np.array(answers) == np.array(expected)) == pytest.approx(stated)


@torch.no_grad()
def test_log_probabilities_are_those_of_the_whole_model(run_dir):
    run, line = load(run_dir("autoregressive")), "a b b"
    (found,) = run.predict([line])
    id_of = run.prepared.vocabulary.id_of
    ids = [1, *(id_of[symbol] for symbol in (*line.split(), "<to>", *found.text.split()))]
    log_probs = run.model(torch.tensor([ids], device=device_of(run.model))).log_softmax(-1)[0]
    expected = sum(log_probs[place, ids[place + 1] - 2].item() for place in range(4, 7))
    assert found.log_probability == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", INPUTS)
def test_answers_do_not_depend_on_the_batch_and_are_those_of_the_command(run_dir, kind):
    run, lines = load(run_dir(kind)), INPUTS[kind]
    whole = run.predict(lines)
    for others in (run.predict(lines, batch_size=1), list(run.predict(iter(lines)))):
        assert [each.text for each in others] == [each.text for each in whole]
    result = succeed("predict", run.run_dir, "--json", input="".join(line + "\n" for line in lines))
    for line, expected in zip(result.stdout.splitlines(), map(asdict, whole), strict=True):
        found = json.loads(line)
        assert (found.pop("log_probability") or 0) == pytest.approx(expected.pop("log_probability") or 0, rel=1e-5)
        assert found == expected
    plain = invoke("predict", run.run_dir, input="".join(line + "\n" for line in lines)).stdout
    assert plain == "".join(each.text + "\n" for each in whole)


def test_trees_have_the_words_of_their_sentences(run_dir, tmp_path):
    run = load(run_dir("parser"))
    found = run.predict(["the cat sat .", "dog ( ran"])
    (tmp_path / "found.trees").write_text("".join(each.text + "\n" for each in found))
    words = [[leaf.word for leaf in leaves_of(each.tree)] for each in read_trees(tmp_path / "found.trees", Notices())]
    assert words == [["the", "cat", "sat", "."], ["dog", "-LRB-", "ran"]]
    assert invoke("predict", run.run_dir, input="dog ( ran\n").stdout == found[1].text + "\n"


def test_transformed_sentences_are_the_greedy_outputs_that_are_scored(run_dir):
    run, lines = load(run_dir("question")), INPUTS["question"]
    expected = language_model_answers(run, "test").greedy([tuple(line.split()) for line in lines])
    assert [each.text for each in run.predict(lines)] == [" ".join(words) for words in expected]
    assert "question" in TRANSFORMATIONS


@pytest.mark.parametrize("kind", ["sentences", "formal language", "masked text", "translation"])
def test_other_kinds_are_refused_by_name(run_dir, kind):
    run = load(run_dir(kind))
    message = f"a model of kind '{run.settings.model.kind}' and task '{run.settings.task}' cannot predict answers"
    with pytest.raises(UsageError, match=message):
        run.predict(["a"])
    refused = invoke("predict", run.run_dir, input="a\n")
    assert refused.exit_code == 2
    assert message in refused.stderr


@pytest.mark.parametrize(
    ("kind", "line", "message"),
    [
        ("masked", "a <to>", r"texts:2: '<to>' is not an input of 'reverse-string': a b"),
        ("masked", "a c", r"texts:2: 'a c': 'c' is not in the vocabulary"),
        ("masked", "", r"texts:2: 0 symbols: 'reverse-string' has no inputs of that length"),
        ("masked", "a b a b a b", r"texts:2: input and output have 13 tokens; the model has 12 positions"),
    ],
)
def test_invalid_inputs_are_refused_by_number(run_dir, kind, line, message):
    with pytest.raises(DataError, match=message):
        load(run_dir(kind)).predict(["a b", line])


@pytest.mark.parametrize("kind", ["translation", "two-stream translation"])
def test_translations_are_those_of_the_command_whatever_the_batch(run_dir, kind):
    run = load(run_dir(kind))
    whole = run.translate(LINES, n=2, beam_size=3)
    narrow, streamed = run.translate(LINES, 2, beam_size=3, batch_size=1), run.translate(iter(LINES), 2, beam_size=3)
    for others in (narrow, list(streamed)):
        assert [[each.text for each in found] for found in others] == [[e.text for e in found] for found in whole]
    text = "".join(line + "\n" for line in LINES)
    result = invoke("translate", run.run_dir, "evaluation.beam_size=3", "--n-best", 2, input=text)
    rows = [line.split("\t") for line in result.stdout.splitlines()]
    flat = [(number, each) for number, found in enumerate(whole, start=1) for each in found]
    assert [(row[0], row[2]) for row in rows] == [(str(number), each.text) for number, each in flat]
    sampled = run.translate(LINES, temperature=2.0, seed=4)
    drawn = invoke("translate", run.run_dir, "--temperature", 2, "--seed", 4, input=text)
    assert drawn.stdout == "".join(found[0].text + "\n" for found in sampled)


def test_translation_takes_evaluation_settings_and_refuses_others(run_dir):
    run = load(run_dir("translation"))
    expected = make_translator([run], run.settings.evaluation.changed({"max_length": 2}))(LINES)
    found = run.translate(LINES, max_length=2)
    assert [each[0].text for each in found] == [each[0].text for each in expected]
    with pytest.raises(UsageError, match="beams: no such field"):
        run.translate(LINES, beams=3)
    with pytest.raises(UsageError, match="checkpoint, dropout: not a setting of translation; expected search"):
        run.translate(LINES, checkpoint="last-3", dropout=True)
    with pytest.raises(UsageError, match="beam_size: not a setting of sampling; expected max_length_ratio"):
        run.translate(LINES, beam_size=3, top_k=2)
    with pytest.raises(UsageError, match="n is 4; expected 1 to 3, the size of the beam"):
        run.translate(LINES, n=4, beam_size=3)
    with pytest.raises(UsageError, match="a model of kind 'transformer' and task 'language_modeling' cannot translate"):
        load(run_dir("sentences")).translate(LINES)


def test_embeddings_are_rows_of_the_table(run_dir):
    run = load(run_dir("translation"))
    found = run.embed(["eins", "zwei", "eins"])
    ids = [run.prepared.sides.source.vocabulary.id_of[word] for word in ("eins", "zwei", "eins")]
    expected = run.model.source.token_embeddings(torch.tensor(ids, device=device_of(run.model))).detach().cpu().numpy()
    np.testing.assert_array_equal(found, expected)
    assert run.embed(["one"], "target").shape == (1, 8)
    with pytest.raises(UsageError, match="'sechs' is not one token"):
        run.embed(["sechs"])


def test_each_stream_has_its_embeddings(run_dir):
    run = load(run_dir("two-stream translation"))
    syntactic, semantic = (run.embed(["eins"], stream=name) for name in ("syntactic", "semantic"))
    assert syntactic.shape == semantic.shape
    assert not np.array_equal(syntactic, semantic)
    with pytest.raises(UsageError, match="stream is None; expected 'syntactic' or 'semantic' for this model"):
        run.embed(["eins"])


@pytest.mark.parametrize("line", ["my yak does sleep .", "quest my yak does sleep .", "my yak does sleep . QUEST", "."])
def test_a_transformation_needs_its_task_word(run_dir, line):
    run = load(run_dir("question"))
    message = f"texts:2: {line!r}: expected a sentence and at its end the task word decl or quest"
    with pytest.raises(DataError, match=re.escape(message)):
        run.predict(["my yak does sleep . decl", line])
    refused = invoke("predict", run.run_dir, input=f"my yak does sleep . decl\n{line}\n")
    assert (refused.exit_code, "standard input:2" in refused.stderr) == (1, True)
    assert [each.text == "" for each in run.predict(["my yak does sleep . decl", "", " "])] == [False, True, True]
