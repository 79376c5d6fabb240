"""Scores and translations of a text, as decoding has them, do not depend on the other texts of the batch."""

import pytest
import torch

from structattn.decoding import greedy_search, score_pairs, score_texts, start_translation
from structattn.decoding.stepper import pad_sequences
from structattn.models.builders.models import build_model
from structattn.settings.run import resolve_settings
from structattn.support.errors import SettingsError

VOCABULARY, EOS, NUM_TEXTS = 13, 2, 64
SIZES = {"d_model": 8, "d_ff": 8, "num_heads": 2}
LAYERS = "softmax.hard.superposition-3.gaussian.delta_product"
SIDES = {
    "encoder": {"layers": "softmax.hard.gaussian"},
    "decoder": {"layers": "softmax.hard.gaussian", "cross_attention": "softmax.hard.gaussian"},
}
KINDS = {
    "transformer": {"kind": "transformer", "layers": LAYERS, **SIZES},
    "two_stream": {"kind": "two_stream", "num_layers": 2, **SIZES},
    "lstm": {"kind": "lstm", "hidden_size": 8, "stack": "superposition-3"},
    "encoder_decoder": {"kind": "encoder_decoder", **SIDES, **SIZES},
    "two_stream_encoder_decoder": {"kind": "two_stream_encoder_decoder", "num_layers": 2, **SIZES},
}
TRANSLATION = ("encoder_decoder", "two_stream_encoder_decoder")


def settings_of(kind, task="language_modeling", **options):
    task, batches = ("translation", "pairs") if kind in TRANSLATION else (task, "sequences")
    model = KINDS[kind] | options
    return resolve_settings({"task": task, "data": "unused", "model": model, "training": {"batches": batches}})


def texts(seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 12, (NUM_TEXTS,), generator=generator).tolist()
    return [torch.randint(3, VOCABULARY, (n,), generator=generator).tolist() for n in lengths]


def scores(model, kind, chosen):
    """Of some texts, one tensor each."""
    own, others = texts(), texts(1)
    targets = [[*own[index], EOS] for index in chosen]
    if kind not in TRANSLATION:
        return list(score_texts(model, targets).log_probs[:, None])
    sources, lengths = pad_sequences([[*others[index], EOS] for index in chosen])
    found = score_pairs(model, sources, targets, lengths)
    results = greedy_search(model, start_translation(model, sources, lengths), 6)
    decoded = torch.tensor([[each.log_probability] for each in results])
    return list(torch.cat([found.log_probs[:, None], decoded], 1))


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_scores_do_not_depend_on_the_batch(kind):
    torch.manual_seed(3)
    model = build_model(settings_of(kind).model, VOCABULARY).eval()
    together = scores(model, kind, range(NUM_TEXTS))
    backwards = scores(model, kind, range(NUM_TEXTS)[::-1])[::-1]
    alone = [scores(model, kind, [index])[0] for index in range(0, NUM_TEXTS, 8)]
    for expected, found in (*zip(together, backwards, strict=True), *zip(together[::8], alone, strict=True)):
        assert (found - expected).norm() <= 1e-5 * expected.norm()


@pytest.mark.parametrize("task", ["language_modeling", "formal_language"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "lstm"])
def test_positions_from_the_end_are_refused_where_it_is_not_known(kind, task):
    with pytest.raises(SettingsError, match=r"model\.positions\.direction: 'backward' counts from the end"):
        settings_of(kind, task, positions={"kind": "sinusoidal", "direction": "backward"})
