"""What a model says of a text does not depend on the other texts of the batch, with any kind of run and positions."""

import pytest
import torch

from structattn.decoding import greedy_search, score_pairs, score_texts, start_translation
from structattn.decoding.stepper import pad_sequences
from structattn.models.builders.models import build_model
from structattn.settings.run import resolve_settings
from structattn.support.errors import SettingsError

VOCABULARY, EOS, NUM_TEXTS = 13, 2, 64
LAYERS = {"layers": "softmax.hard.superposition-3.gaussian.delta_product"}
KINDS = {
    "transformer": {"kind": "transformer", **LAYERS},
    "masked": {"kind": "masked", **LAYERS},
    "two_stream": {"kind": "two_stream", "num_layers": 2},
    "encoder_decoder": {
        "kind": "encoder_decoder",
        "encoder": {"layers": "softmax.hard.gaussian"},
        "decoder": {"layers": "softmax.hard.gaussian", "cross_attention": "softmax.hard.gaussian"},
    },
    "two_stream_encoder_decoder": {"kind": "two_stream_encoder_decoder", "num_layers": 2},
    "lstm": {"kind": "lstm", "hidden_size": 8, "stack": "superposition-3"},
}
TASKS = {
    "formal_language": ("transformer", "lstm", "two_stream"),
    "language_modeling": ("transformer", "lstm", "two_stream"),
    "masked_language_modeling": ("masked",),
    "masked_transduction": ("masked", "transformer"),
    "autoregressive_transduction": ("transformer",),
    "translation": ("encoder_decoder", "two_stream_encoder_decoder"),
}
POSITIONS = {
    **dict.fromkeys(("none", "sinusoidal", "learned", "relative", "rotary", "alibi")),
    "halves": {"kind": "sinusoidal", "layout": "halves", "denominator": "d-2"},
    "backward": {"kind": "sinusoidal", "direction": "backward"},
    "shifted": {"kind": "alibi", "variant": "shifted"},
}
KNOW_THEIR_END = ("masked_language_modeling", "masked_transduction", "autoregressive_transduction")
RUNS = [
    (task, kind, name)
    for task, kinds in TASKS.items()
    for kind in kinds
    for name in ([None] if kind == "lstm" else POSITIONS)
]


def settings_of(task, kind, positions):
    model = dict(KINDS[kind])
    if positions is not None:
        model |= {"d_model": 8, "d_ff": 8, "num_heads": 2, "positions": POSITIONS[positions] or positions}
    batches = "pairs" if task == "translation" else "sequences"
    return resolve_settings({"task": task, "data": "unused", "model": model, "training": {"batches": batches}})


def texts(seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 12, (NUM_TEXTS,), generator=generator).tolist()
    return [torch.randint(3, VOCABULARY, (n,), generator=generator).tolist() for n in lengths]


def scores(model, task, chosen):
    """Of some texts, one tensor each."""
    own, others = texts(), texts(1)
    if task == "translation":
        sources, lengths = pad_sequences([[*others[index], EOS] for index in chosen])
        found = score_pairs(model, sources, [[*own[index], EOS] for index in chosen], lengths)
        results = greedy_search(model, start_translation(model, sources, lengths), 6)
        decoded = torch.tensor([[each.log_probability] for each in results])
        return list(torch.cat([found.log_probs[:, None], decoded], 1))
    if task in ("formal_language", "language_modeling"):
        return list(score_texts(model, [[*own[index], EOS] for index in chosen]).log_probs[:, None])
    tokens, lengths = pad_sequences([[*own[index], EOS] for index in chosen])
    return [x[:length] for x, length in zip(model(tokens, lengths), lengths.tolist(), strict=True)]


@torch.no_grad()
@pytest.mark.parametrize(("task", "kind", "positions"), RUNS)
def test_scores_do_not_depend_on_the_batch(task, kind, positions):
    if positions == "backward" and task not in KNOW_THEIR_END:
        with pytest.raises(SettingsError, match=r"model\.positions\.direction: 'backward' counts from the end"):
            settings_of(task, kind, positions)
        return
    torch.manual_seed(3)
    model = build_model(settings_of(task, kind, positions).model, VOCABULARY).eval()
    together = scores(model, task, range(NUM_TEXTS))
    backwards = scores(model, task, range(NUM_TEXTS)[::-1])[::-1]
    alone = [scores(model, task, [index])[0] for index in range(0, NUM_TEXTS, 8)]
    for expected, found in (*zip(together, backwards, strict=True), *zip(together[::8], alone, strict=True)):
        assert (found - expected).norm() <= 1e-5 * expected.norm()
