"""Models of CTranslate2: their log-probabilities and translations are those of the run; other models are refused."""

from pathlib import Path

import numpy as np
import pytest
import torch

from structattn.decoding import greedy_search, start_translation
from structattn.interop.export.formats import export_run
from structattn.support.errors import UsageError
from structattn.support.special_tokens import EOS
from structattn.tasks.translation.translators import PairScorer

PATHS = (Path("source"), Path("target"))
SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 12}
SIDES = {"kind": "encoder_decoder", **SIZES, "encoder": {"layers": 2}, "decoder": {"layers": 1}}
LEARNED = {"positions": {"kind": "learned", "max_positions": 60}}
TRANSLATORS = {
    "pre-norm": ("separate", "word", SIDES),
    "post-norm, two-way": ("separate", "word", {**SIDES, "norm": "post", "tied_embeddings": "two-way"}),
    "three-way, learned": ("joint", "bpe", {**SIDES, "tied_embeddings": "three-way", **LEARNED}),
    "no biases, no positions": ("joint", "character", {**SIDES, "bias": False, "positions": "none"}),
    "bytes": ("joint", "byte", SIDES),
}


@pytest.fixture
def library():
    return pytest.importorskip(
        "ctranslate2", reason="ctranslate2 is not installed; pip install 'structattn[ctranslate2]'"
    )


@torch.no_grad()
@pytest.mark.parametrize("kind", TRANSLATORS)
def test_log_probabilities_and_greedy_translations_are_those_of_the_run(library, trained, tmp_path, kind):
    name, level, settings = TRANSLATORS[kind]
    run = trained(name, settings, level)
    export_run(run, "ctranslate2", tmp_path / "exported")
    translator = library.Translator(str(tmp_path / "exported"), compute_type="float32", intra_threads=1)
    sides = run.prepared.sides
    lines, targets = run.prepared.texts("valid", "source")[:6], run.prepared.texts("valid", "target")[:6]
    tokens = [[[side.vocabulary.symbols[token] for token in side.encode(line)] for line in text]
              for side, text in ((sides.source, lines), (sides.target, targets))]  # fmt: skip
    scorer = PairScorer((run.model,), sides)
    expected = [
        each.log_probability
        for each in scorer([scorer.encode(*pair, PATHS, 1) for pair in zip(lines, targets, strict=True)])
    ]
    found = [sum(each.log_probs) for each in translator.score_batch(*tokens)]
    np.testing.assert_allclose(found, expected, atol=1e-4, rtol=1e-5)
    greedy = translator.translate_batch(tokens[0], beam_size=1, max_decoding_length=9)
    for line, result in zip(lines, greedy, strict=True):
        source = torch.tensor([[*sides.source.encode(line), EOS]])
        (hypothesis,) = greedy_search(
            run.model, start_translation(run.model, source, torch.tensor([source.shape[1]])), 9
        )
        assert result.hypotheses[0] == [sides.target.vocabulary.symbols[token] for token in hypothesis.text]


REFUSED = {
    "model.encoder.layers.1: superposition": {**SIDES, "encoder": {"layers": "1.superposition-4"}},
    "model.decoder.layers.0: stack_pointer": {**SIDES, "decoder": {"layers": "1+stack_pointer"}},
    "model.decoder.layers.0: hard": {**SIDES, "decoder": {"layers": "hard"}},
    r"model.decoder.cross_attention.0": {**SIDES, "decoder": {"layers": 1, "cross_attention": "hard"}},
    "model.positions: rotary": {**SIDES, "positions": "rotary"},
    "model.d_ff: null": {**SIDES, "d_ff": None},
}


@pytest.mark.parametrize("part", REFUSED)
def test_other_translators_are_refused_by_name(trained, tmp_path, part):
    with pytest.raises(UsageError, match=f"{part} cannot be exported to ctranslate2"):
        export_run(trained("separate", REFUSED[part]), "ctranslate2", tmp_path / "exported")


def test_language_models_are_refused(trained, tmp_path):
    with pytest.raises(UsageError, match="model: transformer cannot be exported to ctranslate2: only translators can"):
        export_run(trained("sentences", {**SIZES, "layers": 1}), "ctranslate2", tmp_path / "exported")
