"""lm-evaluation-harness: its log-likelihoods are those of `structattn score`, and its accuracy that of `evaluate`."""

import importlib
import json
import os
import subprocess
import sys
import warnings
from types import SimpleNamespace

import pytest
import torch
from tests.tasks.text_runs import BATCHES, MODEL, run_on

from structattn.interop.export.formats import export_run
from structattn.loading.runs import load
from structattn.settings.run import resolve_settings
from structattn.support.errors import DataError
from structattn.tasks.language_modeling.sentences import SentenceScorer, WrittenForm
from structattn.tasks.minimal_pairs.data import MinimalPair
from structattn.tasks.minimal_pairs.evaluate import blimp_scores
from structattn.training.run_training import train

pytestmark = pytest.mark.filterwarnings("ignore")  # of the libraries
LEARNED = MODEL | {"positions": {"kind": "learned", "max_positions": 8}}
PAIRS = [
    ("Bo sees a dog .", "a sees Bo dog ."),
    ("A dog sees Bo", "A dog sees dog"),
    ("Dogs don 't sleep .", "Bo don 't sleep ."),
]


@pytest.fixture(scope="module")
def harness():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        lm_eval = pytest.importorskip("lm_eval", reason="lm_eval is not installed; pip install lm_eval")
        from lm_eval.tasks import TaskManager

        from structattn.interop.harness import HarnessModel
    return SimpleNamespace(lm_eval=lm_eval, TaskManager=TaskManager, Model=HarnessModel)


@pytest.fixture
def trained(tmp_path):
    """trained(mode, model, **options) is the folder of a run of a small text."""

    def make(mode="sentences", model=MODEL, **options):
        run_on(tmp_path, mode, **options)
        tree = {"task": "language_modeling", "data": str(tmp_path / "data"), "model": model,
                "training": {"batches": BATCHES[mode], "max_updates": 30, "max_epochs": None}}  # fmt: skip
        train(resolve_settings(tree), tmp_path / "run")
        return tmp_path / "run"

    return make


def asked(*arguments):
    return [SimpleNamespace(args=each) for each in arguments]


def scores_of(folder, text):
    """The scores of the tokens of a text by the command's function, without the last <eos>."""
    (score,) = load(folder).score([text], per_token=True)
    return [each.log_probability for each in score.tokens[:-1]]


@pytest.mark.parametrize(
    ("mode", "options", "context", "continuation"),
    [
        ("sentences", {}, "Bo sees", " a dog ."),
        ("sentences", {"min_count": 2}, "", "Bo sees who"),
        ("sentences", {"level": "character"}, "Bo sees ", "a dog"),
        ("stream", {}, "Bo sees\na dog .", " Bo sees\nBo"),
        ("stream", {"level": "bpe", "vocabulary_size": 40}, "Bo sees", " a dog .\nBo"),
    ],
)
def test_log_likelihoods_are_sums_of_scores(harness, trained, mode, options, context, continuation):
    folder = trained(mode, **options)
    model, run = harness.Model(str(folder), device="cuda:0", batch_size="auto:4"), load(folder)
    scores = scores_of(folder, context + continuation)
    start = len(scores_of(folder, context)) if context else 0
    ((found, _), (whole, _)) = model.loglikelihood(asked((context, continuation), ("", context + continuation)))
    assert found == pytest.approx(sum(scores[start:]), rel=1e-5)
    assert whole == pytest.approx(sum(scores), rel=1e-5)
    assert model.loglikelihood_rolling(asked((context + continuation,))) == pytest.approx([whole], rel=1e-6)
    total = run.score([context + continuation])[0].log_probability
    assert whole - total > 0, "the <eos> is not scored"


def test_greedy_continuations_are_recognized(harness, trained):
    model = harness.Model(str(trained("stream")))
    (continued,) = model.generate_until(asked(("Bo sees", {"until": [], "max_gen_toks": 4})))
    found = model.loglikelihood(asked(("Bo sees", continued), ("Bo sees", " " + " ".join(["who"] * 4))))
    assert [greedy for _, greedy in found] == [True, False]
    (cut,) = model.generate_until(asked(("Bo sees", {"until": continued.split()[1], "max_gen_toks": 4})))
    assert cut.split() == continued.split()[:1]
    every = {"do_sample": True, "temperature": 5.0, "top_k": 0, "max_gen_toks": 9}
    sampled = model.generate_until(asked(("Bo", every)))
    assert sampled == model.generate_until(asked(("Bo", every | {"top_k": None})))
    assert sampled != model.generate_until(asked(("Bo", {"max_gen_toks": 9})))


def test_what_does_not_fit_into_the_positions(harness, trained):
    """Eight positions: in all windows but the first, the first input is the last token of the one before."""
    folder = trained("stream", LEARNED)
    model, run = harness.Model(str(folder)), load(folder)
    words = ("Bo sees a dog . A dog sees Bo , who sleeps . " * 2).split()[:19]
    ids = run.prepared.tokenizer.encode(" ".join(words))
    (found,) = model.loglikelihood_rolling(asked((" ".join(words),)))
    expected = log_p(run, [2, *ids[:8]]).sum() + log_p(run, ids[7:16]).sum() + log_p(run, ids[10:19])[-3:].sum()
    assert found == pytest.approx(expected, rel=1e-5)
    ((cut, _), (short, _)) = model.loglikelihood(asked((" ".join(words), " a dog"), (" ".join(words[-7:]), " a dog")))
    following = run.prepared.tokenizer.encode(" ".join([*words[-7:], "a", "dog"]))
    assert cut == pytest.approx(log_p(run, following)[-2:].sum(), rel=1e-5)
    assert short == pytest.approx(cut, rel=1e-6)
    with pytest.raises(DataError, match="requests:1: has 9 tokens to score; the model has 8"):
        model.loglikelihood(asked(("Bo", " " + " ".join(words[:9]))))


@torch.no_grad()
def log_p(run, ids):
    """Log p of each token but the first, given those before it."""
    logits = run.model(torch.tensor([ids[:-1]])).double().log_softmax(-1)[0]
    return logits[torch.arange(len(ids) - 1), torch.tensor(ids[1:]) - 2].numpy()


def test_other_texts_are_refused(harness, trained):
    model = harness.Model(str(trained()))
    with pytest.raises(DataError, match="has a line feed; expected one line"):
        model.loglikelihood(asked(("Bo\nsees", " a")))
    for continuation in ("", " "):
        with pytest.raises(DataError, match="requests:2: the continuation has no token of its own"):
            model.loglikelihood(asked(("Bo", " sees"), ("Bo", continuation)))
    with pytest.raises(DataError, match=r"requests:2: .*'see' is not in the vocabulary"):
        model.loglikelihood_rolling(asked(("Bo",), ("Bo see",)))


def write_task(folder):
    rows = [json.dumps({"good": good, "bad": bad}) for good, bad in PAIRS]
    (folder / "pairs.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "pairs.yaml").write_text(
        "task: pairs\ndataset_path: json\ndataset_kwargs:\n  data_files:\n"
        f"    test: {folder / 'pairs.jsonl'}\n  cache_dir: {folder / 'cache'}\n"
        'output_type: multiple_choice\ntest_split: test\ndoc_to_text: ""\ntarget_delimiter: ""\ndoc_to_target: 0\n'
        'doc_to_choice: "{{[good, bad]}}"\nmetric_list:\n  - metric: acc\n'
    )


def evaluated(harness, folder, model, **arguments):
    manager = harness.TaskManager(include_path=str(folder), include_defaults=False)
    results = harness.lm_eval.simple_evaluate(
        model=model, model_args=arguments, tasks=["pairs"], task_manager=manager, bootstrap_iters=0, device="cpu"
    )
    scores = [[score[0] for score in sample["filtered_resps"]] for sample in results["samples"]["pairs"]]
    return results["results"]["pairs"]["acc,none"], scores


@pytest.fixture
def tasks(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    (tmp_path / "tasks").mkdir()
    write_task(tmp_path / "tasks")
    return tmp_path / "tasks"


def test_a_task_has_the_accuracy_of_minimal_pairs(harness, trained, tasks):
    folder = trained("stream")
    accuracy, _ = evaluated(harness, tasks, "structattn", run=str(folder))
    pairs = [MinimalPair(*pair, "p", "p", "p", {}, tasks, 1) for pair in PAIRS]
    expected = blimp_scores(SentenceScorer(load(folder), WrittenForm()), pairs).overall.sentence
    assert accuracy == pytest.approx(expected.value)


@pytest.mark.parametrize("kind", ["own", "gpt2"])
def test_an_exported_folder_has_the_scores_of_the_run(harness, trained, tasks, tmp_path, kind):
    pytest.importorskip("transformers", reason="transformers is not installed; pip install 'structattn[hf]'")
    gpt2 = {"kind": "gpt2", "d_model": 8, "num_heads": 2, "d_ff": 8, "num_layers": 1, "max_positions": 20}
    folder = trained("sentences", gpt2 if kind == "gpt2" else MODEL | {"positions": "rotary"})
    export_run(load(folder), "huggingface", tmp_path / "exported")
    _, ours = evaluated(harness, tasks, "structattn", run=str(folder))
    options = {"pretrained": str(tmp_path / "exported"), "trust_remote_code": True, "add_bos_token": True}
    _, theirs = evaluated(harness, tasks, "hf", **options)
    if kind == "gpt2":  # which leaves some probability for <pad> and <bos>
        ours = [[plain_log_p(tmp_path / "exported", text) for text in pair] for pair in PAIRS]
    for mine, other in zip(ours, theirs, strict=True):
        assert other == pytest.approx(mine, rel=1e-5)


@torch.no_grad()
def plain_log_p(folder, text):
    transformers = importlib.import_module("transformers")
    ids = transformers.AutoTokenizer.from_pretrained(folder)(text, return_tensors="pt")["input_ids"]
    logits = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()(ids[:, :-1]).logits
    return logits.log_softmax(-1).gather(2, ids[:, 1:, None]).sum().item()


@pytest.mark.slow
def test_the_command(harness, trained, tasks):
    folder = trained("stream")
    accuracy, _ = evaluated(harness, tasks, "structattn", run=str(folder))
    command = [sys.executable, "-m", "structattn.interop.harness", "run", "--model", "structattn", "--model_args",
               f"run={folder}", "--tasks", "pairs", "--include_path", str(tasks), "--device", "cpu",
               "--output_path", str(tasks / "out.json")]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    (path,) = tasks.glob("out*.json")
    assert json.loads(path.read_text())["results"]["pairs"]["acc,none"] == pytest.approx(accuracy)
