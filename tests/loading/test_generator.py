"""Generated texts: their probabilities, seeds, ends and languages, against the whole model and by hand."""

import json
from dataclasses import asdict
from itertools import count, islice, repeat

import numpy as np
import pytest
import torch
from tests.program import invoke, succeed

from structattn.loading.runs import load
from structattn.settings.run import resolve_settings
from structattn.support.devices import device_of
from structattn.support.errors import DataError, UsageError
from structattn.tasks.language_modeling.prepare import prepare_language_modeling
from structattn.tasks.language_modeling.settings import TextSettings
from structattn.training.run_training import train


@pytest.fixture
def run(run_dir, generating_kind):
    return load(run_dir(generating_kind))


@pytest.fixture
def prompts(run, generating_kind, kinds):
    """Prompts of unequal lengths, two of them equal."""
    text = kinds.texts.get(generating_kind) or "".join(run.prepared.vocabulary.symbols[3:5])
    return ["", text, text.split(" ")[0], text]


def ids_of(run, generation):
    """The ids of a whole text without the last <eos>; the first is <bos>, or <eos> in a stream."""
    is_stream = run.prepared.kind == "stream"
    lines = generation.text.split("\n") if is_stream else [generation.text]
    return [token for line in lines for token in (2 if is_stream else 1, *run.prepared.tokenizer.encode(line))]


@torch.no_grad()
def log_probability(run, generation):
    """The sum over the continuation, from one pass over the whole text."""
    ids = ids_of(run, generation)
    log_probs = run.model(torch.tensor([ids], device=device_of(run.model))).double().log_softmax(-1)[0]
    targets = [*ids[1:], 2][: None if generation.finished else -1]
    return sum(log_probs[t, targets[t] - 2].item() for t in range(len(targets))[-generation.num_tokens :])


def test_log_probabilities_are_those_of_the_whole_model(run, prompts):
    generated = run.generate(prompts, n=3, max_length=5)
    assert [len(found) for found in generated] == [3] * len(prompts)
    for found in generated:
        for each in found:
            assert 1 <= each.num_tokens <= 5
            assert each.log_probability == pytest.approx(log_probability(run, each), rel=1e-4, abs=1e-4)


def test_results_do_not_depend_on_the_batch_the_stream_or_later_prompts(run, prompts):
    whole = run.generate(prompts, n=3, seed=5, max_length=6)
    narrow = run.generate(prompts, n=3, seed=5, max_length=6, batch_size=1)
    streamed = list(run.generate(iter(prompts), n=3, seed=5, max_length=6))
    first_prompts = run.generate(prompts[:2], n=3, seed=5, max_length=6)
    for others, wanted in ((narrow, whole), (streamed, whole), (first_prompts, whole[:2])):
        for found, expected in zip(others, wanted, strict=True):
            assert [each.text for each in found] == [each.text for each in expected]
            values = [[each.log_probability for each in texts] for texts in (found, expected)]
            assert values[0] == pytest.approx(values[1], rel=1e-5)
    first_two = run.generate(prompts, n=2, seed=5, max_length=6)
    assert [[each.text for each in found] for found in first_two] == [[e.text for e in found[:2]] for found in whole]
    assert [[e.text for e in found] for found in run.generate(prompts, n=3, seed=6, max_length=6)] != [
        [each.text for each in found] for found in whole
    ]


def test_temperature_zero_takes_the_likeliest_token_of_the_whole_model(run, prompts):
    generated = run.generate(prompts, temperature=0, max_length=3)
    assert len(generated) == len(prompts)
    for (found,) in generated:
        ids = ids_of(run, found)
        start = len(ids) - found.num_tokens + found.finished
        logits = run.model(torch.tensor([ids], device=device_of(run.model)))[0]
        chosen = [*ids[start:], *([2] if found.finished else [])]
        assert [token - 2 for token in chosen] == logits[start - 1 : start - 1 + len(chosen)].argmax(-1).tolist()


def test_a_beam_finds_the_likeliest_texts(run):
    """All continuations of one token: a beam as wide as the vocabulary misses none."""
    classes = run.prepared.vocabulary.size - 2
    (found,) = run.generate(n=2, beam=classes, max_length=1)
    start = 2 if run.prepared.kind == "stream" else 1
    best = run.model(torch.tensor([[start]], device=device_of(run.model)))[0, 0].log_softmax(-1)
    finished = [each for each in found if each.finished]
    assert [each.log_probability for each in finished] == pytest.approx([best[0].item()], rel=1e-5)
    others = sorted(best[1:].tolist(), reverse=True)[: 2 - len(finished)]
    assert [each.log_probability for each in found if not each.finished] == pytest.approx(others, rel=1e-5)


def test_the_command_writes_the_results_of_python(run, prompts):
    options = ("-n", 2, "--seed", 3, "--max-length", 4, "--batch-size", 3)
    expected = run.generate([prompts[1].split("\n")[0], ""], n=2, seed=3, max_length=4)
    text = f"{prompts[1]}\n\n".split("\n", 1)[0] + "\n\n"
    result = succeed("generate", run.run_dir, *options, "--json", input=text)
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    flat = [asdict(each) for found in expected for each in found]
    for line, each in zip(lines, flat, strict=True):
        assert line.pop("log_probability") == pytest.approx(each.pop("log_probability"), rel=1e-5)
        assert line == each
    plain = invoke("generate", run.run_dir, *options, input=text).stdout
    assert [line.split("\t")[0] for line in plain.split("\n")[:-1]] == [each["text"] for each in flat]


def test_runs_that_generate_no_text_are_refused_by_their_kind(run_dir, other_kind):
    run = load(run_dir(other_kind))
    kind = f"a model of kind '{run.settings.model.kind}' and task '{run.settings.task}'"
    message = f"{kind} cannot generate texts; expected a causal language model of text or of a formal language"
    with pytest.raises(UsageError, match=message):
        run.generate()
    result = invoke("generate", run.run_dir, "--prompt", "a")
    assert result.exit_code == 2
    assert message in result.stderr


def test_finished_strings_of_a_formal_language_are_judged(run_dir):
    run = load(run_dir("formal language"))
    opening, closing = "([", ")]"
    if not set(opening + closing) <= set(run.prepared.vocabulary.symbols):
        alphabet = run.prepared.vocabulary.symbols[3:]
        opening, closing = alphabet[: len(alphabet) // 2], alphabet[len(alphabet) // 2 :]

    def is_balanced(string):
        expected = []
        for symbol in string:
            if symbol in opening:
                expected.append(closing[opening.index(symbol)])
            elif not expected or expected.pop() != symbol:
                return False
        return not expected and bool(string)

    (found,) = run.generate(n=400, max_length=6)
    judged = [each for each in found if each.finished]
    assert [each.in_language for each in judged] == [is_balanced(each.text) for each in judged]
    assert {each.in_language for each in judged} == {True, False}
    assert all(each.in_language is None for each in found if not each.finished)
    lines = invoke("generate", run.run_dir, "-n", 400, "--max-length", 6, "--prompt", "").stdout.split("\n")[:-1]
    words = {None: [], True: ["yes"], False: ["no"]}
    assert [line.split("\t")[1:] for line in lines] == [words[each.in_language] for each in found]


def test_texts_end_at_stop_strings(run_dir):
    run = load(run_dir("sentences"))
    plain, stopped = run.generate(n=50, max_length=20), run.generate(n=50, max_length=20, stop=["b a", "c"])
    for before, after in zip(plain[0], stopped[0], strict=True):
        places = [at for at in map(before.text.find, ("b a", "c")) if at >= 0]
        assert after.text == (before.text[: min(places)] if places else before.text)
        assert after.finished == (bool(places) or before.finished)
        assert after.num_tokens <= before.num_tokens
    (found,) = run.generate(["c c"], stop=["c"], max_length=20)
    assert found[0].text.startswith("c c"), "stop strings of the prompt do not count"


def test_an_iterator_is_read_as_far_as_needed(run_dir):
    run, read = load(run_dir("sentences")), count()
    prompts = (text for text, _ in zip(repeat("a"), read))
    assert len(list(islice(run.generate(prompts, max_length=1), 2))) == 2
    assert next(read) <= 4097


def test_prompts_may_have_several_lines_in_a_stream(run_dir):
    (found,) = load(run_dir("stream")).generate(["a b\nb a"], max_length=2)
    assert found[0].text.startswith("a b\nb a")


def test_no_more_tokens_than_positions(run_dir):
    run = load(run_dir("gpt2"))
    (found,) = run.generate(["a b c"], n=20)
    assert max(each.num_tokens for each in found) <= 9
    (last,) = run.generate(["a " * 11])
    assert last[0].num_tokens == 1
    with pytest.raises(DataError, match=r"texts:2: the inputs have 13 tokens; the model has 12 positions"):
        run.generate(["a", "a " * 12])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n": 0}, "n is 0; expected at least 1"),
        ({"prompts": "a b"}, "got the text 'a b'; expected a list or an iterator of texts"),
        ({"temperature": -1}, "temperature=-1; expected at least 0"),
        ({"top_p": 0}, "top_p=0; expected more than 0"),
        ({"beam": 2, "n": 3}, "beam is 2; expected at least n = 3"),
        ({"beam": 2, "top_k": 3}, "are for sampling"),
        ({"stop": [""]}, "a stop string is empty"),
    ],
)
def test_invalid_arguments_are_refused(run_dir, arguments, message):
    with pytest.raises(UsageError, match=message):
        load(run_dir("sentences")).generate(**arguments)


def test_prompts_that_cannot_be_encoded_are_refused_by_line(run_dir):
    result = invoke("generate", run_dir("sentences"), input="a\nz\n")
    assert result.exit_code == 1
    assert "standard input:2: 'z': 'z' is not in the vocabulary" in result.stderr
    assert np.isfinite(load(run_dir("sentences")).generate(["a"])[0][0].log_probability)


@pytest.fixture(scope="module")
def spelled_run(tmp_path_factory):
    """spelled_run(level) is a hardly trained run of text of a level whose tokens carry their spaces."""
    folder = tmp_path_factory.mktemp("spelled")
    (folder / "text").write_text("the cat saw the dog\nthe dog saw a cat\n" * 10)

    def make(level):
        settings = TextSettings(level, vocabulary_size=60)
        prepare_language_modeling(folder / level, folder / "text", folder / "text", settings=settings)
        model = {"d_model": 8, "num_heads": 2, "d_ff": 8, "layers": 1}
        training = {"max_updates": 1, "max_epochs": None, "loss": "token_mean"}
        tree = {"task": "language_modeling", "data": str(folder / level), "model": model, "training": training}
        train(resolve_settings(tree), folder / f"run {level}")
        return load(folder / f"run {level}")

    return make


@pytest.mark.parametrize("level", ["word", "character", "byte", "bpe", "sentencepiece-bpe"])
def test_stop_strings_may_begin_with_the_space_before_the_first_word(spelled_run, level):
    """A stop string is found in the spelling of the whole text, from the end of the prompt on."""
    run, stop = spelled_run(level), " " if level in ("character", "byte") else " s"
    plain, stopped = (run.generate(["the cat"], n=300, max_length=3, stop=s)[0] for s in ((), (stop,)))
    places = [each.text.find(stop, len("the cat")) for each in plain]
    assert [each.text for each in stopped] == [
        each.text if place < 0 else each.text[:place] for each, place in zip(plain, places, strict=True)
    ]
    assert len("the cat") in places
    assert [each.finished for each in stopped] == [
        each.finished or place >= 0 for each, place in zip(plain, places, strict=True)
    ]


def test_texts_continue_past_the_ends_of_lines_on_request(run_dir):
    run = load(run_dir("stream"))
    plain = run.generate(["a b"], n=12, max_length=60)[0]
    for lines in (1, 2, 5):
        texts = run.generate(["a b"], n=12, max_length=60, lines=lines, seed=0)[0]
        for one, more in zip(plain, texts, strict=True):
            assert more.text.startswith(one.text)
            assert more.text.count("\n") == (lines - 1 if more.finished else more.text.count("\n"))
            assert more.text.count("\n") < lines
            assert more.num_tokens <= 60
            assert more.log_probability == pytest.approx(log_probability(run, more), rel=1e-4, abs=1e-4)
        assert any(more.finished for more in texts)
    narrow = run.generate(["a b"], n=12, max_length=60, lines=5, batch_size=1)[0]
    assert [each.text for each in narrow] == [each.text for each in texts]
    result = invoke("generate", run.run_dir, "--prompt", "a b", "-n", 12, "--max-length", 60, "--lines", 5)
    assert result.stdout == "".join(each.text.replace("\n", "\\n") + "\n" for each in texts)


def test_stop_strings_are_found_in_later_lines(run_dir):
    run = load(run_dir("stream"))
    plain, stopped = (run.generate(n=60, max_length=40, lines=4, stop=stop)[0] for stop in ((), ("\nb",)))
    for before, after in zip(plain, stopped, strict=True):
        assert after.text == before.text.split("\nb")[0]
    assert any("\nb" in each.text for each in plain)


@pytest.mark.parametrize(
    ("kind", "arguments", "message"),
    [
        ("sentences", {"lines": 2}, "lines is 2; expected 1 for a model of sentences, which ends them"),
        ("formal language", {"lines": 2}, "lines is 2; expected 1 for a model of sentences, which ends them"),
        ("stream", {"lines": 2, "beam": 2}, "are for sampling, beam is for beam search"),
        ("stream", {"lines": 0}, "lines is 0; expected at least 1"),
    ],
)
def test_lines_are_those_of_streams(run_dir, kind, arguments, message):
    with pytest.raises(UsageError, match=message):
        load(run_dir(kind)).generate(**arguments)
