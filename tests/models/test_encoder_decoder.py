"""The encoder-decoder: ties, explanations, compilation, and memories that beams share."""

import pytest
import torch

from structattn.models.builders.layers import VocabularySpec
from structattn.models.builders.models import build_encoder_decoder
from structattn.settings.transformer import EncoderDecoderSettings
from structattn.support.errors import SettingsError

SOURCE, TARGET = 9, 7
MIXED = {
    "kind": "encoder_decoder",
    "d_model": 8,
    "d_ff": 12,
    "num_heads": 2,
    "encoder": {"layers": "1.superposition-3.none"},
    "decoder": {"layers": "1.nondeterministic-1-2-3.superposition-3+superposition-2", "cross_attention": "softmax-1.2"},
}
SOURCE_LENGTHS, TARGET_LENGTHS = torch.tensor([5, 1, 3]), torch.tensor([6, 4, 2])


def model(source=SOURCE, target=TARGET, **settings):
    torch.manual_seed(3)
    chosen = EncoderDecoderSettings.model_validate(MIXED | settings)
    return build_encoder_decoder(chosen, VocabularySpec(source), VocabularySpec(target)).double().eval()


def drawn(size, time, lengths=None):
    ids = torch.randint(3, size, (3, time), generator=torch.Generator().manual_seed(time))
    return ids if lengths is None else torch.where(torch.arange(time) < lengths[:, None], ids, 0)


def close(result, expected):
    torch.testing.assert_close(result, expected, rtol=1e-10, atol=1e-12)


def test_tables_are_shared_as_told():
    separate, two_way, three_way = (
        model(),
        model(tied_embeddings="two-way"),
        model(target=SOURCE, tied_embeddings="three-way"),
    )
    assert separate.output.bias is not None
    assert (separate.source.table.num_embeddings, separate.target.table.num_embeddings) == (SOURCE - 2, TARGET - 2)
    assert two_way.output is None
    assert (two_way.source.table.num_embeddings, two_way.target.table.num_embeddings) == (SOURCE, TARGET)
    assert three_way.output is None
    assert three_way.source is None
    with pytest.raises(SettingsError, match="three-way needs a joint vocabulary; got 9 source and 7 target tokens"):
        model(tied_embeddings="three-way")


def test_the_encoder_sees_both_sides_and_its_stack_the_left_one():
    records = model().explain(drawn(SOURCE, 5), drawn(TARGET, 6))
    softmax, stack = records.encoder
    assert (softmax.mechanism, stack.mechanism) == ("softmax", "superposition")
    assert (softmax.weights > 0).all()
    assert (stack.weights.triu(1) == 0).all()


@pytest.mark.shapes
def test_explanations_of_both_sides():
    source, target = drawn(SOURCE, 5, SOURCE_LENGTHS), drawn(TARGET, 6, TARGET_LENGTHS)
    records = model().explain(source, target, SOURCE_LENGTHS, TARGET_LENGTHS)
    assert [(record.layer, record.sublayer, record.mechanism) for record in records.decoder] == [
        (0, "attention", "softmax"),
        (0, "cross", "softmax"),
        (1, "attention", "nondeterministic"),
        (1, "cross", "softmax"),
        (2, "attention", "superposition"),
        (2, "cross", "softmax"),
        (2, "stack", "superposition"),
    ]
    across = records.decoder[1].weights
    assert across.shape == (3, 1, 6, 5)
    assert (across[1, :, :4, 1:] == 0).all()


def test_compiles_whole():
    translator, source, target = model(), drawn(SOURCE, 5, SOURCE_LENGTHS), drawn(TARGET, 6, TARGET_LENGTHS)
    compiled = torch.compile(translator, fullgraph=True, backend="aot_eager")
    arguments = (source, target, SOURCE_LENGTHS, TARGET_LENGTHS)
    torch.testing.assert_close(compiled(*arguments), translator(*arguments))


@torch.no_grad()
def test_memories_are_copied_only_where_a_place_changes_its_source():
    translator, source = model(), drawn(SOURCE, 5, SOURCE_LENGTHS)
    state = translator.initial_state(source, SOURCE_LENGTHS).select(torch.tensor([0, 0, 1, 1, 2, 2]))

    def after(state, *indices):
        _, state = translator.step(torch.full((6,), 3), state)
        return state.select(torch.tensor(indices))

    def memories(state):
        return [block.cross for block in state.blocks if block.cross is not None]

    swapped = after(state, 1, 0, 3, 3, 4, 5)
    assert all(a is b for a, b in zip(memories(swapped), memories(state), strict=True))
    parted = after(swapped, 4, 5, 1, 2)
    logits, _ = translator.step(torch.full((4,), 4), parted)
    chosen = torch.tensor([2, 2, 0, 1])
    target = torch.tensor([3, 3, 4]).expand(4, -1)
    close(logits, translator(source[chosen], target, SOURCE_LENGTHS[chosen])[:, 2])
