"""Contrastive pairs: losses equal the model's, a tie counts as wrong, distances are binned as by LingEval97."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.program import succeed

from structattn.loading.runs import open_run
from structattn.loading.trained_run import TrainedRun
from structattn.settings.run import resolve_settings
from structattn.support.errors import DataError, UsageError
from structattn.tasks.model import build_model_for
from structattn.tasks.translation.batches import scoring_pairs
from structattn.tasks.translation.contrastive import Contrast, contrastive_negative_log_likelihoods, contrastive_scores
from structattn.tasks.translation.predictions import predictions
from structattn.training.run_training import train

PLACE = Path("pairs.json")


def contrast(source="eins zwei", reference="one two", contrastive="one one two", kind="a", distance=None, line=1):
    return Contrast(source, reference, contrastive, kind, distance, (PLACE,) * 3, line)


CONTRASTS = [contrast(), contrast(contrastive="two one"), contrast("drei", "three", "five one"),
             contrast(reference="two one", contrastive="one two"),
             contrast("vier vier vier vier fünf", "four", "four four four four four four")]  # fmt: skip


def by_hand(run, source, text):
    """-log p token by token, with the softmax of the model's logits."""
    sides, total = run.prepared.sides, 0.0
    source, target = [*sides.source.encode(source), 2], [*sides.target.encode(text), 2]
    with torch.no_grad():
        logits = run.model(torch.tensor([source]), torch.tensor([[1, *target[:-1]]]))[0].double()
    for t, token in enumerate(target):
        total -= torch.log_softmax(logits[t], -1)[token - 2].item()
    return total, len(target)


@pytest.mark.parametrize("batch_tokens", [1, 12, 4096])
@pytest.mark.parametrize("per_token", [False, True])
def test_losses_are_sums_over_translations_including_eos(translation_run, batch_tokens, per_token):
    run = translation_run()
    found = contrastive_negative_log_likelihoods(run, CONTRASTS, per_token=per_token, batch_tokens=batch_tokens)
    expected = []
    for each in CONTRASTS:
        pairs = [by_hand(run, each.source, text) for text in (each.reference, each.contrastive)]
        expected.append([nats / tokens if per_token else nats for nats, tokens in pairs])
    np.testing.assert_allclose(found, expected, rtol=1e-5)


def test_the_sum_and_the_mean_can_disagree():
    nats, tokens = np.array([[6.0, 7.0]]), np.array([[2, 4]])
    for values, successes in ((nats, 1), (nats / tokens, 0)):
        assert contrastive_scores([contrast()], values).types["a"].successes == successes


def test_a_tie_is_wrong_and_types_keep_their_order():
    contrasts = [contrast(kind=kind) for kind in "baab"]
    scores = contrastive_scores(contrasts, np.array([[1.0, 2], [3, 3], [2, 1], [1, 5]]))
    assert [(kind, each.successes, each.trials) for kind, each in scores.types.items()] == [("b", 2, 2), ("a", 0, 2)]
    assert scores.distances == {}


def test_distances_are_counted_separately_up_to_15():
    distances = [16, 0, 3, 15, 40, 0, None]
    contrasts = [contrast(distance=distance) for distance in distances] + [contrast(kind="b")]
    nats = np.array([[0.0, 1.0]] * 5 + [[1.0, 0.0]] * 3)
    scores = contrastive_scores(contrasts, nats)
    assert list(scores.distances) == ["a"]
    found = {words: (each.successes, each.trials) for words, each in scores.distances["a"].items()}
    assert found == {"0": (1, 2), "3": (1, 1), "15": (1, 1), ">15": (2, 2)}
    assert list(found) == ["0", "3", "15", ">15"]
    assert scores.types["a"].trials == 7


def test_invalid_pairs_and_models_are_rejected(translation_run):
    with pytest.raises(DataError, match=r"pairs\.json:7: 'one <eos>': the word <eos> is the name"):
        contrastive_negative_log_likelihoods(translation_run(), [contrast(contrastive="one <eos>", line=7)])
    files = Path("src.de"), Path("tgt.correct.en"), Path("tgt.incorrect.en")
    for part, file in zip(("source", "reference", "contrastive"), files, strict=True):
        of_files = replace(contrast(**{part: "one <eos>"}, line=7), paths=files)
        with pytest.raises(DataError, match=rf"^{file}:7: 'one <eos>'"):
            contrastive_negative_log_likelihoods(translation_run(), [of_files])
    run = translation_run()
    object.__setattr__(run, "model", torch.nn.Linear(1, 1))
    with pytest.raises(UsageError, match="cannot translate"):
        contrastive_negative_log_likelihoods(run, CONTRASTS)


def test_the_command_scores_runs_and_writes_the_scores(parallel_data, tmp_path):
    model = {"kind": "encoder_decoder", "d_model": 8, "num_heads": 2, "d_ff": 8, "encoder": {"layers": 1}}
    training = {
        "batches": {"kind": "pairs", "max_tokens": 100},
        "max_updates": 2,
        "max_epochs": None,
        "checkpoint_every": 1,
    }
    tree = {"task": "translation", "data": str(parallel_data), "model": model, "training": training}
    tree["evaluation"] = {"checkpoint": "last-2"}
    train(resolve_settings(tree), tmp_path / "run")
    entries = [{"source": each.source, "reference": each.reference,
                "errors": [{"type": "type one", "contrastive": each.contrastive, "distance": 2}]}
               for each in CONTRASTS]  # fmt: skip
    (tmp_path / "my.pairs.json").write_text(json.dumps(entries))
    shown = succeed(
        "evaluate", tmp_path / "run", "--suite", "contrast", "--file", tmp_path / "my.pairs.json", "--per-token"
    )
    assert "type one" in shown.output
    kept = json.loads((tmp_path / "run/analyses/contrastive-my.pairs.json").read_text())
    assert (kept["kind"], kept["name"], kept["per_token"]) == ("contrastive", "my.pairs", True)
    assert kept["types"]["type one"] == kept["distances"]["type one"]["2"]
    assert kept["types"]["type one"]["trials"] == 5
    nats = contrastive_negative_log_likelihoods(open_run(tmp_path / "run", "last-2"), CONTRASTS, per_token=True)
    assert kept["types"]["type one"]["successes"] == int((nats[:, 0] < nats[:, 1]).sum()), (
        "the weights that the run names"
    )


def test_models_that_spell_words_are_scored_as_in_training(names, tmp_path):
    prepared = names.prepare(tmp_path, train=300, valid=10)
    settings = resolve_settings(names.tree(prepared.path))
    torch.manual_seed(2)
    run = TrainedRun(tmp_path, settings, prepared, build_model_for(settings.model, prepared).eval(), 0)
    lines = list(zip(prepared.texts("valid", "source"), prepared.texts("valid", "target"), strict=True))
    contrasts = [contrast(source, target, "one", line=n) for n, (source, target) in enumerate(lines)]
    found = contrastive_negative_log_likelihoods(run, contrasts, batch_tokens=25)
    examples = scoring_pairs(prepared, "valid", 10_000, "both")
    for row, nats in enumerate(found[:, 0]):
        alone = predictions(run.model, examples.batch(np.array([row])))
        assert nats == pytest.approx(alone.row_losses().sum().item(), rel=1e-5)
    (other,), (same,) = (
        contrastive_negative_log_likelihoods(run, [contrast("xabc", reference, contrastive)])
        for reference, contrastive in (("XABC one", "XABB one"), ("XABC one", " XABC  one"))
    )
    assert other[0] != other[1], "only the spelling differs"
    assert same[0] == same[1], "what is the same to the model is equally likely"
