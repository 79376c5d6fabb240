"""Interventions: a head is switched off, an action is forced, and nothing else changes."""

import contextlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from tests.contracts.model_cases import CASES, IN_LAYERS
from tests.contracts.model_harness import logits_of, texts_for

from structattn.attention import Streams
from structattn.attention.projections import OutputProjection
from structattn.explorer import record
from structattn.explorer.interventions import (
    SUBLAYERS,
    ForcedAction,
    HeadOff,
    SublayerOff,
    _action_hooks,
    intervened,
    layers_by_side,
)
from structattn.loading.runs import load
from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_language_model
from structattn.models.protocols import AttendingModel
from structattn.settings.run import resolve_settings
from structattn.settings.transformer import LanguageModelSettings
from structattn.support.errors import UsageError
from structattn.support.special_tokens import UNK_CLASS
from structattn.tasks.formal_languages.dependencies import receptive_fields
from structattn.tasks.transductions.prepare import TransductionSizes, prepare_transduction
from structattn.training.run_training import train

TIME, POSITION = 6, 3
STACKS = {
    "superposition": ("1.superposition-3.1", ("push", "no-op", "pop")),
    "stack_pointer": ("1.stack_pointer.1", ("push", "no-op", "pop")),
    "nondeterministic": ("1.nondeterministic-2-3-4.1", ("push", "replace", "pop")),
}


def make(layers):
    torch.manual_seed(3)
    settings = LanguageModelSettings(layers=layers, d_model=8, d_ff=12, num_heads=2)
    return build_language_model(settings, VocabularySpec(9)).double().eval()


def tokens():
    return torch.randint(3, 9, (2, TIME), generator=torch.Generator().manual_seed(0))


def explained(model, ids, mechanism):
    return [each for each in model.explain(ids) if each.mechanism == mechanism]


@pytest.mark.parametrize("layers", ["2", "1.hard", "1.gaussian", "1.delta_product"])
@pytest.mark.parametrize("head", [0, 1])
def test_a_head_is_off_as_if_its_part_of_the_output_projection_were_zero(layers, head):
    model, ids = make(layers), tokens()
    before = model(ids)
    with intervened(model, [HeadOff(1, head)]):
        off = model(ids)
    torch.testing.assert_close(model(ids), before, rtol=0, atol=0)
    (output,) = [each for each in model.layers.blocks[1].modules() if isinstance(each, OutputProjection)]
    output.weight.data[:, 4 * head : 4 * head + 4] = 0
    torch.testing.assert_close(off, model(ids), rtol=1e-12, atol=1e-14)
    assert not torch.allclose(off, before)


class Nothing(torch.nn.Module):
    """In place of a sublayer: zeros for each position of its first input."""

    def forward(self, x, *arguments):
        return x.map(torch.zeros_like) if isinstance(x, Streams) else torch.zeros_like(x)


OF_ALL_MECHANISMS = [f"transformer, {name}" for name in IN_LAYERS]
OF_ALL_MECHANISMS += [name for name in CASES if name.startswith("encoder_decoder, s")]
OF_ALL_MECHANISMS += ["two_stream, none", "two_stream, simplified", "two_stream_encoder_decoder, none"]


@pytest.mark.parametrize("name", OF_ALL_MECHANISMS)
def test_a_sublayer_is_off_as_if_it_returned_zeros(name):
    model = CASES[name].built
    texts, before = texts_for(model), CASES[name].whole
    for side, layers in layers_by_side(model).items():
        for index, block in enumerate(layers.blocks):
            for sublayer in filter(partial(getattr, block), SUBLAYERS):
                with intervened(model, [SublayerOff(index, sublayer, side)]):
                    off = logits_of(model, texts)
                    if isinstance(model, AttendingModel):
                        attended = model.attend(texts.tokens[0], texts.lengths[0])
                        expected = model(texts.tokens[0], texts.lengths[0])
                        torch.testing.assert_close(attended[0], expected, equal_nan=True)
                        assert sublayer != "attention" or attended[1][index] is None or not attended[1][index].any()
                with pytest.MonkeyPatch.context() as patch:
                    patch.setitem(getattr(block, sublayer)._modules, "layer", Nothing())
                    expected = logits_of(model, texts)
                torch.testing.assert_close(off, expected, rtol=0, atol=0, equal_nan=True)
                assert not torch.allclose(off, before), sublayer
    torch.testing.assert_close(logits_of(model, texts), before, rtol=0, atol=0, equal_nan=True)


@pytest.mark.covering(1)
@pytest.mark.parametrize("mechanism", STACKS)
@pytest.mark.parametrize("action", [0, 1, 2])
def test_a_forced_action_is_certain_and_changes_nothing_before_it(mechanism, action):
    layers, names = STACKS[mechanism]
    model, ids = make(layers), tokens()
    before, (stack,) = model(ids), explained(model, ids, mechanism)
    with intervened(model, [ForcedAction(stack.layer, POSITION, names[action], stack.sublayer)]):
        after, (forced,) = model(ids), explained(model, ids, mechanism)
    actions = forced.details["actions"]
    torch.testing.assert_close(after[:, :POSITION], before[:, :POSITION], rtol=1e-12, atol=1e-14)
    assert not torch.allclose(after[:, POSITION], before[:, POSITION])
    expected = torch.eye(3, dtype=actions.dtype)[action].expand(2, 3)
    torch.testing.assert_close(actions[:, POSITION], expected, rtol=0, atol=1e-12)
    if mechanism != "nondeterministic":  # whose posteriors depend on later actions
        rest = [t for t in range(TIME) if t != POSITION]
        torch.testing.assert_close(actions[:, rest], stack.details["actions"][:, rest], rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(model(ids), before, rtol=0, atol=0)


def test_other_threads_compute_without_interventions():
    model, ids = make("1.superposition-3.1"), tokens()
    with ThreadPoolExecutor(1) as other:
        before = other.submit(model, ids).result()
        with intervened(model, [HeadOff(0, 1), ForcedAction(1, POSITION, "pop")]):
            meanwhile, here = other.submit(model, ids).result(), model(ids)
    assert torch.equal(meanwhile, before)
    assert not torch.allclose(here, before)


@pytest.mark.parametrize("off", [[SublayerOff(0), SublayerOff(1)], [HeadOff(0, 0), HeadOff(0, 1), SublayerOff(1)]])
def test_without_attention_a_position_depends_on_itself_alone(off):
    model, ids = make("2"), tokens()
    assert not torch.equal(receptive_fields(model, ids)[0], torch.eye(TIME).double())
    with intervened(model, off):
        assert torch.equal(receptive_fields(model, ids)[0], torch.eye(TIME).double())
    assert not any("attend" in vars(module) for module in model.modules())


def test_interventions_combine():
    model, ids = make("1.superposition-3.1"), tokens()
    both = [ForcedAction(1, 2, "pop"), ForcedAction(1, 4, "push"), HeadOff(0, 1)]
    with intervened(model, both):
        actions = model.explain(ids)[1].details["actions"]
    assert actions[:, [2, 4]].argmax(-1).tolist() == [[2, 0], [2, 0]]


@pytest.mark.parametrize(
    ("mechanism", "actions", "message"),
    [
        ("stack_pointer", {0: "push"}, r"position=0, .* the first token stands for the empty stack and has no action"),
        ("nondeterministic", {0: "pop"}, r"position=0, .* only the bottom is on the stack"),
        ("nondeterministic", {2: "pop", 1: "pop", 0: "push"}, r"position=2, .* only the bottom is on the stack"),
        ("nondeterministic", {1: "pop", 0: "replace"}, r"position=1, .* only the bottom is on the stack"),
        ("nondeterministic", {1: "pop", 2: "pop"}, r"position=2, .* only the bottom is on the stack"),
        ("nondeterministic", {10**12: "pop", 0: "pop"}, r"position=0, .* only the bottom is on the stack"),
    ],
)
def test_what_a_stack_cannot_do_is_refused(mechanism, actions, message):
    model = make(STACKS[mechanism][0])
    (stack,) = explained(model, tokens(), mechanism)
    forced = [ForcedAction(stack.layer, position, name, stack.sublayer) for position, name in actions.items()]
    with pytest.raises(UsageError, match=message), intervened(model, forced):
        pass


@pytest.mark.quick("None", "1")
@pytest.mark.parametrize("window", [None, 1, 2])
def test_what_a_nondeterministic_stack_can_do_is_what_is_not_refused(window):
    """All sequences of forced and free steps: those that no run has leave no weight to any action."""
    model = make([{"attention": "nondeterministic", "num_states": 1, "stack_alphabet_size": 2,
                   "stack_embedding_size": 3, "window": window}])  # fmt: skip
    ids = tokens()[:1, :4]
    for actions in itertools.product((None, *STACKS["nondeterministic"][1]), repeat=4):
        forced = [ForcedAction(0, position, action) for position, action in enumerate(actions) if action]
        hooks = [hook for each in forced for hook in _action_hooks(model.layers.blocks[0].attention.layer, each)]
        (found,) = model.explain(ids)
        for hook in hooks:
            hook.remove()
        possible = bool((found.details["prefix_actions"].sum(-1) > 0.5).all())
        with contextlib.nullcontext() if possible else pytest.raises(UsageError), intervened(model, forced):
            pass


def test_forced_actions_that_a_nondeterministic_stack_can_take_are_certain():
    model, ids = make("1.nondeterministic-2-3-4.1"), tokens()
    actions = ["push", "replace", "push", "pop", "pop", "push"]
    with intervened(model, [ForcedAction(1, position, action) for position, action in enumerate(actions)]):
        found = model.explain(ids)[1].details["prefix_actions"]
    names = STACKS["nondeterministic"][1]
    expected = torch.eye(3, dtype=found.dtype)[[names.index(each) for each in actions]].expand(2, -1, -1)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_answers_of_transductions_are_found_without_interventions(tmp_path):
    prepare_transduction(tmp_path / "data", "reverse-string", sizes=TransductionSizes((3, 5), (3, 5), 1, 1))
    tree = {"task": "autoregressive_transduction", "data": str(tmp_path / "data"), "seed": 3}
    tree["model"] = {"layers": "1.superposition-3.1", "d_model": 8, "d_ff": 12, "num_heads": 2}
    tree["training"] = {"max_updates": 1, "max_epochs": None, "batches": {"kind": "sequences", "batch_size": 4}}
    train(resolve_settings(tree), tmp_path / "run")
    run = load(tmp_path / "run")
    text = " ".join(run.prepared.vocabulary.symbols[3:5] * 2)
    before = record(run, [text]).examples[0].tokens
    for position in range(len(before)):
        assert record(run, [text], interventions=[ForcedAction(1, position, "push")]).examples[0].tokens == before


def test_translations_with_replaced_words_are_those_of_the_search_without_interventions(translation_run):
    run = translation_run()
    run.model.output.bias.data[UNK_CLASS] = 10
    how = run.settings.evaluation.changed({"unknown_words": "copy"})
    run = replace(run, settings=run.settings.model_copy(update={"evaluation": how}))
    texts = ["eins zwei drei", "vier fünf eins", "zwei"]
    before = record(run, texts).examples
    after = record(run, texts, interventions=[HeadOff(0, 0, side="decoder")]).examples
    assert any("<unk>" in each.tokens for each in before)
    assert [each.tokens for each in after] == [each.tokens for each in before]
    assert not any(
        np.array_equal(*pair)
        for pair in zip(*([each.surprisal for each in both] for both in (before, after)), strict=True)
    )
    assert all(each.beam_search is None for each in after)


@pytest.mark.parametrize("loops", [{"count": 2}, {"padding": 2}])
def test_looped_transformers_are_refused(loops):
    settings = LanguageModelSettings(layers="3", loops=loops, positions="none", d_model=8, d_ff=12, num_heads=2)
    model = build_language_model(settings, VocabularySpec(9))
    with pytest.raises(UsageError, match="without loops; the model is a LanguageModel of looped layers"):
        intervened(model, [HeadOff(0, 0)]).__enter__()


def test_two_actions_at_a_position_are_refused():
    both = [ForcedAction(1, 2, "pop"), ForcedAction(1, 2, "push")]
    with pytest.raises(UsageError, match="'pop' is forced at the same position"):
        intervened(make("1.superposition-3.1"), both).__enter__()


@pytest.mark.parametrize(
    ("intervention", "message"),
    [
        (HeadOff(3, 0), "there is no such layer; the model has 3"),
        (HeadOff(0, 2), "there is no such head; the layer has 2"),
        (HeadOff(0, -1), "head=-1, .* there is no such head"),
        (HeadOff(1, 0), "SuperpositionStackAttention has no heads"),
        (HeadOff(0, 0, "cross"), "the layer has no sublayer 'cross'"),
        (HeadOff(0, 0, "forward"), "the layer has no sublayer 'forward'"),
        (HeadOff(0, 0, side="encoder"), "the model has no encoder"),
        (HeadOff(0, 0, "feedforward"), "FeedForward has no heads to switch off"),
        (SublayerOff(1, "stack"), "the layer has no sublayer 'stack'"),
        (ForcedAction(0, 0, "pop"), "SoftmaxAttention is not a stack"),
        (ForcedAction(1, 0, "replace"), "unknown action 'replace'; expected one of push, no-op, pop"),
        (ForcedAction(1, TIME, "pop"), f"there is no such token; the text has {TIME}"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(intervention, message):
    model = make("1.superposition-3.1")
    with pytest.raises(UsageError, match=message), intervened(model, [intervention]):
        model(tokens())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
