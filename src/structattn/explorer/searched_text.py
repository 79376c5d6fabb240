"""Examples of a split, and texts that beam search completes, as recordings hold them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from structattn.decoding import BeamTree
from structattn.loading.trained_run import TrainedRun
from structattn.settings.embeddings import max_positions
from structattn.settings.run import RunSettings
from structattn.settings.training import StreamBatches
from structattn.support.errors import UsageError
from structattn.support.shapes import Bool, Float, Int
from structattn.tasks.language_modeling.generator import GenerationSettings, TextGenerator
from structattn.tasks.loaded import TEXTS
from structattn.tasks.registry import kind_of
from structattn.tasks.translation.explain import decoded_pair_batch
from structattn.tasks.translation.pairs import PairEncoder
from structattn.tasks.translation.predictions import translation_model
from structattn.tasks.translation.translators import make_translator
from structattn.text.batching.pairs import PairBatch
from structattn.text.batching.sequences import Batch
from structattn.text.folders.prepared import PreparedFolder
from structattn.text.tokenization.vocabulary import Vocabulary

MAX_TOKENS = 1024  # of an example, of either side
MIN_DEFAULT_TOKENS, MAX_DEFAULT_TOKENS = 10, 120  # of examples chosen by default: informative and legible
LONGEST_DEFAULT = 400  # where there are too few of these: a map has the square of that many numbers


def default_examples(run: TrainedRun, split: str, count: int) -> list[int]:
    """Return the first ``count`` examples of 10 to 120 tokens, followed by others if there are too few.

    Examples of more than 400 tokens are excluded, so there may be fewer.
    """
    batches = run.settings.training.batches
    if isinstance(batches, StreamBatches):
        windows = num_examples(run.settings, run.prepared, split) if batches.sequence_length <= LONGEST_DEFAULT else 0
        return list(range(min(count, windows)))
    lengths = run.prepared.split(split).lengths
    longest = np.maximum(lengths, run.prepared.pairs(split).source.lengths) if run.prepared.parallel_sides else lengths
    fitting = (lengths >= MIN_DEFAULT_TOKENS) & (longest <= MAX_DEFAULT_TOKENS)
    others = ~fitting & (longest < LONGEST_DEFAULT)  # <bos> or <eos> is also a token
    return [*np.flatnonzero(fitting).tolist(), *np.flatnonzero(others).tolist()][:count]


def num_examples(settings: RunSettings, prepared: PreparedFolder, split: str) -> int:
    """Return the number of examples of a split: sequences, or windows of a stream."""
    sequences, batches = prepared.split(split), settings.training.batches
    if isinstance(batches, StreamBatches):
        return -(-sequences.num_targets // batches.sequence_length)
    return len(sequences)


def require_example(settings: RunSettings, prepared: PreparedFolder, split: str, example: int) -> None:
    """Check that a split has an example.

    Raises:
        UsageError: it does not.
    """
    count = num_examples(settings, prepared, split)
    if not 0 <= example < count:
        raise UsageError(f"{split} has no example {example}; expected 0 to {count - 1}")


def example_batch(run: TrainedRun, split: str, example: int) -> Any:
    """Return an example of a split as a batch of size 1, with the inputs of training, but without masks.

    Raises:
        UsageError: there is no such example, or it has more than 1,024 tokens or than the model has positions.
    """
    require_example(run.settings, run.prepared, split, example)
    batch = kind_of(run).explainer(run).example(split, example)
    require_short(batch, f"example {example} of {split}", max_positions(run.settings.model))
    return batch


def require_short(batch: Any, name: str, maximum: int | None = None) -> None:
    """Raise UsageError if an example, or either side of a pair, has more than 1,024 tokens, or than a model takes."""
    count = max(batch.inputs.shape[1], batch.source.shape[1] if isinstance(batch, PairBatch) else 0)
    if count > MAX_TOKENS:
        raise UsageError(f"{name} has {count} tokens; expected at most {MAX_TOKENS}")
    if maximum is not None and count > maximum:
        raise UsageError(f"{name} has {count} tokens; the model has {maximum} learned positions")


@dataclass(frozen=True)
class RecordedBeamSearch:
    """The hypotheses that a beam search kept, N of them, each after the one that it extends.

    Args:
        tokens: the last token of each; of the first, the root, the token that the model was given first.
        parents: the index of the hypothesis that each extends; -1 for the root.
        steps: the number of tokens of each, <eos> included.
        log_probabilities: of all tokens of each, in nats.
        scores: the log-probabilities under the length penalty by which results are ranked.
        finished: whether the last token is <eos>.
        best: the index of the result.
        text: of the result, detokenized, with replacements of unknown words.
    """

    tokens: tuple[str, ...]
    parents: Int[np.ndarray, " node"]
    steps: Int[np.ndarray, " node"]
    log_probabilities: Float[np.ndarray, " node"]
    scores: Float[np.ndarray, " node"]
    finished: Bool[np.ndarray, " node"]
    best: int
    text: str

    @property
    def path(self) -> tuple[int, ...]:
        """The indices of the nodes from the root to the result."""
        nodes, node = list[int](), self.best
        while node >= 0:
            nodes.append(node)
            node = int(self.parents[node])
        return tuple(reversed(nodes))


def searched_pair(run: TrainedRun, text: str, number: int) -> tuple[PairBatch, RecordedBeamSearch | None]:
    """Return a source line, the ``number``-th, with the translation of the run's beam search, and the search's tree.

    An empty line has an empty translation without a search.

    Raises:
        DataError: the line cannot be encoded, or is too long for the model.
        UsageError: it has more than 1,024 tokens.
    """
    encoder = PairEncoder((translation_model(run),), run.prepared.sides)
    pair = encoder(text, "", (TEXTS, TEXTS), number)
    require_short(decoded_pair_batch(encoder, pair, ()), f"text {number}")
    search = make_translator([run]).search_tree(text, number, TEXTS)
    if search is None:
        return decoded_pair_batch(encoder, pair, ()), None
    vocabulary = run.prepared.sides.target.vocabulary
    recorded = _recorded(search.tree, search.best, search.translation.text, vocabulary)
    return decoded_pair_batch(encoder, pair, search.ids, search.replacements), recorded


def continued_text(run: TrainedRun, text: str, beam: int, number: int) -> tuple[Batch, RecordedBeamSearch]:
    """Return a text with the continuation that beam search finds, as ``TrainedRun.generate`` does, and its tree.

    Raises:
        DataError: the text cannot be encoded, or is too long for the model.
        UsageError: the run is no language model of text or of a formal language, or ``beam`` is less than 1.
    """
    search = TextGenerator(run, GenerationSettings(beam=beam)).search_tree(text, number, TEXTS)
    ids = [*search.prompt, *search.tree.path(search.best)]  # the last one needs no position
    inputs, targets = torch.tensor([ids[:-1]]), torch.tensor([ids[1:]])
    batch = Batch(inputs, targets, torch.tensor([len(ids) - 1]), (number - 1,))
    return batch, _recorded(search.tree, search.best, search.text, run.prepared.vocabulary)


def _recorded(tree: BeamTree, best: int, text: str, vocabulary: Vocabulary) -> RecordedBeamSearch:
    return RecordedBeamSearch(
        tokens=tuple(vocabulary.symbols[node.token] for node in tree.nodes),
        parents=np.array([node.parent for node in tree.nodes], dtype=np.int32),
        steps=np.array([node.step for node in tree.nodes], dtype=np.int32),
        log_probabilities=np.array([node.log_probability for node in tree.nodes]),
        scores=np.array([node.score for node in tree.nodes]),
        finished=np.array([node.finished for node in tree.nodes]),
        best=best,
        text=text,
    )
