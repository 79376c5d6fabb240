"""Check the export to CTranslate2: log-probabilities and translations of a run's test set are those of the run.

    python benchmarks/export_ctranslate2.py RUN [--sentences 1000] [--output FILE.json]

The references are scored by ``score_batch``, and the sources translated greedily. Where two translations differ, the
run scores both: they count as a tie if, at the first token that differs, the log-probabilities of the two tokens lie
within 1e-5. A log-probability that differs by more than 1e-4, or a translation that is no tie, makes this script fail.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import ctranslate2
import torch
from result_file import write_results
from rich.console import Console

from structattn.decoding import greedy_search, pad_sequences, start_translation
from structattn.interop.export.formats import export_run
from structattn.loading.runs import open_run
from structattn.loading.trained_run import TrainedRun
from structattn.support.files import temporary_folder
from structattn.support.special_tokens import BOS, CLASS_OFFSET, EOS
from structattn.tasks.translation.translators import PairScorer

TIE, CLOSE, MAX_LENGTH, BATCH = 1e-5, 1e-4, 200, 50


def ids_of(run: TrainedRun, count: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return source and target ids of the test set, without <eos>."""
    pairs = run.prepared.pairs("test")
    numbers = range(min(count, len(pairs.source)))
    return [pairs.source[i].tolist() for i in numbers], [pairs.target[i].tolist() for i in numbers]


def greedy(run: TrainedRun, sources: list[list[int]]) -> list[list[int]]:
    found = []
    for first in range(0, len(sources), BATCH):
        batch = sources[first : first + BATCH]
        ids, lengths = pad_sequences([[*source, EOS] for source in batch], torch.device("cpu"))
        hypotheses = greedy_search(run.model, start_translation(run.model, ids, lengths), MAX_LENGTH)
        found += [list(each.text) for each in hypotheses]
    return found


@torch.no_grad()
def gap(run: TrainedRun, source: list[int], ours: list[int], theirs: list[int]) -> float:
    """Return the difference of the log-probabilities of the first tokens that differ, by the run's model."""
    ours, theirs = [*ours, EOS], [*theirs, EOS]
    first = next(i for i, pair in enumerate(zip(ours, theirs, strict=False)) if pair[0] != pair[1])
    logits: Any = run.model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *ours[:first]]]))[0, -1]
    return abs(float(logits[ours[first] - CLASS_OFFSET] - logits[theirs[first] - CLASS_OFFSET]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--sentences", type=int, default=1000)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    run = open_run(arguments.run, device=torch.device("cpu"))
    (sources, targets), sides = ids_of(run, arguments.sentences), run.prepared.sides
    tokens = [[[side.vocabulary.symbols[token] for token in line] for line in lines]
              for side, lines in ((sides.source, sources), (sides.target, targets))]  # fmt: skip
    with temporary_folder() as folder:
        export_run(run, "ctranslate2", folder / "exported")
        translator = ctranslate2.Translator(str(folder / "exported"), compute_type="float32")
        theirs = translator.translate_batch(
            tokens[0], beam_size=1, max_batch_size=BATCH, max_decoding_length=MAX_LENGTH
        )
        scored = translator.score_batch(*tokens, max_batch_size=BATCH)
    scorer = PairScorer((run.model,), sides)
    pairs = zip(
        *(map(side.decode, lines) for side, lines in ((sides.source, sources), (sides.target, targets))), strict=True
    )
    paths = Path("source"), Path("target")
    expected = [each.log_probability for each in scorer([scorer.encode(*pair, paths, 1) for pair in pairs])]
    largest = max(abs(sum(each.log_probs) - score) for each, score in zip(scored, expected, strict=True))
    found = [[sides.target.vocabulary.id_of[token] for token in each.hypotheses[0]] for each in theirs]
    lines = zip(sources, greedy(run, sources), found, strict=True)
    gaps = [gap(run, *line) for line in lines if line[1] != line[2]]
    result = {
        "sentences": len(sources),
        "mean log-probability": sum(expected) / len(expected),
        "largest difference of log-probabilities": largest,
        "translations that differ": len(gaps),
        "largest gap where they differ": max(gaps, default=0.0),
    }
    Console().print(result)
    write_results(result, arguments.output)
    sys.exit(largest > CLOSE or any(each > TIE for each in gaps))


if __name__ == "__main__":
    main()
