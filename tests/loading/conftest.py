"""A run of every kind with one update, from which tests load models."""

import shutil
from types import SimpleNamespace

import pytest
import torch
from tests.program import succeed

from structattn.settings.run import resolve_settings
from structattn.tasks.formal_languages.prepare import FormalLanguageSizes, prepare_formal_language
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.tasks.transductions.prepare import TransductionSizes, prepare_transduction
from structattn.tasks.transformations.prepare import TransformationSizes, prepare_transformation
from structattn.training.run_training import train

SIZES = {"d_model": 8, "num_heads": 2, "d_ff": 8}
ENCODER_DECODER = {"kind": "encoder_decoder", "encoder": {"layers": 1}, "decoder": {"layers": 1}, **SIZES}
LEARNED = {"positions": {"kind": "learned", "max_positions": 12}}
HUGGING_FACE = {"num_layers": 1, "max_positions": 12, **SIZES}
PAIRS, TOKEN_MEAN = {"batches": {"kind": "pairs", "max_tokens": 100}}, {"loss": "token_mean"}
STREAM = {"batches": {"kind": "stream", "sequence_length": 4, "batch_size": 2}}
SIZED = {"batches": {"batch_size": 4}, **TOKEN_MEAN}
RUNS = {
    "sentences": ("language_modeling", "sentences", {"layers": "1.superposition-4", **SIZES}, TOKEN_MEAN),
    "stream": ("language_modeling", "stream", {"layers": 1, **SIZES}, TOKEN_MEAN | STREAM),
    "formal language": ("formal_language", "dyck", {"layers": "nondeterministic-1-2-3.stack_pointer", **SIZES}, {}),
    "two streams": ("formal_language", "dyck", {"kind": "two_stream", "num_layers": 1, **SIZES}, {}),
    "hard": ("formal_language", "dyck", {"layers": "hard.gaussian", **SIZES}, {}),
    "recurrent": ("formal_language", "dyck", {"kind": "lstm", "hidden_size": 6, "stack": "nondeterministic-1-2-3"}, {}),
    "masked": ("masked_transduction", "reversal", {"kind": "masked", "layers": 2, **SIZES, **LEARNED}, SIZED),
    "autoregressive": ("autoregressive_transduction", "reversal", {"layers": 1, **SIZES}, SIZED),
    "recurrent autoregressive": ("autoregressive_transduction", "reversal", {"kind": "lstm", "hidden_size": 6,
                                 "stack": "superposition-4"}, SIZED),
    "masked text": ("masked_language_modeling", "sentences", {"kind": "masked", "layers": 1, **SIZES}, TOKEN_MEAN),
    "masked stream": ("masked_language_modeling", "stream", {"kind": "masked", "layers": 1, "bos": False, **SIZES},
                      TOKEN_MEAN | STREAM),
    "gpt2": ("language_modeling", "sentences", {"kind": "gpt2", "stack": "superposition-4", **HUGGING_FACE},
             TOKEN_MEAN),
    "roberta": ("masked_language_modeling", "sentences", {"kind": "roberta", **HUGGING_FACE}, TOKEN_MEAN),
    "question": ("language_modeling", "question", {"layers": 1, **SIZES}, TOKEN_MEAN),
    "parser": ("translation", "trees", ENCODER_DECODER, PAIRS),
    "translation": ("translation", "parallel", ENCODER_DECODER, PAIRS),
    "two-stream translation": (
        "translation", "parallel", {"kind": "two_stream_encoder_decoder", "num_layers": 1, **SIZES}, PAIRS),
}  # fmt: skip
GENERATING = ("language_modeling", "formal_language")
TREES = "(ROOT (S (NP (DT the) (NN cat)) (VP (VBD sat)) (. .)))\n(ROOT (S (NP (NN dog)) (VP (VBD ran)) (. .)))\n"
TEXTS = {
         "sentences": "a b", "stream": "a b\nb", "masked": "a b b", "autoregressive": "a b b",
         "recurrent autoregressive": "a b b", "masked text": "a b",
         "masked stream": "a b\nb", "gpt2": "a b", "roberta": "a b", "question": "my yak does sleep . quest",
         "parser": "the cat sat .", "translation": "eins zwei", "two-stream translation": "eins zwei",
}  # fmt: skip


@pytest.fixture(scope="session")
def prepared_data(tmp_path_factory, parallel_data):
    """One prepared folder for each kind of data."""
    folder = tmp_path_factory.mktemp("data")
    prepare_formal_language(folder / "dyck", "dyck", sizes=FormalLanguageSizes(8, 4, 1, (4, 6), (4, 6)))
    sizes = TransductionSizes((2, 5), (6, 7), valid_per_length=2, test_per_length=1)
    prepare_transduction(folder / "reversal", "reverse-string", sizes=sizes)
    (folder / "text").write_text("a b c\nb a\n" * 4)
    for mode in ("sentences", "stream"):
        prepare_language_modeling(folder / mode, folder / "text", folder / "text", settings=TextSettings(mode=mode))
    prepare_transformation(folder / "question", "question", sizes=TransformationSizes(60, 10, 12, 14))
    (folder / "text.trees").write_text(TREES)
    files = {name: str(folder / "text.trees") for name in ("--train", "--valid")}
    arguments = [part for pair in files.items() for part in pair]
    succeed("prepare", "trees", *arguments, "-o", folder / "trees")
    shutil.copytree(parallel_data, folder / "parallel")
    return folder


@pytest.fixture(scope="session")
def run_dir(prepared_data, tmp_path_factory):
    """run_dir(kind) is the folder of a run with one update."""
    made = {}

    def make(kind):
        if kind not in made:
            task, data, model, training = RUNS[kind]
            if model.get("kind") in ("gpt2", "roberta"):
                pytest.importorskip(
                    "transformers", reason="transformers is not installed; pip install 'structattn[hf]'"
                )
            tree = {"task": task, "data": str(prepared_data / data), "model": model}
            tree["training"] = {"max_updates": 1, "max_epochs": None, **training}
            made[kind] = tmp_path_factory.mktemp("runs") / "run"
            with torch.enable_grad():  # in whichever test needs it first
                train(resolve_settings(tree), made[kind])
        return made[kind]

    return make


@pytest.fixture(params=RUNS)
def kind(request):
    """The name of a kind of run."""
    return request.param


@pytest.fixture(params=[name for name, run in RUNS.items() if run[0] in GENERATING])
def generating_kind(request):
    """The name of a kind of run that generates text."""
    return request.param


@pytest.fixture(params=[name for name, run in RUNS.items() if run[0] not in GENERATING])
def other_kind(request):
    """The name of a kind of run that generates no text."""
    return request.param


@pytest.fixture(scope="session")
def kinds():
    """The settings of each kind of run, and a text for those whose vocabulary is not that of a formal language."""
    return SimpleNamespace(
        tasks={name: run[0] for name, run in RUNS.items()},
        models={name: run[2] for name, run in RUNS.items()},
        texts=TEXTS,
    )
