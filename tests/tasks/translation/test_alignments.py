"""Word alignments of translations, by the attention of models whose attention is known."""

import numpy as np
import pytest
import torch

from structattn.attention import Explanation
from structattn.loading.trained_run import TrainedRun
from structattn.settings.run import resolve_settings
from structattn.support.errors import UsageError
from structattn.tasks.model import build_model_for
from structattn.tasks.translation.attended import last_cross_attention, pharaoh, word_alignment
from structattn.tasks.translation.prepare import prepare_parallel
from structattn.tasks.translation.tokenizer_training import TokenizerSettings
from structattn.text.folders.prepared import open_prepared
from structattn.text.folders.text_tokenizer import TextTokenizer
from structattn.text.tokenization.tokenizers import SymbolTokenizer, split_line
from structattn.text.tokenization.vocabulary import Vocabulary

LINES = ["eins zwei drei vier", "fünf", "", "drei drei eins"]
CENTRED = {"attention": "gaussian", "kernel": "index", "length_ratio": 1.0}


def decoder(*cross):
    return {
        "kind": "encoder_decoder",
        "encoder": {"layers": 1},
        "decoder": {"layers": len(cross), "cross_attention": list(cross)},
    }


def talkative(run):
    """Let translations be as long as they may, without <unk>."""
    run.model.output.bias.data[:2] = -100
    return run


def test_each_word_is_linked_to_the_one_at_the_centre_of_hard_coded_attention(translation_run):
    """Target word t attends to source word t + 1 in the last layer with cross-attention, to word t in the first one."""
    layers = CENTRED | {"offsets": [0]}, CENTRED | {"offsets": [1]}, {"attention": "none"}
    run = talkative(translation_run(**decoder(*layers)))
    found = run.translate(LINES, alignments=True, max_length_offset=0, max_length_ratio=1.0)
    for line, (best,) in zip(LINES, found, strict=True):
        size, links = len(line.split()), {target: source for source, target in best.alignment}
        assert len(links) == len(best.alignment) == len(best.text.split())
        for target in range(min(len(links), size - 1)):
            assert links[target] == target + 1
    assert sum(len(best.alignment) for (best,) in found) > 4
    assert all(best.alignment is None for (best,) in run.translate(LINES))


@pytest.mark.parametrize("mechanism", ["softmax", "hard", "gaussian"])
def test_links_have_the_greatest_mean_weight_of_the_records(translation_run, mechanism):
    run = talkative(translation_run(**decoder({"attention": "softmax"}, {"attention": mechanism})))
    line = LINES[0]
    ((best, *_),) = run.translate([line], n=2, alignments=True, max_length=6)
    (records,) = run.explain([line], [best.text])
    weights = [each.weights for each in records if each.sublayer == "cross" and each.layer == 1]
    assert len(weights) == 2
    size, words = len(line.split()), len(best.text.split())
    expected = np.mean(weights, axis=0)[:words, :size].argmax(1)
    assert best.alignment == tuple(sorted((int(source), target) for target, source in enumerate(expected)))
    assert words > 1


def word_at(text, place):
    """The word of a character; that of a space is the next one."""
    while place < len(text) - 1 and text[place] == " ":
        place += 1
    return len(text[: place + 1].split()) - 1


def test_two_words_are_linked_if_tokens_of_theirs_are(tmp_path):
    """Characters, each of which attends to that at its own place."""
    lines = ["ab c def", "abc de f"]
    for name in ("de", "en"):
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines * 3))
    splits = {split: [tmp_path / "de", tmp_path / "en"] for split in ("train", "valid")}
    prepare_parallel(tmp_path / "data", splits, tokenizer=TokenizerSettings("character", joint=True))
    tree = {"task": "translation", "data": str(tmp_path / "data"),
            "training": {"batches": {"kind": "pairs", "max_tokens": 100}},
            "model": {"d_model": 8, "num_heads": 2, "d_ff": 8, **decoder(CENTRED | {"offsets": [0]})}}  # fmt: skip
    settings, prepared = resolve_settings(tree), open_prepared(tmp_path / "data")
    torch.manual_seed(2)
    run = talkative(TrainedRun(tmp_path, settings, prepared, build_model_for(settings.model, prepared).eval(), 0))
    found = run.translate([lines[0]], 5, alignments=True, temperature=1.0, max_length_ratio=1.0, max_length_offset=0)
    for each in found[0]:
        places = range(min(len(each.text), len(lines[0])))
        assert set(each.alignment) == {(word_at(lines[0], place), word_at(each.text, place)) for place in places}
    assert max(len(each.alignment) for each in found[0]) > 3
    ids = [prepared.sides.source.encode(line) for line in lines]
    sides = [(side, ids_of) for side, ids_of in zip((prepared.sides.source, prepared.sides.target), ids, strict=True)]
    assert word_alignment(*sides, attended=range(8)) == ((0, 0), (1, 0), (1, 1), (2, 1), (2, 2))
    assert pharaoh(((0, 0), (1, 0), (2, 11))) == "0-0 1-0 2-11"


def side_of(level, line):
    """A tokenizer without normalization that knows a line, and its ids."""
    vocabulary = Vocabulary.from_symbols(dict.fromkeys(split_line(level, line)), unknown=True)
    tokenizer = TextTokenizer(SymbolTokenizer(level, vocabulary), None)
    return tokenizer, tokenizer.encode(line)


@pytest.mark.parametrize("space", "\u00a0\u2009\u3000\u0085\u2028\x0b\r")
def test_words_are_separated_by_spaces_and_tabs_only(space):
    lines = f"10{space}000 {space} Euro", f"10{space}000 {space}\tEuro"
    words, characters = ([side_of(level, line) for line in lines] for level in ("word", "character"))
    assert word_alignment(*words, range(3)) == ((0, 0), (1, 1), (2, 2))
    places = range(len(lines[0]))
    assert word_alignment(*characters, places) == ((0, 0), (1, 1), (2, 2))
    assert word_alignment(words[0], characters[1], [0] * 6 + [1] * 2 + [2] * 5) == ((0, 0), (1, 1), (2, 2))


@pytest.mark.parametrize("spaces", ["", " ", " \t  "])
def test_lines_without_words_have_no_links(spaces):
    some, none = side_of("character", "a b"), side_of("character", spaces)
    assert word_alignment(some, none, [2] * len(spaces)) == ()
    if spaces:
        assert word_alignment(none, some, [0] * 3) == ()
        assert word_alignment(none, none, [0] * len(spaces)) == ()


def test_control_symbols_that_are_spelled_in_characters_are_words():
    spelled = side_of("character", "a > < b o s")
    ids = spelled[0].encode("<bos> a")
    assert word_alignment((spelled[0], ids), (spelled[0], ids), range(7)) == ((0, 0), (1, 1))


def test_links_do_not_depend_on_the_batch(translation_run):
    run = translation_run()
    alone = [run.translate([line], n=2, alignments=True)[0] for line in LINES]
    together = run.translate(LINES, n=2, alignments=True)
    for found in zip(alone, together, strict=True):
        first, second = ([(each.text, each.alignment) for each in of_line] for of_line in found)
        assert first == second


def test_models_without_cross_attention_weights_are_refused():
    with pytest.raises(UsageError, match="no layer of the decoder has cross-attention weights"):
        last_cross_attention([Explanation("softmax", torch.ones(1, 1, 2, 2))])
