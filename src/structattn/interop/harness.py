"""A run as a model of lm-evaluation-harness (``pip install lm_eval``), under the name ``structattn``.

    python -m structattn.interop.harness run --model structattn --model_args run=runs/stack --tasks blimp

is the command ``lm_eval`` with this model; in Python, ``import structattn.interop.harness`` before
``lm_eval.simple_evaluate(model="structattn", model_args={"run": "runs/stack"}, ...)``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Final

import torch

from structattn.decoding import map_in_batches, pad_sequences
from structattn.loading.runs import load
from structattn.support.devices import device_of
from structattn.support.errors import DataError
from structattn.support.special_tokens import BOS, EOS, class_of
from structattn.tasks.language_modeling.evaluate import max_batch_tokens
from structattn.tasks.language_modeling.prompts import TextEncoder
from structattn.tasks.losses import to_float32
from structattn.text.lines import ids_of_lines, is_stream, warn_of_unknown_tokens

try:
    import lm_eval.models  # noqa: F401  # registers its own models, which it does later in an empty registry only
    from lm_eval.api.model import LM
    from lm_eval.api.registry import register_model
except ModuleNotFoundError as error:
    raise ImportError(f"structattn.interop.harness needs lm_eval ({error}); pip install lm_eval") from None

_REQUESTS: Final = Path("requests")  # in messages
_AUTOMATIC_BATCH_SIZE: Final = 64


@dataclass(frozen=True)
class _Row:
    """Tokens, of which those from ``first`` on are scored, given all before them."""

    ids: tuple[int, ...]
    first: int


@register_model("structattn")
class HarnessModel(LM):
    """A causal language model of text or of a formal language as lm-evaluation-harness asks it.

    A text follows ``<bos>``, or ``<eos>`` in a stream, whose lines end in ``<eos>``; the one after the text is not
    scored. So log-likelihoods are the sums of the tokens' scores of ``structattn score --tokens`` without ``<eos>``. A
    context is cut from the left where text and context have more tokens than the model has positions.

    Args:
        run: the run folder.
        checkpoint: as in ``structattn.load``.
        data: the prepared folder, if it is not where it was.
        device: as ``cpu`` or ``cuda``; None, or a GPU where there is none: what there is.
        batch_size: the number of texts that are computed at once, or ``auto``.
        **others: arguments of the command that do not matter here.

    Raises:
        UsageError: the run is of another kind.
    """

    def __init__(
        self,
        run: str,
        checkpoint: str | None = None,
        data: str | None = None,
        device: str | None = None,
        batch_size: int | str = "auto",
        **others: Any,
    ) -> None:
        super().__init__()
        absent = device is not None and device.startswith("cuda") and not torch.cuda.is_available()  # lm_eval's default
        self._run = load(run, checkpoint, "auto" if absent or device is None else device, data=data)
        self._encoder = TextEncoder(self._run)
        self._start = EOS if is_stream(self._run.settings) else BOS
        size = str(batch_size).partition(":")[0]
        self._batch_size = int(size) if size.isdigit() else _AUTOMATIC_BATCH_SIZE

    def loglikelihood(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[tuple[float, bool]]:
        """Return log p(continuation | context) in nats, and whether greedy search finds the continuation.

        Of the tokens of both together, as many as the context alone has count for the context.

        Raises:
            DataError: a text cannot be encoded, or a continuation is too long for the model, or leaves no token: it is
                empty, or one with the last of the context.
        """
        wholes = self._encode([context + continuation for context, continuation in _arguments(requests)])
        contexts = self._encode([context for context, _ in _arguments(requests)], warns=False)
        rows = [_Row((self._start, *whole), 1 + len(start)) for whole, start in zip(wholes, contexts, strict=True)]
        scores = self._scores([self._cut(row, number) for number, row in enumerate(rows, start=1)])
        for request, score in zip(requests, scores, strict=True):
            self.cache_hook.add_partial("loglikelihood", request.args, score)
        return scores

    def loglikelihood_rolling(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[float]:
        """Return log p of each text in nats; with fewer positions than tokens, of one window after another.

        Raises:
            DataError: a text cannot be encoded.
        """
        texts = self._encode([text for (text,) in _arguments(requests)])
        windows = [self._windows((self._start, *ids)) for ids in texts]
        scores = iter(self._scores([row for of_text in windows for row in of_text]))
        return [sum(next(scores)[0] for _ in of_text) for of_text in windows]

    def generate_until(self, requests: Sequence[Any], disable_tqdm: bool = False) -> list[str]:
        """Return the continuation of each context up to a string of ``until``, or to ``max_gen_toks`` (256) tokens.

        The likeliest token is taken at each step; with ``do_sample``, ``temperature``, ``top_k`` and ``top_p`` hold.

        Raises:
            DataError: a context cannot be encoded, or is too long for the model.
        """
        return [self._continuation(context, dict(options)) for context, options in _arguments(requests)]

    def _continuation(self, context: str, options: dict[str, Any]) -> str:
        until, length = options.get("until") or (), int(options.get("max_gen_toks", 256))
        stop = [each for each in ([until] if isinstance(until, str) else until) if each]
        sampling: dict[str, Any] = {"temperature": 0.0}
        if options.get("do_sample"):
            options["top_k"] = options.get("top_k") or None  # as in transformers, 0 stands for all tokens
            given = {name: options[name] for name in ("temperature", "top_k", "top_p") if options.get(name) is not None}
            sampling = {"temperature": 1.0, **given}
        lines = length if is_stream(self._run.settings) else 1
        ((found,),) = self._run.generate([context], stop=stop, max_length=length, lines=lines, **sampling)
        prompt = self._encoder.decode(self._encoder.encode(context, _REQUESTS, 1))
        return found.text[len(prompt) :]

    def _encode(self, texts: Sequence[str], warns: bool = True) -> list[list[int]]:
        """Return the ids of each text without the one before it; in a stream, it may have several lines."""
        tokenizer, settings = self._run.prepared.tokenizer, self._run.settings
        ids = []
        for number, text in enumerate(texts, start=1):
            first, *others = ids_of_lines(tokenizer, settings, text, _REQUESTS, number)
            ids.append([*first, *(token for line in others for token in (EOS, *line))])
        if warns:
            warn_of_unknown_tokens(tokenizer, texts, ids, _REQUESTS, count(1))
        return ids

    @property
    def _positions(self) -> int | None:
        return None if self._encoder.max_tokens is None else self._encoder.max_tokens + 1

    def _cut(self, row: _Row, number: int) -> _Row:
        """Drop the first tokens of a row that has more inputs than the model has positions."""
        if row.first >= len(row.ids):
            raise DataError(_REQUESTS, "the continuation has no token of its own; expected one", number)
        excess = 0 if self._positions is None else max(0, len(row.ids) - 1 - self._positions)
        if excess >= row.first:
            scored = len(row.ids) - row.first
            raise DataError(_REQUESTS, f"has {scored} tokens to score; the model has {self._positions}", number)
        return _Row(row.ids[excess:], row.first - excess)

    def _windows(self, ids: tuple[int, ...]) -> list[_Row]:
        """Return rows that score each token after the first id once, the last one with as many before it as fit."""
        size = self._positions or max(1, len(ids) - 1)
        ends = [*range(size + 1, len(ids), size), len(ids)]
        starts = [1, *ends[:-1]]
        return [
            _Row(ids[max(0, end - 1 - size) : end], start - max(0, end - 1 - size))
            for start, end in zip(starts, ends, strict=True)
        ]

    @torch.no_grad()
    def _scores(self, rows: list[_Row]) -> list[tuple[float, bool]]:
        """Return log p of the scored tokens of each row, and whether each is the likeliest one."""
        model: Callable[..., Any] = self._run.accelerated
        device = device_of(self._run.model)

        def score(batch: list[_Row]) -> list[tuple[float, bool]]:
            inputs, lengths = pad_sequences([row.ids[:-1] for row in batch], device)
            targets, _ = pad_sequences([row.ids[1:] for row in batch], device)
            log_p = to_float32(model(inputs, lengths=lengths)).double().log_softmax(-1)
            classes = class_of(targets).clamp(min=0)
            chosen, likeliest = log_p.gather(2, classes[..., None])[..., 0].cpu(), (log_p.argmax(2) == classes).cpu()
            places = [slice(row.first - 1, len(row.ids) - 1) for row in batch]
            return [
                (float(chosen[index, place].sum()), bool(likeliest[index, place].all()))
                for index, place in enumerate(places)
            ]

        max_tokens = max_batch_tokens(self._run.prepared.vocabulary.size)
        return map_in_batches(rows, [len(row.ids) for row in rows], max_tokens, score, self._batch_size)


def _arguments(requests: Sequence[Any]) -> list[tuple[Any, ...]]:
    return [request.args for request in requests]


if __name__ == "__main__":
    from lm_eval.__main__ import cli_evaluate

    cli_evaluate()
