"""Question formation and tense reinflection: scores of ideal answers, and of a model by hand."""

import math

import numpy as np
import pytest
import torch

from structattn.cli.report_page import write_report
from structattn.loading.evaluate import evaluate
from structattn.loading.runs import open_run
from structattn.loading.trained_run import TrainedRun
from structattn.settings.run import resolve_settings
from structattn.support.json_files import read_json
from structattn.tasks.model import build_model_for
from structattn.tasks.transformations.evaluate import score_answers, transformation_scores
from structattn.tasks.transformations.prepare import TransformationSizes, prepare_transformation
from structattn.tasks.transformations.rules import TRANSFORMATIONS, Pair
from structattn.text.folders.prepared import open_prepared
from structattn.training.run_training import train

QUESTION, TENSE = TRANSFORMATIONS["question"], TRANSFORMATIONS["tense"]
SIZES = TransformationSizes(train=60, valid=10, test=12, gen=14)
MODEL = {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": 1}


def pairs_of(task, *sources):
    return [Pair(tuple(each.split()), task.target(tuple(each.split()))) for each in sources]


QUESTIONS = pairs_of(
    QUESTION,
    "my yak who doesn't eat does amuse the newts . quest",
    "my yaks that the newt does admire don't eat . quest",
    "my yak does sleep . decl",
)
TENSES = pairs_of(TENSE, "my yak near the newts slept . PRESENT", "my yaks who amused the newt swam . PRESENT")


class Answers:
    """Gives each target a fixed log-probability, and outputs that a function makes of the source."""

    def __init__(self, output, log_prob):
        self.output, self.log_prob = output, log_prob

    def token_log_probs(self, pairs):
        return [np.full(len(pair.target) + 1, self.log_prob(pair)) for pair in pairs]

    def greedy(self, sources):
        return [self.output(source) for source in sources]

    def samples(self, sources):
        return [[self.output(source)] * 10 for source in sources]


@pytest.mark.parametrize(("task", "pairs"), [(QUESTION, QUESTIONS), (TENSE, TENSES)])
def test_right_and_wrong_answers(task, pairs):
    right = score_answers(task, pairs, Answers(task.target, lambda pair: 0.0))["all"]
    assert (right.full_match.value, right.full_match_wrong.value, right.first_word.value) == (1, 0, 1)
    assert (right.probability, right.conditional_cross_entropy, right.first_word_probability) == (1, 0, 1)
    wrong = score_answers(task, pairs, Answers(task.wrong_target, lambda pair: -1.0))["all"]
    assert wrong.full_match_wrong.value == 1
    assert wrong.log_ratio == 0, "both targets are equally probable"
    assert wrong.conditional_cross_entropy == pytest.approx(1)
    if task is TENSE:
        assert (right.main_verb.value, right.main_verb_sampled, right.main_verb_wrong.value) == (1, 1, 0)
        assert (wrong.main_verb.value, wrong.main_verb_sampled_wrong) == (0, 1)
    else:
        assert right.main_verb is right.main_verb_sampled is None
        assert (wrong.first_word_wrong.value, wrong.first_word.successes) == (1, 1), "decl has the same first word"


def test_pairs_are_grouped_and_compared_only_where_the_rules_differ():
    def log_prob(pair):
        return -0.5 if pair.target == QUESTION.target(pair.source) else -0.75

    scores = score_answers(QUESTION, QUESTIONS, Answers(QUESTION.target, log_prob))
    assert {name: each.full_match.trials for name, each in scores.items()} == \
        {"all": 3, "none": 1, "ORC": 1, "SRCi": 1}  # fmt: skip
    assert scores["none"].log_ratio is scores["none"].full_match_wrong is None
    tokens = [len(pair.target) + 1 for pair in QUESTIONS]
    assert scores["all"].log_ratio == pytest.approx(0.25 * np.mean(tokens[:2]))
    assert scores["all"].probability == pytest.approx(np.mean([math.exp(-0.5 * count) for count in tokens]))
    assert scores["all"].first_word_probability_wrong == pytest.approx(math.exp(-0.75))


def test_a_main_verb_counts_only_with_the_right_parts_of_speech():
    def output(source):
        return (*TENSE.target(source)[:-1], "the", ".")

    assert score_answers(TENSE, TENSES, Answers(output, lambda _: 0.0))["all"].main_verb.value == 0


@pytest.mark.covering(1)
@pytest.mark.parametrize("task", ["question", "tense"])
@pytest.mark.parametrize("layout", ["sentences", "parallel"])
def test_scores_are_those_of_the_model(tmp_path, task, layout):
    prepare_transformation(tmp_path / "data", task, sizes=SIZES, layout=layout)
    prepared = open_prepared(tmp_path / "data")
    tree = {"task": "language_modeling", "data": str(prepared.path), "model": MODEL,
            "training": {"batches": {"kind": "tokens", "max_tokens": 100}}}  # fmt: skip
    if layout == "parallel":
        tree |= {"task": "translation", "training": {"batches": {"kind": "pairs", "max_tokens": 100}},
                 "model": {"kind": "encoder_decoder", "d_model": 8, "num_heads": 2, "d_ff": 8}}  # fmt: skip
    settings = resolve_settings(tree)
    torch.manual_seed(1)
    run = TrainedRun(tmp_path, settings, prepared, build_model_for(settings.model, prepared).eval(), 0)
    found = transformation_scores(run, "gen")
    rules, encode = TRANSFORMATIONS[task], prepared.vocabulary.id_of
    symbols = prepared.vocabulary.symbols
    ratios, matches = [], []
    for pair in pairs_in(prepared, rules):
        totals = []
        for target in (pair.target, rules.wrong_target(pair.source)):
            ids = [encode.get(word, 3) for word in target]
            logits = teacher_forced(run, pair.source, ids)
            totals.append(
                sum(torch.log_softmax(row, -1)[token - 2] for row, token in zip(logits, [*ids, 2], strict=True))
            )
        ratios.append(float(totals[0] - totals[1]))
        matches.append(greedy(run, pair.source, symbols) == pair.target[:1])
    assert found["all"].log_ratio == pytest.approx(np.mean(ratios), rel=1e-4, abs=1e-5)
    assert found["all"].first_word.successes == sum(matches)
    assert transformation_scores(run, "gen") == found, "samples are repeatable"


def test_outputs_end_where_the_model_has_no_more_positions(tmp_path):
    prepare_transformation(tmp_path / "data", "tense", sizes=SIZES)
    prepared = open_prepared(tmp_path / "data")
    model = MODEL | {"positions": {"kind": "learned", "max_positions": 40}}
    tree = {"task": "language_modeling", "data": str(prepared.path), "model": model,
            "training": {"batches": {"kind": "tokens", "max_tokens": 100}}}  # fmt: skip
    settings = resolve_settings(tree)
    run = TrainedRun(tmp_path, settings, prepared, build_model_for(settings.model, prepared).eval(), 0)
    assert transformation_scores(run, "gen")["all"].full_match.trials == SIZES.gen


def pairs_in(prepared, rules):
    if prepared.parallel_sides is not None:
        both = zip(prepared.texts("gen", "source"), prepared.texts("gen", "target"), strict=True)
        return [Pair(tuple(source.split()), tuple(target.split())) for source, target in both]
    sequences, symbols = prepared.split("gen"), prepared.vocabulary.symbols
    return [rules.split(tuple(symbols[token] for token in sequences[i])) for i in range(len(sequences))]


@torch.no_grad()
def teacher_forced(run, source, target):
    """Logits of the target and of <eos>."""
    ids = [run.prepared.vocabulary.id_of.get(word, 3) for word in source]
    if run.prepared.parallel_sides is not None:
        return run.model(torch.tensor([[*ids, 2]]), torch.tensor([[1, *target]]))[0].double()
    return run.model(torch.tensor([[1, *ids, *target]]))[0, len(ids) :].double()


def greedy(run, source, symbols):
    token = int(teacher_forced(run, source, [])[0].argmax()) + 2
    return () if token == 2 else (symbols[token],)


@pytest.mark.usefixtures("without_drawing")
def test_evaluate_stores_the_scores_and_reports_show_them(tmp_path):
    prepare_transformation(tmp_path / "data", "tense", sizes=SIZES)
    tree = {"task": "language_modeling", "data": str(tmp_path / "data"), "model": MODEL,
            "training": {"batches": {"kind": "tokens", "max_tokens": 100}, "max_updates": 2,
                         "max_epochs": None}}  # fmt: skip
    train(resolve_settings(tree), tmp_path / "run")
    found = evaluate(tmp_path / "run", "gen").transformation
    stored = read_json(tmp_path / "run/scores/gen.json", "scores")["transformation"]
    assert stored["all"]["log_ratio"] == pytest.approx(found["all"].log_ratio)
    assert found == transformation_scores(open_run(tmp_path / "run"), "gen")
    page = write_report([tmp_path / "run"], tmp_path / "report").read_text()
    assert "Hierarchical and linear generalisation: gen" in page
