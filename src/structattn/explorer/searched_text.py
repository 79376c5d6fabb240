"""Texts that beam search completes, and the trees of their hypotheses as recordings hold them."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from structattn.decoding import BeamTree
from structattn.loading.trained_run import TrainedRun
from structattn.tasks.language_modeling.generator import GenerationSettings, TextGenerator
from structattn.tasks.language_modeling.prompts import TextEncoder
from structattn.tasks.streams import TEXTS
from structattn.tasks.translation.explain import decoded_pair_batch
from structattn.tasks.translation.pairs import PairEncoder
from structattn.tasks.translation.predictions import translation_model
from structattn.tasks.translation.translators import make_translator
from structattn.text.batching.pairs import PairBatch
from structattn.text.batching.sequences import Batch
from structattn.text.tokenization.vocabulary import Vocabulary


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
    """Return a source line with the translation that the run's beam search finds, and the tree of the search.

    An empty line has an empty translation without a search.

    Args:
        run: a translation run, whose evaluation settings say how to search.
        text: the source line.
        number: of the line, for messages.

    Raises:
        DataError: the line cannot be encoded, or is too long for the model.
    """
    encoder = PairEncoder((translation_model(run),), run.prepared.sides)
    pair = encoder(text, "", (TEXTS, TEXTS), number)
    found = make_translator([run]).search_tree(text, number, TEXTS)
    if found is None:
        return decoded_pair_batch(encoder, pair, ()), None
    vocabulary = run.prepared.sides.target.vocabulary
    recorded = _recorded(found.tree, found.best, found.translation.text, vocabulary)
    return decoded_pair_batch(encoder, pair, found.ids, found.replacements), recorded


def continued_text(run: TrainedRun, text: str, beam: int, number: int) -> tuple[Batch, RecordedBeamSearch]:
    """Return a text with the continuation that beam search finds, as ``TrainedRun.generate`` does, and its tree.

    Args:
        run: a language model of text or of a formal language.
        text: possibly empty.
        beam: the size of the beam.
        number: of the text, for messages.

    Raises:
        DataError: the text cannot be encoded, or is too long for the model.
        UsageError: the run is of another kind, or ``beam`` is less than 1.
    """
    found = TextGenerator(TextEncoder(run), GenerationSettings(beam=beam)).search_tree(text, number, TEXTS)
    ids = [*found.prompt, *found.tree.path(found.best)]  # the last one needs no position
    inputs, targets = torch.tensor([ids[:-1]]), torch.tensor([ids[1:]])
    batch = Batch(inputs, targets, torch.tensor([len(ids) - 1]), (number - 1,))
    return batch, _recorded(found.tree, found.best, found.text, run.prepared.vocabulary)


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
