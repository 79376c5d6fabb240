"""From models to texts: greedy search, sampling, beam search, ensembles, and scores of given texts."""

from structattn.decoding.batches import batches_by_length, in_batches
from structattn.decoding.beam_search import beam_search
from structattn.decoding.ensemble import Ensemble
from structattn.decoding.greedy import greedy
from structattn.decoding.hypothesis import Hypothesis
from structattn.decoding.length_rules import Gnmt, LengthPower, LengthRule, PerToken, Unnormalized
from structattn.decoding.limits import length_limits
from structattn.decoding.presets import BeamSearch, dusell_chiang_2024, fairseq, you_2020
from structattn.decoding.sampling import Sampling, sample
from structattn.decoding.scoring import TextScores, score_pairs, score_texts
from structattn.decoding.spelling import WholeWords, spellings, with_spellings
from structattn.decoding.stepper import DecoderState, Start, Stepper, continuation, padded, translation

__all__ = [
    "BeamSearch",
    "DecoderState",
    "Ensemble",
    "Gnmt",
    "Hypothesis",
    "LengthPower",
    "LengthRule",
    "PerToken",
    "Sampling",
    "Start",
    "Stepper",
    "TextScores",
    "Unnormalized",
    "WholeWords",
    "batches_by_length",
    "beam_search",
    "continuation",
    "dusell_chiang_2024",
    "fairseq",
    "greedy",
    "in_batches",
    "length_limits",
    "padded",
    "sample",
    "score_pairs",
    "score_texts",
    "spellings",
    "translation",
    "with_spellings",
    "you_2020",
]
