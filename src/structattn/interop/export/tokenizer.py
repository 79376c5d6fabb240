"""Tokenizers of runs as ``tokenizer.json`` of the library tokenizers, where that encodes every line alike.

Texts must not contain the names of special tokens: the library reads these as the tokens, wherever they are.
"""

import json
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Final

from structattn.interop.export.input_form import MASK_SYMBOL, input_form, max_length
from structattn.loading.trained_run import TrainedRun
from structattn.support.errors import UsageError, quoted
from structattn.support.files import create_folder_unflushed, write_unflushed
from structattn.support.imports import import_library
from structattn.support.special_tokens import EOS, FIRST_SYMBOL
from structattn.text.folders.text_tokenizer import TextTokenizer
from structattn.text.lines import Normalization
from structattn.text.tokenization.byte_pair_encoding import PRETOKENS, BytePairEncoding
from structattn.text.tokenization.pretrained_tokenizer import PretrainedTokenizer
from structattn.text.tokenization.subword_tokenizer import SubwordTokenizer
from structattn.text.tokenization.tokenizers import SymbolTokenizer
from structattn.text.tokenization.vocabulary import CONTROL_SYMBOLS, UNKNOWN_SYMBOL, Vocabulary

_SPACES: Final = r"[ \t]+"
_ANY_CHARACTER: Final = r"[\s\S]"
_IGNORED, _CASED = r"\p{Case_Ignorable}*", r"[^\P{Cased}\p{Case_Ignorable}]"
# Final_Sigma of the Unicode Standard, table 3-17. Not a look-behind: that would go back to the start at every sigma.
_FINAL_SIGMA: Final = rf"{_CASED}{_IGNORED}\KΣ(?!{_IGNORED}{_CASED})"


def make_tokenizer(
    text: TextTokenizer,
    before: Sequence[int],
    after: Sequence[int],
    examples: Sequence[Sequence[int]] = (),
    continued: bool = False,
    has_mask: bool = False,
) -> Any:
    """Return a ``tokenizers.Tokenizer`` with our ids.

    Args:
        text: the tokenizer of a run.
        before: ids put before each text, such as that of ``<bos>``.
        after: ids put after each text.
        examples: ids of lines of the data, on which both tokenizers are compared.
        continued: whether tokens are decoded that continue a text: words begin with a space, the first one, too.
        has_mask: whether the first id after the vocabulary is that of the mask.

    Raises:
        UsageError: the library cannot encode like this tokenizer, or is not installed; the message says why.
    """
    tokenizers = import_library("tokenizers", "mt", "exporting a tokenizer")
    found = _make(tokenizers, text.tokenizer, (MASK_SYMBOL,) * has_mask)
    if text.normalization is not None:
        found.normalizer = _with_normalization(tokenizers, text.normalization, found.normalizer)
    if not isinstance(text.tokenizer, PretrainedTokenizer):
        special = [tokenizers.AddedToken(symbol, special=True, normalized=False) for symbol in CONTROL_SYMBOLS]
        found.add_special_tokens(special)
    found.post_processor = _template(tokenizers, found, before, after)
    if continued:
        found.decoder = _continuation(tokenizers, text.tokenizer, found.decoder)
    _compare(found, text, examples)
    return found


def _continuation(tokenizers: Any, tokenizer: Any, decoder: Any) -> Any:
    """Return a decoder that leaves the space before the first word: pipelines decode what continues a text alone."""
    first = tokenizers.decoders.Replace(tokenizers.Regex("^"), " ")
    if isinstance(tokenizer, SymbolTokenizer) and tokenizer.level == "word":
        return first
    if isinstance(tokenizer, SubwordTokenizer) and isinstance(tokenizer.model, BytePairEncoding):
        decoders = {"end": tokenizers.decoders.Sequence([decoder, first]), "start": tokenizers.decoders.Fuse()}
        return decoders.get(tokenizer.model.marker, decoder)
    return decoder


def _template(tokenizers: Any, found: Any, before: Sequence[int], after: Sequence[int]) -> Any:
    first, last = ([found.id_to_token(index) for index in ids] for ids in (before, after))
    return tokenizers.processors.TemplateProcessing(
        single=[*first, "$A", *last],
        pair=[*first, "$A", *last, "$B:1", *(f"{token}:1" for token in last)],
        special_tokens=list(zip([*first, *last], [*before, *after], strict=True)),
    )


def _make(tokenizers: Any, tokenizer: Any, after: Sequence[str]) -> Any:
    if isinstance(tokenizer, PretrainedTokenizer):
        return tokenizers.Tokenizer.from_str(json.dumps(tokenizer.renumbered()))
    if isinstance(tokenizer, SymbolTokenizer) and not tokenizer.unknown_classes:
        return _of_symbols(tokenizers, tokenizer.level, tokenizer.vocabulary, after)
    if isinstance(tokenizer, SubwordTokenizer) and isinstance(tokenizer.model, BytePairEncoding):
        return _of_subwords(tokenizers, tokenizer.model, tokenizer.vocabulary)
    reason = "classes of unknown words" if isinstance(tokenizer, SymbolTokenizer) else "a SentencePiece model"
    raise UsageError(f"tokenizer: {reason} cannot be written as tokenizer.json")


def _of_symbols(tokenizers: Any, level: str, vocabulary: Vocabulary, after: Sequence[str]) -> Any:
    """The library needs an unknown symbol: where there is none, its id is one that no model takes."""
    if level == "byte":
        return _of_bytes(tokenizers, vocabulary)
    symbols = dict.fromkeys([*vocabulary.symbols, *after, UNKNOWN_SYMBOL])
    ids = {symbol: index for index, symbol in enumerate(symbols)}
    model = tokenizers.models.WordLevel(vocab=ids, unk_token=UNKNOWN_SYMBOL)
    found = tokenizers.Tokenizer(model)
    pattern, behavior = (_SPACES, "removed") if level == "word" else (_ANY_CHARACTER, "isolated")
    found.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(pattern), behavior)
    if level == "character":
        found.decoder = tokenizers.decoders.Fuse()
    return found


def _of_bytes(tokenizers: Any, vocabulary: Vocabulary) -> Any:
    """The library has names of its own for bytes; ids are ours."""
    to_name = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    names = [_name_of_byte(byte) for byte in range(256)]
    vocab = {symbol: index for index, symbol in enumerate(vocabulary.symbols[:FIRST_SYMBOL])}
    vocab |= {name: FIRST_SYMBOL + byte for byte, name in enumerate(names)}
    found = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=[]))
    found.pre_tokenizer, found.decoder = to_name, tokenizers.decoders.ByteLevel()
    return found


def _name_of_byte(byte: int) -> str:
    """Return the character that stands for a byte: itself if printable, else one after U+0100 (as in GPT-2)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    if byte in printable:
        return chr(byte)
    return chr(0x100 + [each for each in range(256) if each not in printable].index(byte))


def _of_subwords(tokenizers: Any, model: BytePairEncoding, vocabulary: Vocabulary) -> Any:
    if model.marker == "continuation":
        raise UsageError("tokenizer: BPE with the marker continuation cannot be written as tokenizer.json")
    merges = list(dict.fromkeys(model.merges))
    undone = [piece for piece in model.pieces if piece not in (model.kept or vocabulary.id_of)]
    if undone:
        raise UsageError(
            f"tokenizer: BPE with a vocabulary threshold cannot be written as tokenizer.json; the merge of "
            f"{undone[0]!r} is undone"
        )
    bpe = tokenizers.models.BPE(vocab=dict(vocabulary.id_of), merges=merges, unk_token=UNKNOWN_SYMBOL, fuse_unk=False)
    found, normalizers = tokenizers.Tokenizer(bpe), tokenizers.normalizers
    if model.marker == "end":
        found.normalizer = normalizers.Replace(tokenizers.Regex("(?<=[^ ])$"), " ")
    elif model.marker == "start":
        found.normalizer = normalizers.Prepend(" ")
    pretokens = tokenizers.Regex(PRETOKENS[model.marker].pattern)
    found.pre_tokenizer = tokenizers.pre_tokenizers.Split(pretokens, "removed", invert=True)
    found.decoder = tokenizers.decoders.Sequence([tokenizers.decoders.Fuse(), *_single_spaces(tokenizers, "decoders")])
    return found


def _with_normalization(tokenizers: Any, normalization: Normalization, then: Any) -> Any:
    normalizers = tokenizers.normalizers
    steps = [normalizers.NFKC()] if normalization.nfkc else []
    if normalization.lowercase:
        # The library lowers each character alone, but one depends on its place.
        final_sigma = normalizers.Replace(tokenizers.Regex(_FINAL_SIGMA), "ς")
        steps += [final_sigma, normalizers.Lowercase(), *([normalizers.NFKC()] if normalization.nfkc else [])]
    return normalizers.Sequence([*steps, *_single_spaces(tokenizers, "normalizers"), *([] if then is None else [then])])


def _single_spaces(tokenizers: Any, module: str) -> list[Any]:
    """Return the steps that leave single spaces between words, and none at the ends."""
    replace = getattr(tokenizers, module).Replace
    return [replace(tokenizers.Regex(_SPACES), " "), replace(tokenizers.Regex("^ | $"), "")]


def _compare(found: Any, text: TextTokenizer, examples: Sequence[Sequence[int]]) -> None:
    """Check that both tokenizers agree on lines of the data, and on their upper case where that is the same line.

    Raises:
        UsageError: they differ.
    """
    for ids in examples:
        if not set(text.unknown_ids).isdisjoint(ids):
            continue
        line = text.decode(ids)
        for spelling in _spellings(line, text.normalization):
            theirs = found.encode(spelling, add_special_tokens=False).ids
            decoded = line, f" {line}"  # what continues a text
            if theirs != text.encode(spelling) or found.decode(theirs) not in decoded:
                raise UsageError(f"tokenizer: tokenizer.json would not encode {quoted(spelling)} like the run does")


def _spellings(line: str, normalization: Normalization | None) -> list[str]:
    """Return a line, and its upper case where a run reads that as the same line."""
    upper = line.upper()
    is_lowered = normalization is not None and normalization.lowercase and normalization(upper) == line
    return [line, upper] if is_lowered else [line]


TARGET_TOKENIZER: Final = "target_tokenizer"
_NUM_EXAMPLES: Final = 1000


def write_tokenizers(run: TrainedRun, folder: Path, padding_side: str = "left") -> None:
    """Write the tokenizer of the inputs, and that of the target into a subfolder if it has its own vocabulary.

    ``padding_side``: where texts are padded that are to be continued; others are padded at the right.

    Raises:
        UsageError: a tokenizer cannot be expressed, or a library is not installed.
    """
    sides = run.prepared.parallel_sides
    _write_tokenizer(run, run.prepared.tokenizer if sides is None else sides.source, folder, padding_side)
    if sides is not None and not sides.joint:
        create_folder_unflushed(folder / TARGET_TOKENIZER)
        _write_tokenizer(run, sides.target, folder / TARGET_TOKENIZER, padding_side)


def _examples(run: TrainedRun, text: TextTokenizer) -> Sequence[Sequence[int]]:
    """Return the ids of lines of validation data, else of training data."""
    prepared = run.prepared
    split = next(iter(sorted(prepared.splits, key=lambda name: name != "valid")))
    is_source = prepared.parallel_sides is not None and text is prepared.sides.source
    sequences = prepared.pairs(split).source if is_source else prepared.split(split)
    return [sequences[index].tolist() for index in islice(range(len(sequences)), _NUM_EXAMPLES)]


def _write_tokenizer(run: TrainedRun, text: TextTokenizer, folder: Path, padding_side: str) -> None:
    form = input_form(run)
    continued = run.prepared.parallel_sides is None and not run.settings.task.startswith("masked")
    found = make_tokenizer(text, form.before, form.after, _examples(run, text), continued, form.has_mask)
    pad, bos, eos = [found.id_to_token(index) for index in range(len(CONTROL_SYMBOLS))]
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": pad,
        "bos_token": eos if form.before == (EOS,) else bos,  # what texts begin with
        "eos_token": eos,
        "clean_up_tokenization_spaces": False,
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": max_length(run),
        "padding_side": "right" if EOS in form.after else padding_side,
    }
    if form.has_mask:
        found.add_special_tokens([MASK_SYMBOL])  # its id is the next one
        if found.token_to_id(MASK_SYMBOL) != text.vocabulary.size:
            raise UsageError(f"tokenizer: {MASK_SYMBOL} is a token of the text; in tokenizer.json it is the mask")
        config["mask_token"] = MASK_SYMBOL
    write_unflushed(folder / "tokenizer.json", found.to_str())
    write_unflushed(folder / "tokenizer_config.json", json.dumps(config, indent=2) + "\n")
