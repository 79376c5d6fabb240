"""Translation from text files to scores, for a target language that is the source with its words reversed."""

import json
import random
import shutil
import sys
from dataclasses import replace

import pytest
import torch
from tests.program import invoke, succeed
from tests.sweeps.conftest import EngineInThisProcess

from structattn.attention import CrossGaussianAttention
from structattn.decoding import GNMTPenalty, PowerPenalty, Sampling, score_pairs
from structattn.decoding.sampling import SeededSampling
from structattn.loading.evaluate import evaluate, evaluate_run
from structattn.loading.runs import open_run
from structattn.metrics.translation import bleu_statistics, compare_systems, corpus_scores
from structattn.runs.folder import RunFolder
from structattn.runs.selection import checkpoints_of
from structattn.settings.evaluation import EvaluationSettings
from structattn.settings.run import resolve_settings
from structattn.settings.sweep import SweepSettings
from structattn.support.errors import DataError, SettingsError, StructattnError, UsageError
from structattn.sweeps.results import read_sweep_results
from structattn.sweeps.sweep import run_sweep
from structattn.tasks.model import build_model_for
from structattn.tasks.translation.compare import compare_runs
from structattn.tasks.translation.evaluate import translation_scores
from structattn.tasks.translation.translators import make_pair_scorer, make_translator
from structattn.text.folders.prepared import open_prepared
from structattn.training.run_training import train

WORDS = {"eins": "one", "zwei": "two", "drei": "three", "vier": "four", "fünf": "five"}


def pairs(count, seed):
    generator = random.Random(seed)
    sources = [generator.choices(list(WORDS), k=generator.randint(1, 5)) for _ in range(count)]
    return [(" ".join(words), " ".join(WORDS[word] for word in reversed(words))) for words in sources]


def tree(data, **training):
    sizes = {"d_model": 32, "num_heads": 2, "d_ff": 64, "encoder": {"layers": 1}, "decoder": {"layers": 1}}
    start = {"weight_init": "xavier", "embedding_init": "scaled_normal"}
    model = {"kind": "encoder_decoder", "dropout": 0.0, "tied_embeddings": "three-way", **sizes, **start}
    settings = {"batches": {"kind": "pairs", "max_tokens": 200}, "loss": "token_mean", "max_epochs": None, **training}
    return {"task": "translation", "data": str(data), "model": model, "training": settings}


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """Prepared pairs and a run trained on them for some updates."""
    workspace = tmp_path_factory.mktemp("translation")
    for name, (count, seed) in {"train": (300, 1), "valid": (30, 2), "test": (40, 3)}.items():
        for side, lines in zip(("de", "en"), zip(*pairs(count, seed), strict=True), strict=True):
            (workspace / f"{name}.{side}").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    splits = [part for name in ("train", "valid", "test") for part in
              (f"--{name}", str(workspace / f"{name}.de"), str(workspace / f"{name}.en"))]  # fmt: skip
    succeed("prepare", "parallel", *splits, "--level", "word", "-o", workspace / "data")
    training = {"max_updates": 250, "optimizer": {"learning_rate": 0.01}, "label_smoothing": {"epsilon": 0.1}}
    train(resolve_settings(tree(workspace / "data", **training)), workspace / "run")
    return workspace


@pytest.fixture
def run(workspace):
    return open_run(workspace / "run", "last")


def lines_of(workspace, name):
    return (workspace / name).read_text(encoding="utf-8").split("\n")[:-1]


def test_evaluation_stores_scores_signatures_and_translations(workspace):
    scores = evaluate(workspace / "run", "test")
    stored = json.loads((workspace / "run/scores/test.json").read_text())
    kept = lines_of(workspace, "run/scores/test.translations.txt")
    assert len(kept) == 40
    assert scores.translation == corpus_scores(kept, lines_of(workspace, "test.en"))
    assert stored["translation"]["BLEU"]["signature"].startswith("nrefs:1|bs:1000|seed:12345|case:mixed|eff:no|tok:13a")
    assert scores.translation["BLEU"].value > 50, "so little is learnt at once"
    assert scores.num_tokens == sum(len(line.split()) + 1 for line in lines_of(workspace, "test.en"))


def test_cross_entropy_is_the_mean_over_the_tokens_of_the_texts(workspace, run):
    sides, total, symbols = run.prepared.sides, 0.0, 0
    for source, target in pairs(40, 3):
        text = [*sides.target.encode(target), 2]
        source_ids = torch.tensor([[*sides.source.encode(source), 2]])
        total -= score_pairs(run.model, source_ids, [text]).log_probs.double().item()
        symbols += len(text)
    assert evaluate(workspace / "run", "test", "last").cross_entropy == pytest.approx(total / symbols, rel=1e-5)


@pytest.mark.parametrize("batch_tokens", [1, 30, 10_000])
def test_translations_do_not_depend_on_the_batch(workspace, run, batch_tokens):
    lines = [*lines_of(workspace, "test.de"), "", "  ", "unbekannt eins"]
    whole = make_translator([run])(lines)
    translator = replace(make_translator([run]), batch_tokens=batch_tokens)
    order = list(range(len(lines)))
    random.Random(1).shuffle(order)
    found = translator([lines[index] for index in order])
    assert [found[order.index(index)][0].text for index in range(len(lines))] == [best[0].text for best in whole]
    assert whole[len(lines) - 3][0].text == "", "an empty line stays one"


def test_bf16_changes_few_translations(workspace, run, monkeypatch):
    monkeypatch.setattr("structattn.support.devices.slow_bf16", lambda device: None)  # only slow where it is
    lines = lines_of(workspace, "test.de")
    whole, rounded = (make_translator([run], precision=precision)(lines) for precision in ("float32", "bf16"))
    assert sum(a[0].text == b[0].text for a, b in zip(whole, rounded, strict=True)) >= 0.9 * len(lines)
    assert [a[0].score for a in whole] != [b[0].score for b in rounded], "bfloat16 was used"


def test_bf16_without_the_instructions(run, monkeypatch):
    monkeypatch.setattr("structattn.support.devices.slow_bf16", lambda device: "no instructions")
    with pytest.raises(UsageError, match="'bf16' is slower than float32 here: no instructions; expected 'float32'"):
        make_translator([run], precision="bf16")


@pytest.mark.parametrize("precision", ["fp16", "int8", ""])
def test_other_precisions_are_refused(run, precision):
    with pytest.raises(UsageError, match=f"precision {precision!r} is unknown; expected one of float32, bf16"):
        run.translate(["eins"], precision=precision)


def test_samples_depend_on_the_line_and_the_seed_only(workspace, run):
    lines = [*lines_of(workspace, "test.de"), ""]
    drawn = replace(make_translator([run]), sampling=SeededSampling(Sampling(3.0), 7))
    whole = drawn(lines, 3)
    narrow = replace(drawn, batch_tokens=1)(list(reversed(lines)), 3)
    assert [[each.text for each in found] for found in reversed(narrow)] == [[e.text for e in found] for found in whole]
    assert any(len({each.text for each in found}) > 1 for found in whole), "draws for one line differ"
    other = replace(drawn, sampling=SeededSampling(Sampling(3.0), 8))(lines)
    assert [found[0].text for found in other] != [found[0].text for found in whole]


def test_samples_need_no_beam_of_their_number(run):
    assert len(run.translate(["zwei eins"], n=1001, temperature=1.0)[0]) == 1001


def test_sampling_at_temperature_0_is_a_beam_search_of_size_1(workspace):
    run, text = workspace / "run", b"zwei eins\n\ndrei\n"
    drawn = succeed("translate", run, "--temperature", "0", input=text)
    assert drawn.stdout == invoke("translate", run, "evaluation.beam_size=1", input=text).stdout


def test_the_command_samples(workspace):
    arguments = ["translate", workspace / "run", "--temperature", "4", "--n-best", "6"]
    found = [invoke(*arguments, "--seed", seed, input=b"zwei eins\n").stdout for seed in "112"]
    assert found[0] == found[1] != found[2]
    assert len(found[0].splitlines()) == 6, "the number of samples does not depend on the beam"
    for wrong, message in (
        (["evaluation.beam_size=2"], "expected options of one kind"),
        (["--top-p", "0"], "top_p=0.0; expected more than 0"),
    ):
        refused = invoke(*arguments, *wrong, input=b"zwei\n")
        assert refused.exit_code == 2
        assert message in refused.output


def test_log_probabilities_of_translations_match_the_pair_scorer(workspace, run):
    lines, scorer = lines_of(workspace, "test.de"), make_pair_scorer([run])
    found = [best for (best,) in make_translator([run])(lines)]
    prefixes = [" ".join(each.text.split()[:2]) for each in found]
    forced = [best for (best,) in make_translator([run])(lines, prefixes=prefixes)]
    # a beam that starts from a prefix prunes other hypotheses, so it may end in another text
    assert all(each.text.split()[:2] == prefix.split() for each, prefix in zip(forced, prefixes, strict=True))
    for translations in (found, forced):
        encoded = [
            scorer.encode(line, each.text, ("de", "en"), 1) for line, each in zip(lines, translations, strict=True)
        ]
        expected = [each.log_probability for each in translations]
        assert [each.log_probability for each in scorer(encoded)] == pytest.approx(expected, rel=1e-4)


def test_several_runs_translate_as_an_ensemble(workspace, run):
    line = "eins zwei drei"
    alone, twice = make_translator([run])([line])[0][0], make_translator([run, run])([line])[0][0]
    assert alone.text == twice.text
    assert alone.log_probability == pytest.approx(twice.log_probability, rel=1e-4)


def test_the_commands_translate_and_compare(workspace):
    run = workspace / "run"
    found = succeed("translate", run, "evaluation.beam_size=2", input=b"zwei eins\n\ndrei\n")
    translator = make_translator([open_run(workspace / "run")], EvaluationSettings(beam_size=2))
    assert found.stdout.split("\n")[:-1] == [best[0].text for best in translator(["zwei eins", "", "drei"])]
    several = invoke("translate", run, "--n-best", "3", input=b"zwei eins\n")
    assert [line.split("\t")[0] for line in several.stdout.split("\n")[:-1]] == ["1"] * 3
    more = invoke("translate", run, "--n-best", "6", input=b"zwei eins\n")  # the beam grows with it
    assert len(more.stdout.split("\n")[:-1]) == 6
    narrow = invoke("translate", run, "--n-best", "6", "evaluation.beam_size=4", input=b"zwei eins\n")
    assert (narrow.exit_code, "--n-best 6 is more than evaluation.beam_size=4" in narrow.output) == (2, True)
    evaluate(workspace / "run", "test")
    shutil.copytree(run, workspace / "copy")
    shown = succeed("compare", run, workspace / "copy", "--samples", "40")
    assert "BLEU" in shown.output
    assert "+0.00" in shown.output


def test_bootstrap_distinguishes_a_better_system_from_a_worse_one():
    references = [target for _, target in pairs(60, 5)]
    worse = [" ".join(reversed(line.split())) for line in references]
    assert {each.p for each in compare_systems(worse, list(worse), references, samples=100).values()} == {1.0}
    assert {each.p for each in compare_systems(worse[:1], references[:1], references[:1], samples=9).values()} == {1.0}
    found = compare_systems(worse, references, references, samples=100)
    assert found["BLEU"].second == pytest.approx(100)
    assert found["BLEU"].p < 0.05
    assert found["TER"].first > 0 == found["TER"].second


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batches": {"kind": "tokens"}}, "'tokens' does not suit translation; expected 'pairs'"),
    ],
)
def test_unsuitable_settings_are_rejected(workspace, tmp_path, change, message):
    with pytest.raises(SettingsError, match=message):
        train(resolve_settings(tree(workspace / "data", max_updates=1, **change)), tmp_path / "run")


def test_a_sweep_prepares_its_text_once_and_evaluates_with_its_settings(workspace, tmp_path):
    files = {name: [str(workspace / f"{name}.{side}") for side in ("de", "en")] for name in ("train", "valid", "test")}
    base = tree("", max_updates=10, keep_checkpoints=2, checkpoint_every=5, optimizer={"learning_rate": 0.01})
    del base["data"]
    base |= {
        "prepare": {"kind": "parallel", "level": "word", **files},
        "evaluation": {"checkpoint": "last-2", "beam_size": 2},
    }
    models = {"two layers": {"model.encoder.layers": 2}, "hc-sa": {"model.encoder.layers": "gaussian"}}
    sweep = SweepSettings.model_validate({"base": base, "grid": {"model": models}, "evaluate": {"test": "all"}})
    run_sweep(sweep, tmp_path, EngineInThisProcess, lambda status: None)
    assert len(list((tmp_path / "data").glob("*/header.json"))) == 1
    results = read_sweep_results(sweep, tmp_path)
    assert len(results.signatures) == 3
    for row in results.rows:
        folder = tmp_path / "runs" / row.selected
        stored = json.loads((folder / "scores/test.json").read_text())["translation"]["BLEU"]
        assert row.splits["test"]["BLEU"] == stored["value"]
        assert row.splits["test"]["BLEU ±"] == stored["interval"]
        translator = make_translator([open_run(folder, "last-2")], EvaluationSettings(beam_size=2))
        lines = [best[0].text for best in translator(lines_of(workspace, "test.de"))]
        assert lines_of(folder, "scores/test.translations.txt") == lines


def test_checkpoints_can_be_selected_by_bleu(workspace, tmp_path):
    training = {"max_updates": 60, "validate_every": 15, "select_by": "bleu", "keep_checkpoints": 4}
    chosen = tree(workspace / "data", optimizer={"learning_rate": 0.01}, **training)
    settings = resolve_settings(chosen | {"evaluation": {"bleu_tokenizer": "char"}})
    summary = train(settings, tmp_path / "run")
    events = [json.loads(line) for line in (tmp_path / "run/events.jsonl").read_text().splitlines()]
    scores = {event["update"]: event["bleu"] for event in events if event["event"] == "validation"}
    assert (summary.best_bleu, summary.best_cross_entropy) == (max(scores.values()), None)
    assert scores[summary.best_update] == max(scores.values()) > 0
    ranked = sorted(scores, key=lambda update: (-scores[update], update))
    assert [int(path.name) for path in checkpoints_of(tmp_path / "run", "best-2")] == sorted(ranked[:2], reverse=True)
    run = open_run(tmp_path / "run", "last")
    greedy = make_translator([run], EvaluationSettings(beam_size=1))(lines_of(workspace, "valid.de"))
    texts = [best[0].text for best in greedy]
    found = corpus_scores(texts, lines_of(workspace, "valid.en"), tokenizer="char")["BLEU"]
    assert found.value == pytest.approx(scores[60], abs=1e-9)
    assert train(settings, tmp_path / "run", resume=True) == replace(summary, already_finished=True)


def test_only_translation_runs_can_be_selected_by_bleu(workspace):
    with pytest.raises(
        SettingsError, match=r"training.select_by: 'bleu' needs the task 'translation'; the task is 'language_m"
    ):
        resolve_settings({"task": "language_modeling", "data": "x", "training": {"select_by": "bleu"}})


def test_maximum_lengths_are_those_of_the_settings(run):
    lengths = torch.tensor([1, 7, 200])
    for how, expected in (
        (EvaluationSettings(), [51, 57, 250]),
        (EvaluationSettings(max_length_ratio=0, max_length_offset=256), [256, 256, 256]),
        (EvaluationSettings(max_length_ratio=1.5, max_length_offset=2, max_length=20), [3, 12, 20]),
    ):
        assert make_translator([run], how).max_lengths(lengths).tolist() == expected


def test_the_length_penalty_is_that_of_the_settings(workspace, run):
    def penalty(**settings):
        return make_translator([run], EvaluationSettings(**settings)).search.length_penalty

    assert penalty(search="fairseq") == PowerPenalty(1.0)
    assert penalty(search="fairseq", length_penalty=0.6) == PowerPenalty(0.6)
    assert penalty(search="gnmt") == GNMTPenalty(0.2)
    assert penalty(search="vaswani-2017") == penalty(search="you-2020") == GNMTPenalty(0.6)
    assert penalty(search="vaswani-2017", length_penalty=0.3) == GNMTPenalty(0.3)
    assert penalty(search="you-2020", length_penalty=0.3) == GNMTPenalty(0.3)
    fixed = EvaluationSettings(search="fairseq", length_penalty=0.6)
    assert fixed.changed({"search": "dusell-chiang-2024"}).length_penalty is None
    assert fixed.changed({"search": "you-2020", "length_penalty": 0.2}).length_penalty == 0.2
    assert fixed.changed({"search": "fairseq", "beam_size": 2}).length_penalty == 0.6
    arguments = ["evaluation.search=dusell-chiang-2024", "evaluation.length_penalty=0.6"]
    refused = invoke("translate", workspace / "run", *arguments, input=b"")
    assert refused.exit_code == 2
    assert "dusell-chiang-2024 has a fixed length penalty" in " ".join(refused.output.split())


def test_length_limits_of_the_command(workspace):
    def num_words(*options):
        source = "eins zwei drei vier fünf eins zwei\n".encode()
        arguments = ["evaluation.search=vaswani-2017", "evaluation.beam_size=8", "--n-best", "8", *options]
        result = succeed("translate", workspace / "run", *arguments, input=source)
        return max(len(line.split("\t")[2].split()) for line in result.stdout.splitlines())

    free = num_words("evaluation.max_length=60")
    assert free > 4
    assert num_words("evaluation.max_length=4") == 4
    assert num_words("evaluation.max_length_ratio=0.5", "evaluation.max_length_offset=0") == 3
    assert num_words(*(f"evaluation.max_length{rest}" for rest in ("_ratio=0.5", "_offset=1", "=2"))) == 2


def test_only_what_ended_or_was_cut_at_the_maximum_length_is_a_translation(run):
    line = "eins zwei drei vier fünf"
    search = EvaluationSettings(search="dusell-chiang-2024", beam_size=8)
    found = make_translator([run], search)([line], n_best=8)[0]  # the search stops when its best hypothesis has ended
    assert found
    assert all(each.finished for each in found)
    cut = make_translator([run], search.changed({"max_length": 2}))([line], n_best=8)[0]
    assert sorted(each.finished for each in cut) == [each.finished for each in reversed(cut)]
    assert {len(each.text.split()) for each in cut if not each.finished} == {2}


@pytest.mark.parametrize(
    "option", ["max_length_ratio=.nan", "max_length_ratio=1.0e+300", "max_length_ratio=-1", "max_length=0"]
)
def test_length_limits_out_of_range_are_refused(workspace, option):
    refused = invoke("translate", workspace / "run", f"evaluation.{option}", input=b"eins\n")
    assert refused.exit_code == 2
    assert "Traceback" not in refused.output


def use_bleu_tokenizer(run, name):
    settings = run.read_settings()
    run.write_settings(
        settings.model_copy(update={"evaluation": settings.evaluation.changed({"bleu_tokenizer": name})})
    )


def test_bleu_uses_the_tokenizer_of_the_settings(workspace, tmp_path, monkeypatch):
    shutil.copytree(workspace / "run", tmp_path / "run")
    use_bleu_tokenizer(RunFolder(tmp_path / "run"), "char")
    scores = evaluate(tmp_path / "run", "test")
    kept, references = lines_of(tmp_path, "run/scores/test.translations.txt"), lines_of(workspace, "test.en")
    assert scores.translation == corpus_scores(kept, references, tokenizer="char")
    assert "tok:char" in scores.translation["BLEU"].signature
    assert scores.translation["BLEU"].value != corpus_scores(kept, references)["BLEU"].value
    assert "tok:char" in compare_runs(tmp_path / "run", tmp_path / "run", "test", 10)["BLEU"].signature
    longest = max(len(line.replace(" ", "")) for line in references)
    assert max(bleu_statistics(kept, references, "char").reference_words) == longest
    use_bleu_tokenizer(RunFolder(tmp_path / "run"), "ja-mecab")
    monkeypatch.setattr(sys.modules["structattn.tasks.translation.evaluate"], "pair_scores", None)  # not reached
    with pytest.raises(UsageError, match=r"evaluation.bleu_tokenizer: 'ja-mecab' is not available"):
        evaluate(tmp_path / "run", "test")


def test_translations_of_the_training_pairs_cannot_be_scored(workspace):
    stated = r"data: the text of the split 'train' is not stored; expected another split"
    with pytest.raises(DataError, match=stated):
        evaluate(workspace / "run", "train")
    with pytest.raises(DataError, match=stated):
        compare_runs(workspace / "run", workspace / "run", "train")


def ratio_of_layer(tree, prepared):
    decoder = build_model_for(resolve_settings(tree).model, prepared).decoder
    (gaussians,) = {layer.heads.gaussians for layer in decoder.modules() if isinstance(layer, CrossGaussianAttention)}
    return gaussians.ratio


def test_hard_coded_cross_attention_uses_the_length_ratio_of_the_data(workspace):
    changed = tree(workspace / "data")
    changed["model"]["decoder"] = {"layers": 1, "cross_attention": "1xgaussian"}
    prepared = open_prepared(workspace / "data")
    pairs_of_training = prepared.pairs("train")
    ratio = pairs_of_training.source.lengths.sum() / pairs_of_training.target.lengths.sum()
    assert ratio_of_layer(changed, prepared) == pytest.approx(ratio)
    changed["model"]["decoder"]["cross_attention"] = [{"attention": "gaussian", "length_ratio": 1.5}]
    assert ratio_of_layer(changed, prepared) == 1.5


def test_an_interval_narrows_with_more_lines():
    hypotheses, references = ["a b c d e", "a b x d e"], ["a b c d e", "a b c d e"]
    few, many = (corpus_scores(hypotheses * n, references * n, samples=200)["BLEU"] for n in (5, 500))
    assert 0 < many.interval < few.interval / 5
    assert many.value == pytest.approx(few.value)


def test_other_models_and_data_are_rejected(workspace, run, tmp_path):
    with pytest.raises(SettingsError, match="the task 'translation' trains 'encoder_decoder'"):
        train(resolve_settings({**tree(workspace / "data"), "model": {"kind": "transformer"}}), tmp_path / "run")
    with pytest.raises(StructattnError, match="structattn evaluate"):
        compare_runs(workspace / "run", workspace / "run", "valid")


def test_a_line_that_cannot_be_encoded_is_named(workspace):
    shown = invoke("translate", workspace / "run", input=b"eins\nzwei <bos>\n")
    assert shown.exit_code == 1
    assert "standard input:2: 'zwei <bos>': the word <bos>" in " ".join(shown.output.split())


def test_learned_positions_limit_translations_and_sources(translation_run):
    positions = {"kind": "learned", "max_positions": 8}
    run = translation_run(kind="encoder_decoder", positions=positions)
    translator = replace(make_translator([run]), max_lengths=lambda lengths: lengths + 50)
    found = translator(["eins zwei", "eins " * 7])
    assert all(len(best.text.split()) <= 8 for (best,) in found)
    with pytest.raises(DataError, match="source:2: the line has 8 tokens and <eos>; the model has 8 positions"):
        translator(["eins", "eins " * 8])
    with pytest.raises(
        SettingsError, match="max_positions: test example 4 has 9 tokens; the model has 8 learned positions"
    ):
        evaluate_run(run, "test")


def test_a_missing_sacrebleu_is_reported_before_the_work(workspace, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    tree = {"task": "translation", "data": str(workspace / "data"), "model": {"kind": "encoder_decoder", "d_model": 8}}
    tree["training"] = {"batches": {"kind": "pairs", "max_tokens": 100}, "select_by": "bleu"}
    with pytest.raises(UsageError, match=r"needs the optional library sacrebleu, which is not installed"):
        train(resolve_settings(tree), workspace / "no-bleu")
    assert not (workspace / "no-bleu" / "events.jsonl").exists()
    with pytest.raises(UsageError, match=r"needs the optional library sacrebleu, which is not installed"):
        translation_scores(run, "elsewhere", 100)
