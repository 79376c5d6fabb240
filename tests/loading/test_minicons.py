"""Sentence scores of a run equal those of minicons: of an exported folder, and of a GPT-2 run on 1,000 sentences."""

import random
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from structattn.interop.export.formats import export_run
from structattn.loading.runs import load
from structattn.loading.trained_run import TrainedRun
from structattn.settings.run import resolve_settings
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.sentences import SentenceScorer, WrittenForm
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.tasks.model import build_model_for
from structattn.text.folders.prepared import open_prepared

WORDS = ["a", "b", "c", "the", "dog", "dogs", "sees", "see", "who", "that", "near", "Bo", ".", "?"]


@pytest.fixture(scope="module")
def minicons_scorer():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its imports
        scorer = pytest.importorskip("minicons.scorer", reason="minicons is not installed")
    return scorer


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_scores_of_a_gpt2_run_equal_those_of_minicons(minicons_scorer, tmp_path):
    transformers, tokenizers = (pytest.importorskip(name) for name in ("transformers", "tokenizers"))
    generator = random.Random(1)
    lines = [" ".join(generator.choices(WORDS, k=generator.randint(1, 14))) for _ in range(1000)]
    (tmp_path / "text").write_text("".join(line + "\n" for line in [*lines, " ".join(WORDS)]))
    prepare_language_modeling(tmp_path / "data", tmp_path / "text", tmp_path / "text", settings=TextSettings())
    prepared = open_prepared(tmp_path / "data")
    tree = {"task": "language_modeling", "data": str(prepared.path),
            "training": {"batches": {"kind": "tokens", "max_tokens": 100}},
            "model": {"kind": "gpt2", "d_model": 32, "d_ff": 64, "num_heads": 4, "num_layers": 2,
                      "max_positions": 32}}  # fmt: skip
    settings = resolve_settings(tree)
    torch.manual_seed(1)
    model = build_model_for(settings.model, prepared).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)  # sharper than GPT-2's initial weights
    scorer = SentenceScorer(TrainedRun(tmp_path, settings, prepared, model, 0), WrittenForm())
    found = scorer.log_probabilities([scorer.sentence(scorer.encode(line, Path("x"), 1)) for line in lines], "x")

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(dict(prepared.vocabulary.id_of), unk_token="<pad>"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    names = dict(zip(("pad_token", "bos_token", "eos_token"), ("<pad>", "<bos>", "<eos>"), strict=True))
    fast = transformers.PreTrainedTokenizerFast(tokenizer_object=words, **names)
    # Our output has no class for <pad> and <bos>, which are never predicted.
    model.model.lm_head.register_forward_hook(
        lambda _module, _inputs, logits: logits.index_fill(-1, torch.tensor([0, 1]), -torch.inf)
    )
    other = minicons_scorer.IncrementalLMScorer(model.model, "cpu", tokenizer=fast)
    expected = []
    for start in range(0, len(lines), 100):
        batch = lines[start : start + 100]
        expected += other.sequence_score(
            batch, reduction=lambda x: x.double().sum(0).item(), bos_token=True, eos_token=True
        )
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert np.std(found) > 1


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["sentences", "stream"])
def test_scores_of_an_exported_folder_equal_those_of_minicons(minicons_scorer, run_dir, tmp_path, kind):
    """Its tokenizer puts the beginning itself, so minicons must not."""
    run = load(run_dir(kind))
    export_run(run, "huggingface", tmp_path / "exported")
    scorer = minicons_scorer.IncrementalLMScorer(str(tmp_path / "exported"), "cpu", trust_remote_code=True)
    texts = ["a b c", "b a", "c c b a"]
    found = scorer.sequence_score(texts, reduction=lambda x: x.double().sum(0).item(), bos_token=False, eos_token=True)
    np.testing.assert_allclose(found, [each.log_probability for each in run.score(texts)], rtol=1e-5)
