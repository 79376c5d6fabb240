"""What every model must do in evaluation mode, whatever it is made of: checks of a case of ``model_cases.py``."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import pytest
import torch
from safetensors.torch import load, save
from tests.contracts.model_harness import (
    SEED,
    VOCABULARY,
    ModelCase,
    PaddedBatch,
    Texts,
    attended,
    by_steps,
    cotangent_for,
    explanations,
    gradients_of,
    logits_of,
    padded_texts,
    start,
    texts_for,
)
from torch import Tensor

from structattn.attention.contract import ALONE, BEFORE, WHOLE, require_close, require_equal
from structattn.models import EncoderDecoder, RecurrentLanguageModel
from structattn.models.protocols import AttendingModel
from structattn.support.special_tokens import BOS, CLASS_OFFSET

CHOICES = ([3, 0, 1, 1], [2, 0, 0], [1, 2, 0, 1, 2], [4, 4, 3, 0], [0, 3, 1])
"""The hypotheses of a beam that go on before each step."""
LARGE = 64


def require_close_gradients(
    found: Sequence[Tensor], reference: str, expected: Sequence[Tensor], cotangent: Tensor, tolerance: float
) -> None:
    """Check that gradients are close, relative to themselves or to the cotangent."""
    for one, other in zip(found, expected, strict=True):
        error = ((one - other).norm() / max(other.norm(), cotangent.norm())).item()
        assert error <= tolerance, f"a gradient differs from {reference}: relative error {error:.1e}"


def check_steps(case: ModelCase) -> None:
    """Steps equal the whole, and so do their gradients; networks may begin with <bos> or without."""
    model = case.built
    for first in (BOS, VOCABULARY - 1) if isinstance(model, RecurrentLanguageModel) else (BOS,):
        texts = texts_for(model, first)
        whole, steps = logits_of(model, texts), by_steps(model, texts)
        require_close("an output of a step", steps, WHOLE, whole, 1e-12)
        cotangent = cotangent_for(whole)
        expected, found = (gradients_of(model, each, cotangent) for each in (whole, steps))
        require_close_gradients(found, WHOLE, expected, cotangent, 1e-11)


@torch.no_grad()
def check_beams(case: ModelCase) -> None:
    """Hypotheses that are copied, reordered and dropped go on as the whole texts, each with its source, in float32."""
    model, generator = case.in_float32, torch.Generator().manual_seed(2)
    texts = texts_for(model).padded((torch.tensor([4, 2, 3, 0]), None))
    state, steps, history = start(model, texts), list[Tensor](), texts.tokens[-1][:, :0]
    for t, chosen in enumerate(map(torch.tensor, CHOICES)):
        new = torch.randint(3, VOCABULARY, (len(chosen), 1), generator=generator) if t else torch.full((4, 1), BOS)
        texts, history = texts.rows(chosen), torch.cat([history[chosen], new], 1)
        logits, state = model.step(new[:, 0], state.select(chosen))
        steps = [*(each[chosen] for each in steps), logits]
    whole = logits_of(model, texts.continuing(history))
    require_close("an output of a beam", torch.stack(steps, 1), WHOLE, whole, 1e-5)


@torch.no_grad()
def check_states(case: ModelCase) -> None:
    """A step leaves the state that it starts from, and so do steps from states before it."""
    model, texts = case.built, texts_for(case.built)
    columns, states, outputs = texts.tokens[-1].unbind(1), [start(model, texts)], []
    for tokens in columns:
        logits, after = model.step(tokens, states[-1])
        outputs.append(logits)
        states.append(after)
    model.step(columns[2].flip(0), states[2])  # another continuation
    for t in (4, 2):  # the last state first: what another continuation wrote would be written anew
        again, _ = model.step(columns[t], states[t])
        require_equal("a second step from a state", again, "the first", outputs[t])


@torch.no_grad()
def check_later_tokens(case: ModelCase) -> None:
    """Later tokens matter to bidirectional models alone."""
    after = logits_of(case.built, texts_for(case.built).changed(slice(3, None)))[:, :3]
    if case.is_causal:
        require_close("an output after a change of later tokens", after, BEFORE, case.whole[:, :3], 1e-12)
    else:
        assert (after != case.whole[:, :3]).any()


@torch.no_grad()
def check_earlier_tokens(case: ModelCase) -> None:
    """The tokens before matter, on both sides; without this, the other promises would be empty."""
    texts = texts_for(case.built)
    if case.task != "recognition":
        assert case.whole.shape == (*texts.tokens[-1].shape, VOCABULARY - CLASS_OFFSET)
    for side in range(len(texts.tokens)):
        changed = logits_of(case.built, texts.changed(slice(1, 2), side))
        assert (changed[:, -1] != case.whole[:, -1]).any()


def check_padding(case: ModelCase) -> None:
    """Outputs and gradients do not depend on what is at padding."""
    expected = case.padded
    found = PaddedBatch.of(case.built, padded_texts(case.built, case.shortest, token=VOCABULARY - 1))
    assert any((one != other).any() for one, other in zip(found.texts.tokens, expected.texts.tokens, strict=True))
    reference = "that beside other padding"
    require_close("an output", found.logits, reference, expected.logits, 1e-12)
    require_close_gradients(found.gradients, reference, expected.gradients, expected.cotangent, 1e-12)


def check_batches(case: ModelCase) -> None:
    """A text alone equals the same text in a padded batch; gradients of a batch are the sum of those of its texts."""
    model, batch, total = case.built, case.padded, torch.zeros((), dtype=torch.float64)
    for row in range(4):
        text = batch.texts.alone(row)
        size = text.tokens[-1].shape[1]
        if size:  # else there are no outputs, and in the batch no gradients
            alone = logits_of(model, text)[0]
            require_close("an output in a batch", batch.logits[row, :size], ALONE, alone, 1e-12)
            total = total + (alone * batch.cotangent[row, :size]).sum()
    sums = gradients_of(model, total, torch.ones_like(total))
    require_close_gradients(batch.gradients, "the sum of those alone", sums, batch.cotangent, 1e-11)


@torch.no_grad()
def check_large_batches(case: ModelCase) -> None:
    """The other texts of a batch of 64 and their order have no influence, in float32."""
    model, generator = case.in_float32, torch.Generator().manual_seed(3)
    texts = texts_for(model, batch=LARGE, time=8)
    lengths = tuple(torch.randint(1, each.shape[1] + 1, (LARGE,), generator=generator) for each in texts.tokens)
    texts = texts.padded(lengths)
    together, backwards = (logits_of(model, each) for each in (texts, texts.rows(torch.arange(LARGE).flip(0))))
    real = texts.is_real()
    require_close("an output", backwards.flip(0)[real], "that in another order", together[real], 1e-5)
    for row in range(0, LARGE, 16):
        alone = logits_of(model, texts.alone(row))[0]
        require_close("an output in a batch", together[row, : len(alone)], ALONE, alone, 1e-5)


@torch.no_grad()
def check_lengths(case: ModelCase) -> None:
    """Lengths of whole texts change nothing."""
    texts = texts_for(case.built)
    lengths = tuple(torch.full((len(each),), each.shape[1]) for each in texts.tokens)
    found = logits_of(case.built, texts.padded(lengths))
    require_close("an output with lengths", found, "that without", case.whole, 1e-12)


@torch.no_grad()
def check_weights(case: ModelCase) -> None:
    """Initial weights follow the seed; a model into which weights are loaded is the one that they were saved from."""
    first, again = case.initial.state_dict(), case.initialized(SEED).state_dict()
    assert all(torch.equal(each, first[name]) for name, each in again.items())
    other = case.initialized(SEED + 1).double().eval()
    for parameter in other.parameters():
        parameter.fill_(torch.nan)
    other.load_state_dict(load(save({name: each.clone() for name, each in case.built.state_dict().items()})))
    require_close("an output after saving and loading", logits_of(other, texts_for(other)), BEFORE, case.whole, 1e-12)


def check_evaluation(case: ModelCase) -> None:
    """Evaluation draws nothing, and depends neither on earlier calls nor on whether gradients are computed."""
    batch, real = case.padded, case.padded.texts.is_real()
    for seed, mode in enumerate((torch.no_grad, torch.inference_mode)):
        torch.manual_seed(seed)
        before = torch.get_rng_state()
        with mode():
            found = logits_of(case.built, batch.texts)
        assert torch.equal(torch.get_rng_state(), before)
        require_close("an output", found[real], "that with gradients", batch.logits[real], 1e-12)


def check_explanations(case: ModelCase) -> None:
    """Explanations do not depend on the batch; looped layers of longer texts have more, with weights 0."""
    texts = padded_texts(case.built, shortest=1, same_start=True)
    own = [each for each in explanations(case.built, texts.alone(0)).values() if each.weights.any()]
    found = [each for each in explanations(case.built, texts).values() if each.weights[0].any()]
    for one, other in zip(found, own, strict=True):
        assert (one.mechanism, one.details.keys()) == (other.mechanism, other.details.keys())
        for name, alone in {"weights": other.weights, **other.details}.items():
            tensor = one.weights if name == "weights" else one.details[name]
            part = tensor[0][tuple(map(slice, alone.shape[1:]))].double()
            require_close(f"{name} of an explanation in a batch", part, ALONE, alone[0].double(), 1e-11)


@torch.no_grad()
def check_attended(case: ModelCase) -> None:
    """The pass that returns weights has the same outputs, and the weights of explanations; blanks have no such pass."""
    if not isinstance(case.built, AttendingModel | EncoderDecoder) or case.has_blanks:
        return
    batch, texts = case.padded, case.padded.texts
    found, weights = attended(case.built, texts)
    real = texts.is_real()
    require_close("an output with weights", found[real], "that without", batch.logits[real], 1e-12)
    records = explanations(case.built, texts)
    for place, each in weights.items():
        real = texts.is_real(place[0])
        explained = records[place].weights.transpose(1, 2)[real]
        require_close("the weights of a pass", each.transpose(1, 2)[real], "those explained", explained, 1e-12)


def check_empty(case: ModelCase) -> None:
    """An empty batch, texts of one token and, if the model reads them, of none have outputs and finite gradients."""
    texts = texts_for(case.built)
    sizes = (2, 1, 1), (0, 4, 3), *([] if case.shortest else [(2, 4, 0), (2, 0, 3)])  # of batch, source and text
    for batch, *times in sizes[: 2 + len(texts.tokens)]:
        ends = times[-len(texts.tokens) :]
        tokens = tuple(each[:batch, :end] for each, end in zip(texts.tokens, ends, strict=True))
        logits = logits_of(case.built, Texts(tokens, (None,) * len(tokens)))
        assert logits.shape == (batch, times[-1], case.whole.shape[-1])
        assert all(each.isfinite().all() for each in gradients_of(case.built, logits, torch.ones_like(logits)))


OF_STEPS: Final[Mapping[str, Callable[[ModelCase], None]]] = MappingProxyType(
    {
        "steps": check_steps,
        "beams": check_beams,
        "states": check_states,
    }
)
"""Of models that go step by step."""
PROMISES: Final[Mapping[str, Callable[[ModelCase], None]]] = MappingProxyType(
    {
        **OF_STEPS,
        "later tokens": check_later_tokens,
        "earlier tokens": check_earlier_tokens,
        "padding": check_padding,
        "batches": check_batches,
        "large batches": check_large_batches,
        "lengths": check_lengths,
        "weights": check_weights,
        "evaluation": check_evaluation,
        "explanations": check_explanations,
        "attended": check_attended,
        "empty": check_empty,
    }
)


def promises_of(cases: Mapping[str, ModelCase]) -> list[Any]:
    """Return the name of a case and that of a promise, for all that it makes, as parameters of a test.

    Quick are steps, and of the others every second promise of each case and every second case of each promise. Cases
    come in pairs, as a transformer and a masked model of the same layers, which take turns.
    """
    return [
        pytest.param(name, promise, marks=() if promise in OF_STEPS or turn % 2 else pytest.mark.slow)
        for place, (name, case) in enumerate(cases.items())
        for turn, promise in enumerate(PROMISES, start=place + place // 2)
        if case.goes_step_by_step or promise not in OF_STEPS
    ]
