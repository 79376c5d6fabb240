"""Two-stage translation: no <unk> remains in the output, and copied and spelled words are the right ones."""

import itertools
import json
import math
import random
from dataclasses import replace
from functools import partial

import pytest
import torch
from tests.program import succeed
from torch import nn

from structattn.decoding import Hypothesis, Sampling, max_target_lengths
from structattn.decoding.sampling import SeededSampling
from structattn.explorer.head_locality import explain_all_pairs
from structattn.explorer.recording import record
from structattn.loading.runs import open_run
from structattn.metrics.translation import corpus_scores
from structattn.settings.evaluation import EvaluationSettings
from structattn.settings.run import resolve_settings
from structattn.support.errors import SettingsError, UsageError
from structattn.support.special_tokens import UNK
from structattn.tasks.losses import cross_entropy_sum
from structattn.tasks.model import build_model_for
from structattn.tasks.translation.attended import EncodedSources, last_cross_attention
from structattn.tasks.translation.batches import scoring_pairs
from structattn.tasks.translation.predict import SEARCHES, Translator
from structattn.tasks.translation.predictions import predictions, spelled_source
from structattn.tasks.translation.translators import PairScorer, make_translator
from structattn.tasks.translation.unknown_words import UnknownWords
from structattn.text.batching.corruption import character_table
from structattn.text.tokenization.vocabulary import WordCharacterTokenizer
from structattn.training.run_training import train

LINES = ["xabc eins xcb", "zwei", "xa", "neu <unk> drei xaaa", "", "ü"]


@pytest.fixture(scope="module")
def prepared(names, tmp_path_factory):
    return names.prepare(tmp_path_factory.mktemp("names"), train=300, valid=10)


def random_model(names, prepared, seed, likely=8.0, **changes):
    """An untrained translator that predicts <unk> often."""
    torch.manual_seed(seed)
    settings = resolve_settings(names.tree(prepared.path, **changes)).model
    model = build_model_for(settings, prepared).double().eval()
    nn.init.normal_(model.output.weight)
    model.output.bias.data[:2] += torch.tensor([-likely, likely])  # <eos> and <unk>
    return model


def translator(model, prepared, unknown, beam=4, search="fairseq"):
    return Translator(
        (model,), prepared.sides, SEARCHES[search](beam), partial(max_target_lengths, extra=5), unknown=unknown
    )


@pytest.mark.parametrize("seed", range(6))
def test_spelling_leaves_no_unk_in_the_output(names, prepared, seed):
    model = random_model(names, prepared, seed, embedding=("c2w", "character_lstm")[seed % 2])
    search = list(SEARCHES)[seed % len(SEARCHES)]
    for beam in (1, 3):
        kept = translator(model, prepared, "keep", beam, search)(LINES, n_best=beam)
        spelled = translator(model, prepared, "spell", beam, search)(LINES, n_best=beam)
        assert any("<unk>" in each.text for found in kept for each in found)
        assert not any("<unk>" in each.text.split() for found in spelled for each in found)
        assert not any("  " in each.text or each.text.startswith(" ") for found in spelled for each in found)
        assert [len(found) for found in spelled] == [len(found) for found in kept]
        if beam == 1:  # the known words are those of the first stage
            for (before,), (after,) in zip(kept, spelled, strict=True):
                assert all(b in ("<unk>", a) for b, a in zip(before.text.split(), after.text.split(), strict=True))


def skeleton(found, prepared):
    known = prepared.sides.target.vocabulary.symbols
    return " ".join(word if word in known else "<unk>" for word in found.text.split())


def test_spelled_hypotheses_are_ranked_by_words_and_characters(names, prepared):
    model = random_model(names, prepared, 1)
    orders = []
    for line in LINES[:4]:
        found = translator(model, prepared, "spell")([line], n_best=4)[0]
        rises = [before.score < after.score for before, after in itertools.pairwise(found)]
        assert sum(rises) <= 1, "only where those begin that were cut"
        words = translator(model, prepared, "keep")([line], n_best=4)[0]
        assert max(each.log_probability for each in found) <= max(each.log_probability for each in words)
        assert sorted(skeleton(each, prepared) for each in found) == sorted(each.text for each in words)
        orders.append([skeleton(each, prepared) for each in found] != [each.text for each in words])
    assert any(orders), "characters change the order"


@pytest.mark.parametrize("sampling", [None, SeededSampling(Sampling(), 3)], ids=["beam search", "sampling"])
@pytest.mark.parametrize("count", [1, 2])
def test_the_model_gives_a_spelled_translation_the_probability_that_is_reported(names, prepared, count, sampling):
    models = tuple(random_model(names, prepared, seed, likely=1.0) for seed in range(count))
    for model in models:
        nn.init.normal_(model.output.weight, std=0.1)
        model.output.bias.data[0] += 2  # so that texts end
    limits = partial(max_target_lengths, extra=60)
    how = {"max_lengths": limits, "unknown": "spell", "sampling": sampling}
    lines = [line for line in LINES if line]
    translations = Translator(models, prepared.sides, SEARCHES["fairseq"](4), **how)(lines, n_best=4)
    finished = [
        (line, each)
        for line, results in zip(lines, translations, strict=True)
        for each in results
        if len(each.text.split()) < len(line.split()) + 60
    ]
    scores = PairScorer(models, prepared.sides).score_texts([(line, each.text) for line, each in finished])
    assert sum(skeleton(each, prepared) != each.text for _, each in finished) >= 2
    expected = [score.log_probability for score in scores]
    assert [each.log_probability for _, each in finished] == pytest.approx(expected, rel=1e-6)


def test_translations_do_not_depend_on_the_batch(names, prepared):
    model = random_model(names, prepared, 2)
    for unknown in ("copy", "spell"):
        whole = translator(model, prepared, unknown)(LINES)
        order = random.Random(1).sample(range(len(LINES)), len(LINES))
        found = translator(model, prepared, unknown)([LINES[index] for index in order])
        assert [found[order.index(index)][0].text for index in range(len(LINES))] == [best[0].text for best in whole]


@torch.no_grad()
def test_copied_words_have_the_greatest_attention_weight(names, prepared):
    model, line = random_model(names, prepared, 3), "xabc eins xcb"
    translate = translator(model, prepared, "copy")
    speller, size = prepared.sides.source.character_tokenizer, prepared.sides.source.vocabulary.size
    source = torch.tensor([[size, prepared.sides.source.encode("eins")[0], size + 1, 2]])
    rare, hypothesis = character_table(speller, ["xabc", "xcb"]), Hypothesis((3, 5, 3, 3, 2), -1.0, -1.0)
    sources = EncodedSources(((source, rare),), torch.tensor([4]), [line.split()])
    (found,) = UnknownWords((model,), sources, [0], [hypothesis]).copied()
    weights = last_cross_attention(model.explain(source, torch.tensor([[1, 3, 5, 3, 3]]), oov_spellings=rare).decoder)[
        0, :, :3
    ]
    expected = [line.split()[int(weights[position].argmax())] for position in (0, 2, 3)]
    assert found == expected
    known, copied = prepared.sides.target.vocabulary.symbols, 0
    for line, found in zip(LINES, translate(LINES, n_best=4), strict=True):
        words = [word for each in found for word in each.text.split() if word not in known]
        assert set(words) <= set(line.split())
        copied += len(words)
    assert copied > 10


class Typist(nn.Module):
    """Spells ``<unk>`` with the highest probability."""

    def __init__(self, speller):
        super().__init__()
        self.classes = speller.vocabulary.size - 2
        spelling = speller.encode("<unk>")
        self.next_of = dict(itertools.pairwise(spelling))

    def initial_state(self, x):
        return x

    def step(self, characters, state):
        logits = torch.full((len(characters), self.classes), -9.0)
        for row, character in zip(logits, characters.tolist(), strict=True):
            row[self.next_of.get(character, 2) - 2] = 9.0
        return logits, state


class Rows(torch.Tensor):
    """A state with ``select``."""

    def select(self, indices):
        return self[indices]


def test_the_spelling_unk_itself_is_never_chosen():
    speller = WordCharacterTokenizer.from_counts({"<unk>": 1, "ab": 1})

    class Model:
        spelling = Typist(speller)

        def hidden_states(self, source, inputs, lengths, target_lengths, rare):
            return torch.zeros(*inputs.shape, 2).as_subclass(Rows)

    sources = EncodedSources(((torch.tensor([[4, 2]]), None),), torch.tensor([2]), [["x"]])
    (words,) = UnknownWords((Model(),), sources, [0], [Hypothesis((3, 3, 2), -1.0, -1.0)]).spelled(speller, beam_size=1)
    assert len(words) == 2
    assert all(word and word != "<unk>" and p > -math.inf for word, p in words)


@pytest.fixture(scope="module")
def run(names, tmp_path_factory):
    """A translator trained for some updates."""
    folder = tmp_path_factory.mktemp("trained")
    data = names.prepare(folder).path
    training = {"max_updates": 150, "validate_every": 75, "optimizer": {"learning_rate": 0.01}}
    train(resolve_settings(names.tree(data, **training)), folder / "run")
    return open_run(folder / "run", "last")


@torch.no_grad()
def test_training_lowers_the_loss_of_characters(names, run):
    def nats(model):
        examples = scoring_pairs(run.prepared, "valid", 500, "both")
        found = [predictions(model, examples.batch(numbers)) for numbers in examples.scoring_order()]
        return sum(each.character_loss().item() for each in found), sum(
            cross_entropy_sum(each.logits, each.classes).item() for each in found
        )

    torch.manual_seed(1)
    before, after = nats(build_model_for(run.settings.model, run.prepared).eval()), nats(run.model.cpu())
    assert after[0] < 0.7 * before[0]
    assert after[1] < 0.5 * before[1]


def test_the_command_keeps_copies_or_spells_unknown_words(names, run):
    lines = [source for source, _ in names.pairs(40, 9)]
    outputs = {}
    for unknown in (None, "keep", "copy", "spell"):
        options = [] if unknown is None else [f"evaluation.unknown_words={unknown}"]
        given = "".join(line + "\n" for line in lines).encode()
        result = succeed("translate", run.run_dir, *options, input=given)
        outputs[unknown] = result.stdout.split("\n")[:-1]
        assert len(outputs[unknown]) == len(lines)
    assert outputs[None] == outputs["spell"]
    assert any("<unk>" in line for line in outputs["keep"])
    for unknown in ("copy", "spell"):
        assert not any("<unk>" in line for line in outputs[unknown])
    names_copied = {word for line in outputs["copy"] for word in line.split() if word.startswith("x")}
    assert names_copied <= {word for line in lines for word in line.split()}
    assert all(word[0] == "X" or word in {"one", "two", "three"} for line in outputs["spell"] for word in line.split())


@pytest.mark.parametrize("unknown", ["keep", "copy", "spell"])
def test_the_search_tree_of_a_line_has_its_translation(names, run, unknown):
    lines, replaced = [source for source, _ in names.pairs(12, 9)], 0
    translator = make_translator([run], EvaluationSettings(unknown_words=unknown))
    for line, (best, *_) in zip(lines, translator(lines), strict=True):
        found = translator.search_tree(line)
        assert found.translation.text == best.text
        # A probability near 1 has a logarithm near 0, whose error is that of the logits.
        assert found.translation.log_probability == pytest.approx(best.log_probability, rel=1e-5, abs=2e-6)
        path = found.tree.path(found.best)
        assert path[: len(found.ids)] == found.ids
        assert len(found.replacements) == (0 if unknown == "keep" else path.count(UNK))
        replaced += len(found.replacements)
    assert (replaced > 0) == (unknown != "keep")


def test_recorded_surprisals_include_the_spellings_that_were_found(names, run):
    lines = [source for source, _ in names.pairs(6, 9)]
    for example, (best, *_) in zip(record(run, lines).examples, make_translator([run])(lines), strict=True):
        assert example.beam_search.text == best.text
        # The search leaves out the spelling <unk>, which is improbable.
        assert -example.surprisal.sum() == pytest.approx(best.log_probability, abs=0.01)


def test_several_models_spell_as_an_ensemble(names, run):
    lines = [source for source, _ in names.pairs(10, 9)]
    alone = make_translator([run])(lines)
    for unknown in ("copy", "spell"):
        twice = make_translator([run, run], EvaluationSettings(unknown_words=unknown))(lines)
        assert [best[0].text for best in twice] == [
            best[0].text for best in make_translator([run], EvaluationSettings(unknown_words=unknown))(lines)
        ]
    for (one, *_), (same, *_) in zip(alone, twice, strict=True):
        assert same.log_probability == pytest.approx(one.log_probability, rel=1e-4)


def test_scores_compare_the_three_methods(run):
    shown = succeed("evaluate", run.run_dir, "--split", "test", "evaluation.checkpoint=last")
    assert "<unk> kept" in shown.output
    stored = json.loads((run.run_dir / "scores/test.json").read_text())
    sources, references = (run.prepared.texts("test", side) for side in ("source", "target"))
    for way, scores in {"spell": stored["translation"], **stored["translation_alternatives"]}.items():
        found = [best[0].text for best in make_translator([run], EvaluationSettings(unknown_words=way))(sources)]
        expected = corpus_scores(found, references)
        assert {name: score["value"] for name, score in scores.items()} == {
            name: score.value for name, score in expected.items()
        }
    assert stored["translation"]["chrF2"]["value"] > stored["translation_alternatives"]["keep"]["chrF2"]["value"]


def test_unsuitable_models_and_data_are_rejected(names, run, tmp_path):
    tree = names.tree(run.prepared.path, max_updates=1)
    tree["model"]["decoder"].pop("spelling")
    train(resolve_settings(tree), tmp_path / "plain")
    with pytest.raises(UsageError, match=r"needs a model with model\.decoder\.spelling"):
        make_translator([open_run(tmp_path / "plain")], EvaluationSettings(unknown_words="spell"))
    assert make_translator([open_run(tmp_path / "plain"), run]).unknown == "keep"
    bytes_ = names.prepare(tmp_path, level="byte").path
    with pytest.raises(SettingsError, match="the data have no characters of words"):
        train(resolve_settings(names.tree(bytes_)), tmp_path / "bytes")


def test_explanations_use_the_spellings_of_rare_words(run):
    ((batch, found),) = explain_all_pairs(run, "valid", 10_000)
    source, rare = spelled_source(run.model, batch.source, batch.unknown_source_words)
    assert (source >= run.prepared.sides.source.vocabulary.size).any()
    expected = run.model.explain(source, batch.inputs, batch.source_lengths, batch.lengths, rare)
    for one, other in zip(found.encoder + found.decoder, expected.encoder + expected.decoder, strict=True):
        torch.testing.assert_close(one.weights, other.weights)


def test_samples_keep_their_order_and_are_scored_by_their_probability(run):
    drawn = replace(make_translator([run]), sampling=SeededSampling(Sampling(2.0), 3))
    kept = replace(drawn, unknown="keep")
    for found, words in zip(drawn(LINES, 6), kept(LINES, 6), strict=True):
        assert all(each.score == pytest.approx(each.log_probability) for each in found)
        for one, other in zip(found, words, strict=True):
            assert all(b in ("<unk>", a) for b, a in zip(other.text.split(), one.text.split(), strict=True))
