"""Word embeddings of a run: neighbours, agreement of parts of speech, t-SNE, and export (Discrete Transformer, 7.2)."""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from structattn.loading.trained_run import TrainedRun
from structattn.loading.word_vectors import WordVectors
from structattn.metrics.neighbours import Agreement, class_agreement, nearest_neighbours
from structattn.runs.store import write_analysis
from structattn.support.errors import UsageError
from structattn.support.files import create_folder, write_atomically
from structattn.support.imports import import_library
from structattn.support.progress import progress
from structattn.support.seeds import derived_seed
from structattn.support.shapes import Float
from structattn.tasks.chunking.data import majority_tags, read_chunked_sentences
from structattn.text.reading import Notices

NUM_NEIGHBOURS = 10


@dataclass(frozen=True)
class Neighbour:
    """A word and its cosine similarity to the query."""

    word: str
    similarity: float


def neighbours_of(vectors: WordVectors, word: str, count: int = NUM_NEIGHBOURS) -> dict[str | None, list[Neighbour]]:
    """Return the nearest words of a word in each stream, the most similar first.

    Raises:
        UsageError: the word has no embedding.
    """
    query = np.array([vectors.index(word)])
    neighbours = {}
    for stream, table in vectors.streams.items():
        (indices,), (similarities,) = nearest_neighbours(table, query, count)
        pairs = zip(indices.tolist(), similarities.tolist(), strict=True)
        neighbours[stream] = [Neighbour(vectors.words[index], similarity) for index, similarity in pairs]
    return neighbours


def read_word_tags(path: Path) -> dict[str, str]:
    """Return the most frequent part of speech of each word of a file in the format of CoNLL-2000.

    Raises:
        DataError: the file is malformed.
    """
    sentences = read_chunked_sentences(path, Notices())
    pairs = (pair for each in sentences for pair in zip(each.words, each.parts_of_speech, strict=True))
    return majority_tags(pairs)[0]


def tag_agreement(vectors: WordVectors, tag_of: dict[str, str]) -> dict[str | None, Agreement]:
    """Return how often the ten nearest neighbours of words have their part of speech, among the words with a known one.

    Raises:
        UsageError: fewer than two words have a tag.
    """
    known = [index for index, word in enumerate(vectors.words) if word in tag_of]
    if len(known) < 2:
        raise UsageError("fewer than two of the words have a known part of speech")
    tags = [tag_of[vectors.words[index]] for index in known]
    return {stream: class_agreement(table[known], tags, NUM_NEIGHBOURS) for stream, table in vectors.streams.items()}


def write_agreement(run: TrainedRun, side: str, agreement: dict[str | None, Agreement]) -> Path:
    """Write the agreement of each stream to ``analyses/neighbours-SIDE.json`` in the run folder."""
    streams = [{"stream": stream, **asdict(each)} for stream, each in agreement.items()]
    content = {"side": side, "update": run.update, "num_neighbours": NUM_NEIGHBOURS, "streams": streams}
    return write_analysis(run.run_dir, f"neighbours-{side}", "neighbours", content)


def t_sne(vectors: Float[np.ndarray, "words d_model"], seed: int) -> Float[np.ndarray, "words 2"]:
    """Return points in the plane by t-SNE (van der Maaten & Hinton 2008) of the vectors, scaled to length 1.

    Args:
        vectors: at least four.
        seed: of the optimization.

    Raises:
        UsageError: scikit-learn is not installed, or there are too few vectors.
    """
    if len(vectors) < 4:
        raise UsageError(f"t-SNE needs at least 4 words; there are {len(vectors)}")
    manifold = import_library("sklearn.manifold", "embeddings", "t-SNE")
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    perplexity = min(30.0, (len(vectors) - 1) / 3)
    tsne = manifold.TSNE(perplexity=perplexity, init="pca", random_state=derived_seed(seed, "t-SNE") % 2**32)
    with progress("t-SNE", None):
        points: Float[np.ndarray, "words 2"] = tsne.fit_transform(vectors / np.where(norms == 0, 1, norms))
    return points


def write_word2vec(path: Path, words: tuple[str, ...], vectors: Float[np.ndarray, "words d_model"]) -> None:
    """Write vectors in the text format of word2vec: the number of words and d, then a word and its numbers a line."""
    rows = (f"{word} {' '.join(map(repr, row))}\n" for word, row in zip(words, vectors.tolist(), strict=True))
    create_folder(path.parent)
    write_atomically(path, f"{len(words)} {vectors.shape[1]}\n{''.join(rows)}")
