"""Scores of texts: log-probabilities against the whole model, text by text, and the command against Python."""

import json
import math
from dataclasses import asdict

import pytest
import torch
from tests.program import invoke, succeed

from structattn.loading.evaluate import evaluate
from structattn.loading.runs import load
from structattn.settings.run import resolve_settings
from structattn.support.devices import device_of
from structattn.support.errors import DataError, UsageError
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.training.run_training import train

PAIRS = [("eins zwei", "one two"), ("", "one"), ("drei vier fünf eins", "three four"), ("zwei", "")]


def texts_for(run, kind, kinds):
    """Texts of unequal lengths."""
    if run.settings.task == "translation":
        return PAIRS
    text = kinds.texts.get(kind) or "".join(run.prepared.vocabulary.symbols[3:5])
    return [text, "", text.split("\n")[0], text.split(" ")[0]]


def tokens_of(run, text):
    """The tokens that are scored, <eos> at the ends of lines included."""
    lines = text.split("\n") if run.prepared.kind == "stream" else [text]
    return [token for line in lines for token in (*run.prepared.tokenizer.encode(line), 2)]


@torch.no_grad()
def expected_log_probs(run, text):
    ids, model, device = tokens_of(run, text), run.model, device_of(run.model)
    if run.settings.task == "language_modeling" or run.settings.task == "formal_language":
        start = 2 if run.prepared.kind == "stream" else 1
        log_probs = model(torch.tensor([[start, *ids[:-1]]], device=device)).double().log_softmax(-1)[0]
        return [log_probs[place, token - 2].item() for place, token in enumerate(ids)]
    before, found = [1] * getattr(run.settings.model, "bos", True), []
    for place, token in enumerate(ids):
        if token != 2:
            inputs = [*before, *ids]
            inputs[place + len(before)] = model.mask
            log_probs = model(torch.tensor([inputs], device=device))[0, place + len(before)].double().log_softmax(-1)
            found.append(log_probs[token - 2].item())
    return found


@pytest.fixture(params=["sentences", "stream", "formal language", "two streams", "recurrent", "masked text",
                        "masked stream", "gpt2", "roberta"])  # fmt: skip
def text_kind(request):
    return request.param


@pytest.fixture(params=["translation", "two-stream translation", "parser"])
def pair_kind(request):
    return request.param


def test_scores_are_those_of_the_whole_model(run_dir, text_kind, kinds):
    run = load(run_dir(text_kind))
    texts = texts_for(run, text_kind, kinds)
    symbols = run.prepared.vocabulary.symbols
    for text, found in zip(texts, run.score(texts, per_token=True), strict=True):
        expected = expected_log_probs(run, text)
        assert [each.log_probability for each in found.tokens] == pytest.approx(expected, rel=1e-4, abs=1e-6)
        assert found.num_tokens == len(expected)
        assert found.log_probability == pytest.approx(sum(expected), rel=1e-4, abs=1e-6)
        assert symbols[tokens_of(run, text)[0]] == (found.tokens[0].token if found.tokens else "<eos>")


def flat(scores):
    return [value for each in scores for value in (each.log_probability, each.num_tokens)]


def test_scores_do_not_depend_on_the_batch_or_the_stream(run_dir, kinds, text_kind):
    run = load(run_dir(text_kind))
    texts = texts_for(run, text_kind, kinds)
    whole = run.score(texts)
    for others in (run.score(texts, batch_size=1), list(run.score(iter(texts), batch_size=2))):
        assert flat(others) == pytest.approx(flat(whole), rel=1e-5)
    assert run.score([]) == []


def test_scores_of_pairs_do_not_depend_on_the_batch_or_the_stream(run_dir, pair_kind):
    run = load(run_dir(pair_kind))
    pairs = PAIRS if pair_kind != "parser" else [("the cat sat .", "(S XX )S"), ("dog", "XX")]
    whole = run.score(pairs, per_token=True)
    for others in (run.score(pairs, batch_size=1), list(run.score(iter(pairs), batch_size=2))):
        assert flat(others) == pytest.approx(flat(whole), rel=1e-5)
    for (_, target), each in zip(pairs, whole, strict=True):
        assert [token.token for token in each.tokens] == [*target.split(), "<eos>"]
        assert each.log_probability == pytest.approx(sum(token.log_probability for token in each.tokens), rel=1e-12)


@pytest.mark.parametrize("options", [(), ("--tokens",)])
def test_the_command_writes_the_scores_of_python(run_dir, text_kind, kinds, options):
    run = load(run_dir(text_kind))
    lines = [text.split("\n")[0] for text in texts_for(run, text_kind, kinds)]
    text, expected = "".join(line + "\n" for line in lines), run.score(lines, per_token=bool(options))
    result = succeed("score", run.run_dir, *options, "--json", input=text)
    for line, score in zip(result.stdout.splitlines(), expected, strict=True):
        found, stated = json.loads(line), json.loads(json.dumps(asdict(score)))
        assert found.pop("log_probability") == pytest.approx(stated.pop("log_probability"), rel=1e-5)
        for token, other in zip(found.pop("tokens") or [], stated.pop("tokens") or [], strict=True):
            assert token["token"] == other["token"]
            assert token["log_probability"] == pytest.approx(other["log_probability"], rel=1e-4)
        assert found == stated
    rows = [line.split("\t") for line in invoke("score", run.run_dir, *options, input=text).stdout.splitlines()]
    if not options:
        assert [(float(value), int(count)) for value, count in rows] == [
            (pytest.approx(each.log_probability, abs=1e-5), each.num_tokens) for each in expected
        ]
        return
    tokens = [(str(number), each) for number, score in enumerate(expected, start=1) for each in score.tokens]
    assert [(number, token) for number, token, _ in rows] == [(number, each.token) for number, each in tokens]


def test_the_command_writes_the_scores_of_pairs(run_dir, tmp_path):
    run = load(run_dir("translation"))
    for name, lines in zip(("a.de", "a.en"), zip(*PAIRS, strict=True), strict=True):
        (tmp_path / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    files = ("--source", tmp_path / "a.de", "--target", tmp_path / "a.en")
    result = succeed("score", run.run_dir, *files, "--json")
    found = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["log_probability"] for each in found] == pytest.approx(
        [each.log_probability for each in run.score(PAIRS)], rel=1e-5
    )
    for arguments, message in [
        ((), "is a translation run; expected --source and --target"),
        (files[:2], "--source and --target belong together"),
    ]:
        refused = invoke("score", run.run_dir, *arguments, input="")
        assert refused.exit_code == 2
        assert message in refused.stderr


def test_the_scores_of_a_split_add_up_to_its_cross_entropy(tmp_path):
    """The same figures as those of ``evaluate``, whose code batches prepared sequences."""
    (tmp_path / "text").write_text("a b c\nb a\nc c a b\n" * 2)
    prepare_language_modeling(tmp_path / "data", tmp_path / "text", tmp_path / "text", settings=TextSettings())
    tree = {"task": "language_modeling", "data": str(tmp_path / "data"), "training": {"max_updates": 3}}
    train(resolve_settings({**tree, "model": {"layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}}), tmp_path / "run")
    scores = load(tmp_path / "run").score((tmp_path / "text").read_text().splitlines())
    total, count = math.fsum(each.log_probability for each in scores), sum(each.num_tokens for each in scores)
    stated = evaluate(tmp_path / "run", "valid", "best")
    assert (-total / count, count) == (pytest.approx(stated.cross_entropy, rel=1e-6), stated.num_tokens)


def test_unknown_words_are_read_as_unk_with_a_warning(tmp_path, caplog):
    (tmp_path / "text").write_text("a b c\nb a\na b\n")
    settings = TextSettings(min_count=2)
    prepare_language_modeling(tmp_path / "data", tmp_path / "text", tmp_path / "text", settings=settings)
    tree = {"task": "language_modeling", "data": str(tmp_path / "data"), "training": {"max_updates": 1}}
    train(resolve_settings({**tree, "model": {"layers": 1, "d_model": 8, "num_heads": 2, "d_ff": 8}}), tmp_path / "run")
    run = load(tmp_path / "run")
    caplog.clear()
    run.score(["a <unk> b", "b a"])
    run.generate(["a <unk>"])
    assert caplog.messages == []
    warning = "{}: 2 of 5 tokens are not in the vocabulary and are read as <unk>, the first in line 2"
    run.score(["a b", "c z a"])
    run.generate(["a b", "z b c"])
    assert caplog.messages == [warning.format("texts")] * 2


def test_without_unk_nothing_is_unknown(run_dir, caplog):
    run = load(run_dir("formal language"))
    assert not run.prepared.vocabulary.has_unknown
    text = "".join(run.prepared.vocabulary.symbols[3:5])  # the first symbol has the id that <unk> has elsewhere
    caplog.clear()
    run.score([text])
    run.generate([text])
    assert caplog.messages == []


def test_what_cannot_be_scored_is_refused(run_dir):
    with pytest.raises(UsageError, match=r"a model of kind 'masked' and task 'masked_transduction' cannot .*score"):
        load(run_dir("masked")).score(["a"])
    with pytest.raises(DataError, match=r"texts:2: 'a z': 'z' is not in the vocabulary"):
        load(run_dir("sentences")).score(["a", "a z"])
    with pytest.raises(DataError, match=r"texts:1: the inputs have 13 tokens; the model has 12 positions"):
        load(run_dir("roberta")).score(["a " * 11])
    with pytest.raises(UsageError, match="got 'eins'; expected pairs of a source line and its translation"):
        load(run_dir("translation")).score(["eins"])
    twice = invoke("score", run_dir("sentences"), run_dir("stream"), input="a\n")
    assert twice.exit_code == 2
    assert "expected one, since ensembles are of translation models" in twice.stderr
