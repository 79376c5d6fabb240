"""Chunking probe: how much of the chunks of CoNLL-2000 a linear layer finds in frozen hidden states.

The Discrete Transformer paper, section 7.2, table 2: the hidden state of the top layer at the first subword of each
word, each stream separately, one linear layer to the chunk tags, which alone is trained.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from structattn.runs.analyses import write_analysis
from structattn.support.errors import DataError
from structattn.support.progress import progress
from structattn.support.seeds import derived_seed
from structattn.tasks.chunking.data import ChunkedSentence, read_chunked_sentences
from structattn.tasks.chunking.linear_probe import Classes, Features, LabelledFeatures, train_linear_probe
from structattn.tasks.chunking.majority import MajorityTags
from structattn.tasks.chunking.metrics import TaggingScores, tagging_scores
from structattn.tasks.chunking.word_features import WordFeatures
from structattn.tasks.loaded import LoadedRun
from structattn.text.reading import Notices

TRAIN_FILE: Final = "train.txt"
TEST_FILE: Final = "test.txt"
HELD_OUT: Final = 10  # the last sentence in ten of the training file, for early stopping


@dataclass(frozen=True)
class ChunkedCorpus:
    """Training and test sentences.

    Args:
        path: their folder.
        train: of which the last tenth is held out, for early stopping.
        test: what is scored.
    """

    path: Path
    train: list[ChunkedSentence]
    test: list[ChunkedSentence]

    @property
    def num_fitted(self) -> int:
        """The number of sentences that the probe is trained on."""
        return len(self.train) - max(1, len(self.train) // HELD_OUT)


@dataclass(frozen=True)
class StreamScores:
    """Scores of one stream of a model.

    Args:
        stream: ``syntactic`` or ``semantic``; None for a model with a single stream.
        epoch: the epoch after which the held-out loss was lowest.
        scores: on the test sentences.
    """

    stream: str | None
    epoch: int
    scores: TaggingScores


def read_chunked_corpus(folder: Path, notices: Notices) -> ChunkedCorpus:
    """Read ``train.txt`` and ``test.txt``, as distributed for CoNLL-2000.

    Raises:
        DataError: a file is missing or malformed, or there are fewer than two training sentences.
    """
    train, test = (read_chunked_sentences(folder / name, notices) for name in (TRAIN_FILE, TEST_FILE))
    if len(train) < 2:
        raise DataError(folder / TRAIN_FILE, "has one sentence; expected at least two, one of them to hold out")
    return ChunkedCorpus(folder, train, test)


def majority_scores(corpus: ChunkedCorpus) -> TaggingScores:
    """Return the scores of the most frequent chunk tag of each part of speech, as given in the files."""
    tagger = MajorityTags.fit(
        pair for each in corpus.train for pair in zip(each.parts_of_speech, each.chunks, strict=True)
    )
    predicted = [tagger(each.parts_of_speech) for each in corpus.test]
    return tagging_scores([each.chunks for each in corpus.test], predicted)


def probe_chunking(run: LoadedRun, corpus: ChunkedCorpus) -> list[StreamScores]:
    """Train and score a linear probe on each stream of a run.

    Cost: memory for the hidden states of all words of the corpus, 4 bytes a number.

    Raises:
        DataError: a sentence cannot be encoded or is too long for the model; the message names its line.
    """
    tags = sorted({tag for each in corpus.train for tag in each.chunks})
    train, test = _features(run, corpus.train, "training"), _features(run, corpus.test, "test")
    return [_probe(run, corpus, tags, stream, train[stream], test[stream]) for stream in train]


def write_chunking(run: LoadedRun, corpus: ChunkedCorpus, scores: Sequence[StreamScores]) -> Path:
    """Write the scores, and those of the baseline, to ``analyses/chunking.json`` in the run folder."""
    content = {
        "corpus": corpus.path.resolve().name,
        "update": run.update,
        "prepared_digest": run.prepared.digest,
        "baseline": asdict(majority_scores(corpus)),
        "streams": [asdict(each) for each in scores],
    }
    return write_analysis(run.run_dir, "chunking", "chunking", content)


def _features(run: LoadedRun, sentences: list[ChunkedSentence], name: str) -> dict[str | None, Features]:
    features = WordFeatures(run)
    encoded = [features.encode(each.words, each.path, each.line) for each in sentences]
    with progress(f"Hidden states of {name} sentences", len(encoded), "sentences") as advance:
        return features(encoded, advance)


def _probe(
    run: LoadedRun, corpus: ChunkedCorpus, tags: list[str], stream: str | None, train: Features, test: Features
) -> StreamScores:
    classes = _classes(corpus.train, tags)
    end = sum(len(each.words) for each in corpus.train[: corpus.num_fitted])
    fitted, held_out = LabelledFeatures(train[:end], classes[:end]), LabelledFeatures(train[end:], classes[end:])
    seed = derived_seed(run.settings.seed, "chunking probe")
    with progress(f"Training the probe of {stream or 'the'} hidden states", None, "epochs") as advance:
        probe = train_linear_probe(fitted, held_out, len(tags), seed, advance)
    predicted = iter([tags[index] for index in probe.predict(test)])
    of_sentences = [[next(predicted) for _ in each.words] for each in corpus.test]
    scores = tagging_scores([each.chunks for each in corpus.test], of_sentences)
    return StreamScores(stream, probe.epoch, scores)


def _classes(sentences: list[ChunkedSentence], tags: list[str]) -> Classes:
    index_of = {tag: index for index, tag in enumerate(tags)}
    return np.array([index_of[tag] for each in sentences for tag in each.chunks], np.int64)
