"""Decoding: beam search, greedy search, sampling, ensembles, and log-probabilities of given texts.

- Inputs and outputs: ``Stepper`` (a model with ``step``), ``DecoderState``, ``DecodingStart``, made by
  ``start_translation`` of a ``TranslationModel`` or ``start_continuation``; ``Hypothesis``.
- ``beam_search`` with ``BeamSearch`` settings: length penalties ``NoLengthPenalty``, ``PerTokenPenalty``,
  ``GNMTPenalty``, ``PowerPenalty`` (protocol ``LengthPenalty``); presets ``fairseq``, ``gnmt``, ``vaswani_2017``,
  ``you_2020``, ``dusell_chiang_2024``.
- ``beam_search_tree``: the result for one sentence, and a ``BeamTree`` of all hypotheses that were kept.
- ``greedy_search``; ``sample`` with ``Sampling`` (temperature, top-k, top-p); ``Ensemble`` of models.
- ``score_pairs`` and ``score_texts`` return ``SequenceScores``.
- ``search_spellings``, ``add_spelling_score``: the second stage of two-stage decoding.
- ``max_target_lengths``, ``pad_sequences``, ``batches_by_length``, ``map_in_batches``, ``weights_unchanged``.
"""

from structattn.decoding.batches import batches_by_length, map_in_batches, max_target_lengths
from structattn.decoding.beam_presets import (
    BeamSearch,
    GNMTPenalty,
    LengthPenalty,
    NoLengthPenalty,
    PerTokenPenalty,
    PowerPenalty,
    dusell_chiang_2024,
    fairseq,
    gnmt,
    vaswani_2017,
    you_2020,
)
from structattn.decoding.beam_search import beam_search
from structattn.decoding.beam_tree import BeamTree, beam_search_tree
from structattn.decoding.ensemble import Ensemble
from structattn.decoding.greedy import greedy_search
from structattn.decoding.sampling import Sampling, sample
from structattn.decoding.scoring import SequenceScores, score_pairs, score_texts
from structattn.decoding.spelling import add_spelling_score, search_spellings
from structattn.decoding.stepper import (
    DecoderState,
    DecodingStart,
    Hypothesis,
    Stepper,
    TranslationModel,
    pad_sequences,
    start_continuation,
    start_translation,
    weights_unchanged,
)

__all__ = [
    "BeamSearch",
    "BeamTree",
    "DecoderState",
    "DecodingStart",
    "Ensemble",
    "GNMTPenalty",
    "Hypothesis",
    "LengthPenalty",
    "NoLengthPenalty",
    "PerTokenPenalty",
    "PowerPenalty",
    "Sampling",
    "SequenceScores",
    "Stepper",
    "TranslationModel",
    "add_spelling_score",
    "batches_by_length",
    "beam_search",
    "beam_search_tree",
    "dusell_chiang_2024",
    "fairseq",
    "gnmt",
    "greedy_search",
    "map_in_batches",
    "max_target_lengths",
    "pad_sequences",
    "sample",
    "score_pairs",
    "score_texts",
    "search_spellings",
    "start_continuation",
    "start_translation",
    "vaswani_2017",
    "weights_unchanged",
    "you_2020",
]
