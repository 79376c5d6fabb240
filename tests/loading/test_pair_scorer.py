"""Log-probabilities of given translations, and translations with forced prefixes."""

import copy
from dataclasses import replace

import pytest
import torch
from tests.program import invoke, succeed

from structattn.decoding import Ensemble, Sampling, score_pairs
from structattn.decoding.sampling import SeededSampling
from structattn.loading.evaluate import evaluate_run
from structattn.loading.trained_run import TrainedRun
from structattn.settings.run import resolve_settings
from structattn.support.errors import DataError, UsageError
from structattn.tasks.model import build_model_for
from structattn.tasks.translation.translators import make_pair_scorer, make_translator

LINES = ["eins zwei", "drei", "", "vier vier fünf eins zwei", "fünf"]
TEXTS = ["one two three", "", "four", "five", "one one"]


@pytest.fixture
def runs(translation_run):
    """Two models of one kind with different weights."""
    first = translation_run()
    torch.manual_seed(6)
    return first, replace(first, model=build_model_for(first.settings.model, first.prepared).eval())


def scored(runs, lines=LINES, texts=TEXTS, batch_tokens=4096, names=("de", "en")):
    scorer = replace(make_pair_scorer(runs), batch_tokens=batch_tokens)
    return scorer([scorer.encode(*pair, names, n) for n, pair in enumerate(zip(lines, texts, strict=True), start=1)])


def scored_one_by_one(model, sides):
    """Return log p of each text, one pair at a time."""
    return [
        score_pairs(
            model, torch.tensor([[*sides.source.encode(line), 2]]), [[*sides.target.encode(text), 2]]
        ).log_probs.item()
        for line, text in zip(LINES, TEXTS, strict=True)
    ]


@pytest.mark.parametrize("batch_tokens", [1, 4096])
def test_scores_do_not_depend_on_the_batch(runs, batch_tokens):
    for run in runs:
        found = scored([run], batch_tokens=batch_tokens)
        assert [each.log_probability for each in found] == pytest.approx(
            scored_one_by_one(run.model, run.prepared.sides), rel=1e-5
        )
        assert [each.num_tokens for each in found] == [len(text.split()) + 1 for text in TEXTS]


def test_several_models_score_as_an_ensemble(runs):
    found = scored(runs)
    expected = scored_one_by_one(Ensemble([run.model for run in runs]), runs[0].prepared.sides)
    assert [each.log_probability for each in found] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("spells", [(True, True), (True, False), (False, True)])
def test_words_are_spelled_if_all_models_can_spell(names, tmp_path, spells):
    """An ensemble of two copies of a model predicts as the model does."""
    prepared = names.prepare(tmp_path)
    torch.manual_seed(2)
    settings = resolve_settings(names.tree(tmp_path / "data"))
    hybrid = TrainedRun(tmp_path, settings, prepared, build_model_for(settings.model, prepared).eval(), 0)
    plain = replace(hybrid, model=copy.deepcopy(hybrid.model))
    plain.model.spelling = None
    found = scored([hybrid if each else plain for each in spells], ["eins xabc"], ["one XABC"])
    alone = scored([hybrid if all(spells) else plain], ["eins xabc"], ["one XABC"])
    assert found[0].log_probability == pytest.approx(alone[0].log_probability, rel=1e-6)
    with_spelling, without = (scored([run], ["eins xabc"], ["one XABC"])[0] for run in (hybrid, plain))
    assert with_spelling.log_probability < without.log_probability


def test_the_scores_of_a_split_are_those_of_its_pairs(runs):
    run = runs[0]
    found = scored([run], run.prepared.texts("test", "source"), run.prepared.texts("test", "target"))
    scores = evaluate_run(run, "test")
    total = sum(each.log_probability for each in found)
    assert -total / scores.num_tokens == pytest.approx(scores.cross_entropy, rel=1e-6)


def saved(run, monkeypatch):
    monkeypatch.setattr("structattn.loading.runs.open_run", lambda *_, **__: run)
    monkeypatch.setattr("structattn.runs.folder.existing_run", lambda _: None)


def test_the_command_scores_lines_of_two_files(runs, tmp_path, monkeypatch):
    saved(runs[0], monkeypatch)
    de, en = tmp_path / "a.de", tmp_path / "a.en"
    de.write_text("".join(line + "\n" for line in LINES))
    en.write_text("".join(line + "\n" for line in TEXTS))
    arguments = ["score", "run", "--source", str(de), "--target", str(en)]
    shown = succeed(*arguments)
    rows = [line.split("\t") for line in shown.stdout.splitlines()]
    assert [float(row[0]) for row in rows] == pytest.approx(
        [each.log_probability for each in scored([runs[0]])], abs=1e-6
    )
    assert [row[1] for row in rows] == ["4", "1", "2", "2", "3"]
    en.write_text("one\n" * 4)
    shown = invoke(*arguments)
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert f"{en}:5: line is missing" in shown.output.replace("\n", "")
    en.write_text("one\n" * 4 + "<eos>\n")
    assert f"{en}:5: '<eos>': the word <eos>" in invoke(*arguments).output.replace("\n", "")


def test_a_model_that_does_not_translate_is_rejected(runs):
    with pytest.raises(UsageError, match="cannot translate"):
        make_pair_scorer([replace(runs[0], model=torch.nn.Linear(1, 1))])


@pytest.mark.parametrize("sampling", [None, SeededSampling(Sampling(2.0), 3)])
@pytest.mark.parametrize("batch_tokens", [1, 4096])
def test_translations_start_with_their_prefixes(runs, sampling, batch_tokens):
    translator = replace(make_translator(runs[:1]), sampling=sampling)
    prefixes = ["two five", "", "three", "four", "one " * 70]
    free, found = translator(LINES), replace(translator, batch_tokens=batch_tokens)(LINES, prefixes=prefixes)
    for (best,), (unforced,), prefix in zip(found, free, prefixes, strict=True):
        assert f"{best.text} ".startswith(prefix.strip() + " " if prefix else "")
        if not prefix:
            assert best.text == unforced.text
    assert found[2][0].text == "three", "an empty line has nothing more"


def test_an_empty_line_is_translated_by_rule_and_scored_by_the_model(runs):
    ((best,),) = make_translator(runs[:1])([""])
    assert (best.text, best.score, best.log_probability) == ("", 0, 0)
    (score,) = scored(runs[:1], [""], [""])
    assert score.num_tokens == 1
    assert score.log_probability < 0


@pytest.mark.parametrize(
    ("prefixes", "message"),
    [
        (["one"], "prefixes:2: missing line; expected one for each line to translate"),
        (["one", "six", "", "", ""], "prefixes:2: 'six' has words outside the target vocabulary"),
        (["", "", "", "<eos>", ""], "prefixes:4: '<eos>': the word <eos>"),
    ],
)
def test_invalid_prefixes_are_rejected(runs, prefixes, message):
    with pytest.raises(DataError, match=message):
        make_translator(runs)(LINES, prefixes=prefixes)


def test_the_command_reads_prefixes_from_a_file(runs, tmp_path, monkeypatch):
    saved(runs[0], monkeypatch)
    path = tmp_path / "prefixes"
    path.write_text("two\n\n")
    arguments = ["translate", "run", "evaluation.beam_size=2", "--prefixes", str(path)]
    shown = succeed(*arguments, input=b"eins\nzwei\n")
    assert shown.stdout.split("\n")[0].split(" ")[0] == "two"
    for text, message in (
        (b"eins\n", f"{path}:2: has more lines than the 1 lines"),
        (b"eins\n" * 3, f"{path}:3: missing line"),
    ):
        refused = invoke(*arguments, input=text)
        assert refused.exit_code == 1
        assert message in refused.output.replace("\n", "")


def test_a_prefix_longer_than_the_learned_positions_is_rejected(translation_run):
    run = translation_run(kind="encoder_decoder", positions={"kind": "learned", "max_positions": 8})
    with pytest.raises(DataError, match="prefixes:1: the line has 8 tokens and <eos>; the model has 8 positions"):
        make_translator([run])(["eins"], prefixes=["one " * 8])
    ((found,),) = make_translator([run])(["eins"], prefixes=["one " * 7])
    assert found.text.startswith("one one one one one one one")
