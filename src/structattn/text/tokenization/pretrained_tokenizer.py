"""Tokenizers of Hugging Face models, applied by the library tokenizers.

Their special tokens get our ids 0 to 3, as far as they have them; their other tokens follow in the order of their ids,
under their own names. If one token has several roles, as ``<|endoftext|>`` of GPT-2, it is ``<eos>``.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final, SupportsInt

import numpy as np

from structattn.support.environment import silent_standard_error
from structattn.support.errors import DataError, UsageError
from structattn.support.files import write_unflushed
from structattn.support.imports import import_library
from structattn.support.json_files import load_json
from structattn.support.reading import content_of
from structattn.support.shapes import Int32
from structattn.support.special_tokens import EOS, FIRST_SYMBOL, UNK
from structattn.text.tokenization.encoding import EncodedLines
from structattn.text.tokenization.tokenizers import TextError, refuse_surrogates
from structattn.text.tokenization.vocabulary import CONTROL_SYMBOLS, MAX_FILE_BYTES, UNKNOWN_SYMBOL, Vocabulary

TOKENIZER_NAME: Final = "tokenizer.json"
_CONFIGURATIONS: Final = ("tokenizer_config.json", "special_tokens_map.json")
_SPECIAL: Final = (*CONTROL_SYMBOLS, UNKNOWN_SYMBOL)
_ROLES: Final = {
    "<unk>": ("unk_token",),
    "<pad>": ("pad_token",),
    "<bos>": ("bos_token", "cls_token"),
    "<eos>": ("eos_token", "sep_token"),
}
"""Our special symbols and what a configuration calls them; of several roles of one token the last counts."""


@dataclass(frozen=True)
class PretrainedTokenizer:
    """The tokenizer of a Hugging Face model; implements ``Tokenizer``.

    Args:
        content: the bytes of ``tokenizer.json``.
        special: the name of their token for each of our special symbols that they have.
        path: the file, for messages.

    Raises:
        DataError: the content is not a tokenizer, or its tokens cannot be symbols of a vocabulary.
        UsageError: the library is not installed.
    """

    content: bytes = field(repr=False)
    special: Mapping[str, str]
    path: Path = field(default=Path(TOKENIZER_NAME), compare=False)

    @cached_property
    def _tokenizer(self) -> Any:
        library = import_library("tokenizers", "mt", "a pretrained tokenizer")
        try:
            tokenizer = library.Tokenizer.from_str(self.content.decode())
        except Exception as error:  # the library raises its own, of no common class
            raise DataError(self.path, f"not a tokenizer: {error}") from None
        tokenizer.no_truncation()
        tokenizer.no_padding()
        return tokenizer

    @cached_property
    def _their_ids(self) -> tuple[int | None, ...]:
        """Their id of each of our ids."""
        theirs: dict[str, int] = self._tokenizer.get_vocab(with_added_tokens=True)
        for symbol, token in self.special.items():
            if token not in theirs:
                raise DataError(self.path, f"{symbol} is the token {token!r}, which it does not have")
        special = [theirs[self.special[symbol]] if symbol in self.special else None for symbol in _SPECIAL]
        return *special, *sorted(index for index in theirs.values() if index not in special)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """Our special symbols, ``<unk>`` included, then their other tokens."""
        names = (self._tokenizer.id_to_token(index) for index in self._their_ids[UNK + 1 :])
        try:
            return Vocabulary.from_symbols(names, unknown=True)
        except ValueError as error:
            raise DataError(self.path, f"its tokens cannot be a vocabulary: {error}") from None

    @cached_property
    def _our_ids(self) -> Int32[np.ndarray, " theirs"]:
        """Our id of each of their ids; later roles of a token overwrite earlier ones."""
        ours = np.full(max(index for index in self._their_ids if index is not None) + 1, UNK, np.int32)
        order = [UNK, *range(UNK), *range(UNK + 1, len(self._their_ids))]
        for index in order:
            if (theirs := self._their_ids[index]) is not None:
                ours[theirs] = index
        return ours

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of everything that determines how a line is encoded."""
        content = hashlib.sha256(self.content).hexdigest()
        return hashlib.sha256(json.dumps([content, dict(sorted(self.special.items()))]).encode()).hexdigest()

    def encode(self, line: str) -> list[int]:
        """Return the ids of a line, without special tokens before and after it.

        Raises:
            TextError: the line contains the name of a special token other than the unknown one, or the library cannot
                encode it.
        """
        refuse_surrogates(line)
        encoding = self._call(self._tokenizer.encode, line)
        ids: list[int] = self._our_ids[encoding.ids].tolist()
        for token, (start, end) in zip(ids, encoding.offsets, strict=True):
            if token < FIRST_SYMBOL:
                column = len(line[:start].encode()) + 1
                raise TextError(
                    f"{line[start:end]!r} is a special token of the tokenizer; spell it differently", column
                )
        return ids

    def encode_lines(self, lines: Sequence[str]) -> EncodedLines | None:
        """Return the ids of many lines at once, computed in the library's threads; None if ``encode`` refuses one."""
        try:
            encoded = [each.ids for each in self._call(self._tokenizer.encode_batch_fast, lines)]
        except TextError:
            return None
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        tokens = self._our_ids[np.fromiter((index for ids in encoded for index in ids), np.int64, int(lengths.sum()))]
        return None if bool((tokens < FIRST_SYMBOL).any()) else EncodedLines(tokens, lengths)

    def _call(self, encode: Callable[..., Any], text: str | Sequence[str]) -> Any:
        """Encode by the library, whose errors have no common class, and some are panics of Rust."""
        try:
            with silent_standard_error() if b'"Regex"' in self.content else nullcontext():
                return encode(text, add_special_tokens=False)
        except BaseException as error:
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            if "Missing [UNK]" in str(error):
                reason = f"has a word that {self.path} does not know, which has no unknown token"
            else:
                reason = f"the tokenizer {self.path} cannot encode it: {error}"
            raise TextError(reason, 1) from None

    def decode(self, ids: Iterable[SupportsInt]) -> str:
        """Decode ids to a line, without special tokens; a line feed is replaced, as the result must be one line.

        Raises:
            ValueError: an id is outside the vocabulary.
        """
        tokens = [int(token) for token in ids]
        self.vocabulary.symbols_of(tokens)  # checks them
        theirs = [self._their_ids[token] for token in tokens if token > EOS]
        text: str = self._tokenizer.decode([index for index in theirs if index is not None], skip_special_tokens=False)
        return text.replace("\n", "\N{REPLACEMENT CHARACTER}")

    def renumbered(self) -> dict[str, Any]:
        """Return the content of ``tokenizer.json`` with our ids; special symbols that they lack are added.

        Raises:
            UsageError: the vocabulary of their model is not a mapping to ids.
        """
        tree = json.loads(self.content)
        theirs = tree["model"].get("vocab")
        if not isinstance(theirs, dict):
            raise UsageError(f"{TOKENIZER_NAME}: the ids of a model of type {tree['model'].get('type')} are fixed")
        ids = {token: int(self._our_ids[index]) for token, index in theirs.items()}
        added = [{**each, "id": int(self._our_ids[each["id"]])} for each in tree.get("added_tokens", [])]
        ids |= {each["content"]: each["id"] for each in added}
        missing = {index: symbol for index, symbol in enumerate(_SPECIAL) if index not in ids.values()}
        added += [_added_token(symbol, index) for index, symbol in missing.items()]
        tree["model"]["vocab"] = ids | {symbol: index for index, symbol in missing.items()}
        return {**tree, "added_tokens": sorted(added, key=lambda each: each["id"]), "truncation": None, "padding": None}

    def save(self, folder: Path, prefix: str) -> None:
        """Write ``tokenizer.json`` to a prepared folder, which flushes it."""
        write_unflushed(folder / (prefix + TOKENIZER_NAME), self.content)


def read_pretrained_tokenizer(folder: Path) -> PretrainedTokenizer:
    """Read a local folder of Hugging Face: ``tokenizer.json``, and its special tokens from the configuration beside it.

    Raises:
        DataError: a file is missing or damaged.
    """
    path = folder / TOKENIZER_NAME
    special: dict[str, str] = {}
    for name in _CONFIGURATIONS:
        configuration = load_json(folder / name) if (folder / name).exists() else {}
        if not isinstance(configuration, dict):
            raise DataError(folder / name, "expected a JSON object")
        for symbol, roles in _ROLES.items():
            tokens = [token for role in roles if (token := _name(configuration.get(role)))]
            special |= {symbol: tokens[0]} if tokens else {}
    tokenizer = load_json(path)
    model = tokenizer.get("model") if isinstance(tokenizer, dict) else None
    if isinstance(model, dict) and isinstance(model.get("vocab"), dict) and model.get("unk_token") in model["vocab"]:
        special.setdefault(UNKNOWN_SYMBOL, model["unk_token"])  # of a tokenizer without a configuration
    return load_pretrained_tokenizer(path, special)


def load_pretrained_tokenizer(path: Path, special: Mapping[str, str]) -> PretrainedTokenizer:
    """Read ``tokenizer.json``; loading it runs no code.

    Raises:
        DataError: the file cannot be read, or is not a tokenizer.
    """
    tokenizer = PretrainedTokenizer(content_of(path, MAX_FILE_BYTES), special, path)
    tokenizer.vocabulary  # noqa: B018  # checks the content
    return tokenizer


def _added_token(symbol: str, index: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": symbol, **flags, "special": index <= EOS}


def _name(token: Any) -> str | None:
    """Return the name of a special token, which files give alone or as the content of an object."""
    name = token.get("content") if isinstance(token, dict) else token
    return name if isinstance(name, str) else None
