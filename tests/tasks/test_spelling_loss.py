"""The loss of a translator that spells: J = J_word + α J_characters, added up by hand."""

import itertools

import numpy as np
import pytest
import torch

from structattn.settings.run import RunSettings
from structattn.settings.transformer import EncoderDecoderSettings
from structattn.support.errors import StructattnError
from structattn.tasks.model import build_model_for
from structattn.tasks.translation.predictions import predictions
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.task import translation_task
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.batching.corruption import character_table
from structattn.text.folders.prepared import open_prepared

SOURCE = ["das rad", "das rad rollt", "ein <unk> rollte"]
TARGET = ["the wheel", "the wheel rolls", "a thing <unk>"]
SPELLS = {
    "encoder": {"layers": 1, "embedding": {"kind": "character_lstm", "words": "rare"}},
    "decoder": {"layers": 1, "spelling": {"character_embedding_size": 5, "hidden_size": 7}},
}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    folder = tmp_path_factory.mktemp("spelling")
    for name, lines in (("de", SOURCE), ("en", TARGET)):
        (folder / name).write_text("".join(line + "\n" for line in lines))
    files = (folder / "de", folder / "en")
    prepare_parallel(
        folder / "data", {"train": files, "valid": files}, tokenizer=TokenizerSettings("word", False, threshold=2)
    )
    return open_prepared(folder / "data")


def model(prepared, **changes):
    torch.manual_seed(1)
    sizes = {"d_model": 8, "num_heads": 2, "d_ff": 8, "dropout": 0.0}
    return build_model_for(EncoderDecoderSettings(kind="encoder_decoder", **sizes, **changes), prepared).double()


def task(prepared, **training):
    tree = {"task": "translation", "data": prepared.path, "model": {"kind": "encoder_decoder"}}
    tree["training"] = {"batches": {"kind": "pairs"}, **training}
    return translation_task(prepared, RunSettings.model_validate(tree))


def by_hand(model, prepared):
    """Return the losses of words and of characters, computed for each pair separately."""
    source_side, target_side = prepared.sides.source, prepared.sides.target
    words, characters = [], []
    for source_line, target_line in zip(SOURCE, TARGET, strict=True):
        rare = [word for word in source_line.split() if word not in source_side.vocabulary.symbols]
        unknown_id = source_side.vocabulary.size
        source = [
            unknown_id + rare.index(word) if word in rare else source_side.encode(word)[0]
            for word in source_line.split()
        ]
        target = target_side.encode(target_line)
        ids, inputs = torch.tensor([[*source, 2]]), torch.tensor([[1, *target]])
        x = model.hidden_states(ids, inputs, oov_spellings=character_table(source_side.character_tokenizer, rare))
        log_p = model(ids, inputs, oov_spellings=character_table(source_side.character_tokenizer, rare)).log_softmax(
            -1
        )[0]
        words.append(-sum(log_p[t, token - 2] for t, token in enumerate([*target, 2])))
        nats = torch.zeros((), dtype=torch.float64)
        for t, (word, token) in enumerate(zip(target_line.split(), target, strict=True)):
            if token == 3 and word != "<unk>":
                state = model.spelling.initial_state(x[:, t])
                spelling = target_side.character_tokenizer.encode(word)
                for before, after in itertools.pairwise(spelling):
                    logits, state = model.spelling.step(torch.tensor([before]), state)
                    nats = nats - logits.log_softmax(-1)[0, after - 2]
        characters.append(nats)
    return torch.stack(words).sum(), torch.stack(characters).sum()


@pytest.mark.parametrize("alpha", [1.0, 0.3, 0.0])
def test_the_loss_is_that_of_words_and_alpha_times_that_of_characters(prepared, alpha):
    spells, learnt = model(prepared, **SPELLS), task(prepared, spelling_weight=alpha)
    words, characters = by_hand(spells, prepared)
    assert characters > 10, "rolls, a and thing are spelled"
    found = learnt.loss_sum(spells, learnt.batch(np.arange(3)))
    torch.testing.assert_close(found, words + alpha * characters, rtol=1e-10, atol=1e-12)


def test_smoothing_is_of_words_alone(prepared):
    spells, epsilon = model(prepared, **SPELLS), 0.1
    smoothed, plain = task(prepared, label_smoothing={"epsilon": epsilon}), task(prepared)
    batch = plain.batch(np.arange(3))
    logits = predictions(spells, batch).logits
    log_p = logits.log_softmax(-1)[batch.targets > 0]
    words, characters = by_hand(spells, prepared)
    expected = (1 - epsilon) * words - epsilon * log_p.mean(-1).sum() + characters
    torch.testing.assert_close(smoothed.loss_sum(spells, batch), expected, rtol=1e-10, atol=1e-12)


def test_scores_are_of_the_text_itself(prepared):
    spells = model(prepared, **SPELLS)
    scores = task(prepared, spelling_weight=0.0).validate(spells, lambda: None)
    assert scores.num_tokens == sum(len(line.split()) + 1 for line in TARGET)
    assert scores.cross_entropy == pytest.approx(sum(by_hand(spells, prepared)).item() / scores.num_tokens, rel=1e-10)


def test_a_model_that_reads_by_characters_alone_has_no_loss_of_characters(prepared):
    reads = model(prepared, **{side: {"layers": 1, "embedding": "c2w"} for side in ("encoder", "decoder")})
    learnt = task(prepared)
    found = predictions(reads, learnt.batch(np.arange(3)))
    assert found.character_logits is None
    assert found.character_loss() == 0
    learnt.loss_sum(reads, learnt.batch(np.arange(3))).backward()
    assert all(parameter.grad is not None for parameter in reads.parameters())


def test_pairs_without_spellings_are_refused(prepared):
    batch = task(prepared).batch(np.arange(3))
    without = type(batch)(
        batch.source, batch.source_lengths, batch.inputs, batch.targets, batch.lengths, batch.examples
    )
    for changes in (SPELLS, {"decoder": SPELLS["decoder"], "encoder": {"layers": 1}}):
        with pytest.raises(StructattnError, match="the pairs have no spellings"):
            predictions(model(prepared, **changes), without)
