"""Masked language modeling: which tokens are masked, by what they are replaced, and how models are scored on them."""

import itertools
import json
import math

import numpy as np
import pytest
import torch
from torch import nn

from structattn.loading.evaluate import evaluate
from structattn.loading.runs import load
from structattn.settings.run import resolve_settings
from structattn.settings.training import Masking
from structattn.support.errors import DataError, SettingsError
from structattn.tasks.masked.batches import Corruption, masked_examples
from structattn.tasks.masked.evaluate import evenly_spaced, pseudo_log_likelihoods
from structattn.tasks.masked.task import VALIDATION_SEED
from structattn.tasks.registry import TASKS
from structattn.tasks.task import Scores
from structattn.text.folders.prepared import open_prepared
from structattn.text.folders.writing import write_prepared
from structattn.text.tokenization.vocabulary import Vocabulary
from structattn.training.run_training import train

SIZE = 9  # ids: <pad> <bos> <eos>, six symbols; 9 is the mask
MODEL = {"kind": "masked", "d_model": 8, "d_ff": 8, "num_heads": 2, "layers": 1}
BATCHES = {
    "sentences": {"kind": "tokens", "max_tokens": 24},
    "stream": {"kind": "stream", "sequence_length": 6, "batch_size": 3},
}


@pytest.fixture
def text(tmp_path):
    """A folder of lines of 1 to 7 of six words; each word is followed by the next or the one after."""

    def write(kind="sentences"):
        generator = np.random.default_rng(1)

        def line():
            steps = generator.integers(1, 3, generator.integers(1, 8))
            return (3 + (generator.integers(6) + np.cumsum(steps)) % 6).astype(np.int32)

        splits = {name: [line() for _ in range(count)] for name, count in (("train", 40), ("valid", 12), ("test", 5))}
        vocabulary = Vocabulary.from_symbols(list("abcdef"))
        write_prepared(
            tmp_path / kind, kind=kind, vocabulary=vocabulary, tokenizer={"level": "character"}, splits=splits
        )
        return tmp_path / kind

    return write


def settings_for(data, kind="sentences", **changes):
    tree = {"task": "masked_language_modeling", "data": str(data), "model": MODEL, "seed": 3}
    tree["training"] = {"batches": BATCHES[kind], "num_threads": 1, **changes}
    return resolve_settings(tree)


def task_of(data, kind="sentences", model=None, **changes):
    settings = settings_for(data, kind, **changes)
    settings = settings.model_copy(update={"model": settings.model.model_copy(update=model or {})})
    return TASKS["masked_language_modeling"].build(open_prepared(data), settings)


class SumModel(nn.Module):
    """Logits that depend on all tokens of a row and on the position."""

    def __init__(self):
        super().__init__()
        table = torch.randn(SIZE + 1, SIZE - 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        self.table = nn.Parameter(table)

    def forward(self, tokens, lengths=None, predicted=None):
        real = torch.ones_like(tokens) if lengths is None else torch.arange(tokens.shape[1]) < lengths[:, None]
        rows = self.table[tokens] * real[..., None]
        logits = rows.sum(1, keepdim=True) + 0.1 * torch.arange(tokens.shape[1])[None, :, None] * rows
        return logits if predicted is None else logits[predicted]


@pytest.mark.parametrize(("masking", "rates"), [
    (Masking(), (0.15, 0.8, 0.1 * 5 / 6, 0.1 + 0.1 / 6)),
    (Masking(share=0.4, masked=1, random=0), (0.4, 1, 0, 0)),
    (Masking(share=0.4, masked=0, random=1), (0.4, 0, 5 / 6, 1 / 6)),
])  # fmt: skip
def test_tokens_are_selected_and_replaced_at_the_rates_of_the_settings(masking, rates):
    tokens = np.tile(np.arange(2, 9), 20_000)
    corrupted, targets = Corruption(masking, SIZE, seed=5)(tokens, 0)
    words, selected = tokens != 2, targets != 0
    assert not (selected & ~words).any()
    assert (targets[selected] == tokens[selected]).all()
    assert (corrupted[~selected] == tokens[~selected]).all()
    assert corrupted[selected].min() >= 3
    found, after, before = [selected[words].mean()], corrupted[selected], tokens[selected]
    found += [(after == SIZE).mean(), ((after != SIZE) & (after != before)).mean(), (after == before).mean()]
    for rate, expected in zip(found, rates, strict=True):
        deviation = math.sqrt(expected * (1 - expected) / selected.sum())
        assert rate == pytest.approx(expected, abs=5 * deviation + 1e-12)


@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("bos", [True, False])
def test_inputs_are_the_text_with_masks(text, kind, bos):
    task = task_of(text(kind), kind, {"bos": bos}, masking={"share": 0.5})
    sequences, seen = task.train.examples.sequences, []
    for numbers in sorted(task.training_batches(1), key=min):
        batch = task.batch(numbers)
        for row, length in enumerate(batch.lengths.tolist()):
            inputs, targets = batch.inputs[row, :length], batch.targets[row, :length]
            if bos:
                assert (inputs[0], targets[0]) == (1, 0)
            whole = torch.where(targets > 0, targets, inputs)[int(bos) :]
            seen.append((batch.examples[row], whole.tolist()))
            assert (batch.inputs[row, length:] == 0).all()
            assert (batch.targets[row, length:] == 0).all()
    tokens = list(itertools.chain.from_iterable(whole for _, whole in sorted(seen)))
    assert tokens == list(itertools.chain.from_iterable([*line.tolist(), 2] for line in sequences))


def test_masks_depend_on_seed_epoch_and_example_alone(text):
    data = text()
    task, again = task_of(data), task_of(data, batches={"kind": "sequences", "batch_size": 2})
    masks = {}
    for epoch in (0, 1):
        for one in (task, again):
            for numbers in one.training_batches(epoch):
                batch = one.batch(numbers)
                for row, example in enumerate(batch.examples):
                    found = batch.targets[row, : batch.lengths[row]].tolist()
                    assert masks.setdefault((epoch, example), found) == found
    assert [masks[0, i] for i in range(40)] != [masks[1, i] for i in range(40)]


def test_loss_and_scores_are_those_of_the_selected_tokens(text):
    data = text()
    model, task = SumModel(), task_of(data, loss="token_mean")
    batch = task.batch(task.training_batches(0)[0])
    log_p = model(batch.inputs, batch.lengths).log_softmax(-1)
    places = (batch.targets > 0).nonzero().tolist()
    expected = -sum(log_p[b, t, batch.targets[b, t] - 2].item() for b, t in places)
    assert task.loss_sum(model, batch).item() == pytest.approx(expected, rel=1e-12)
    assert task.loss_denominator(batch) == task.num_tokens(batch) == len(places)
    found = task.validate(model, lambda: None)
    valid = masked_examples(open_prepared(data), "valid", settings_for(data), VALIDATION_SEED)
    whole = valid.batch(np.arange(12))
    expected = sum(task.loss_sum(model, valid.batch(np.array([i]))).item() for i in range(12))
    assert found.num_tokens == (whole.targets > 0).sum()
    assert found.cross_entropy == pytest.approx(expected / found.num_tokens, rel=1e-12)
    assert task.validate(model, lambda: None) == found


def test_a_batch_that_predicts_nothing_changes_nothing(text):
    task = task_of(text(), masking={"share": 0.05}, loss="token_mean")
    batch = next(batch for batch in map(task.batch, task.training_batches(0)) if not task.num_tokens(batch))
    assert task.loss_sum(SumModel(), batch) == 0
    assert (task.loss_denominator(batch), task.num_tokens(batch)) == (0, 0)


@pytest.mark.parametrize("bos", [True, False])
@pytest.mark.parametrize("rows", [1, 3, 1000])
def test_pseudo_log_likelihoods_mask_each_token_in_turn(bos, rows):
    model, tokens, expected = SumModel(), np.array([5, 2, 8, 3, 3, 2]), []
    for place in (0, 2, 3, 4):
        inputs = [1] * bos + tokens.tolist()
        inputs[place + bos] = SIZE
        expected.append(model(torch.tensor([inputs]))[0, place + bos].log_softmax(-1)[tokens[place] - 2].item())
    found = pseudo_log_likelihoods(model, tokens, SIZE, bos, rows)
    assert found == pytest.approx(expected, rel=1e-12)


def test_evenly_spaced_examples():
    assert evenly_spaced(7, None).tolist() == evenly_spaced(7, 9).tolist() == [0, 1, 2, 3, 4, 5, 6]
    assert evenly_spaced(7, 3).tolist() == [0, 2, 4]
    assert evenly_spaced(7, 0).tolist() == evenly_spaced(0, None).tolist() == []


@pytest.mark.parametrize("kind", BATCHES)
def test_a_run_is_resumed_evaluated_loaded_and_explained(text, tmp_path, interrupted, kind):
    settings = settings_for(text(kind), kind, max_updates=20, checkpoint_every=3, loss="token_mean")
    summary = train(settings, tmp_path / "undisturbed")
    interrupted(settings, tmp_path / "run", 4, 11)
    for name in ("events.jsonl", "checkpoints/20/model.safetensors", "checkpoints/20/state.json"):
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "undisturbed" / name).read_bytes()
    scores = evaluate(tmp_path / "run", "valid")
    assert scores.mask_seed == 0
    assert scores.cross_entropy == pytest.approx(summary.best_cross_entropy, rel=1e-6)  # the same masks
    stored = json.loads((tmp_path / "run/scores/test.json").read_text()) if evaluate(tmp_path / "run") else {}
    assert stored["baselines"] is None
    run = load(tmp_path / "run")
    sequences = run.prepared.split("test")
    assert stored["pseudo"]["num_tokens"] == sequences.num_tokens
    lines = ["abc", "fa"] if kind == "stream" else ["abcfa"]
    (records,) = run.explain(["\n".join(lines)])
    assert records[0].tokens == ("<bos>", *"abc", *(["<eos>"] if kind == "stream" else []), *"fa", "<eos>")


def test_masks_of_evaluation_have_a_seed_of_their_own(text, tmp_path):
    settings = settings_for(text(), max_updates=1)
    evaluation = settings.evaluation.changed({"mask_seed": 7, "pseudo_perplexity_examples": 0})
    train(settings.model_copy(update={"evaluation": evaluation}), tmp_path / "run")
    scores = evaluate(tmp_path / "run", "valid")
    assert (scores.mask_seed, scores.pseudo) == (7, None)
    valid = masked_examples(open_prepared(settings.data), "valid", settings, VALIDATION_SEED)
    assert scores.num_tokens != (valid.batch(np.arange(12)).targets > 0).sum()


@pytest.mark.parametrize("bos", [True, False])
def test_positions_have_to_cover_the_whole_input(text, tmp_path, bos):
    for kind, needed in (("sentences", 8 + bos), ("stream", 6 + bos)):
        data = text(kind)
        for count in (needed, needed - 1):
            model = {**MODEL, "positions": {"kind": "learned", "max_positions": count}, "bos": bos}
            settings = resolve_settings({**settings_for(data, kind, max_updates=1).model_dump(), "model": model})
            if count == needed:
                train(settings, tmp_path / "runs" / kind)
                continue
            with pytest.raises(SettingsError, match=f"the model has {count} learned positions"):
                train(settings, tmp_path / "refused")


def test_a_split_without_masks_is_refused(text, tmp_path, monkeypatch):
    """Its cross-entropy would be 0, which no later model could improve on."""
    data = text()
    with pytest.raises(DataError, match=r"valid: training\.masking\.share=1e-09 masks none of its tokens"):
        task_of(data, masking={"share": 1e-9})
    train(settings_for(data, max_updates=1, masking={"share": 0.05}), tmp_path / "run")
    monkeypatch.setattr("structattn.tasks.masked.evaluate.score_batches", lambda *_: Scores(5, 0, 0.0, 1.0))
    with pytest.raises(DataError, match=r"test: evaluation\.mask_seed=\d+ masks none of its tokens"):
        evaluate(tmp_path / "run", "test")


def test_other_data_and_settings_are_refused(prepared, text):
    with pytest.raises(DataError, match="the task masked_language_modeling needs 'sentences' or 'stream'"):
        task_of(prepared().path)
    with pytest.raises(SettingsError, match=r"'tokens' does not suit .*expected 'stream'"):
        task_of(text("stream"), batches=BATCHES["sentences"])
    with pytest.raises(SettingsError, match=r"training\.masking: .*masked 0.9 and random 0.2 sum to more than 1"):
        settings_for("data", masking={"masked": 0.9, "random": 0.2})
    with pytest.raises(SettingsError, match=r"training\.masking: needs the task 'masked_language_modeling'"):
        resolve_settings({"task": "language_modeling", "data": "data", "training": {"masking": {"share": 0.5}}})
