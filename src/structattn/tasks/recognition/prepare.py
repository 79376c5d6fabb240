"""Preparation of recognition: strings with labels in splits, as FLaRe draws them or with well-shaped negatives."""

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np

from structattn.settings.choices import Protocol
from structattn.support.errors import DataError, UsageError, quoted
from structattn.support.progress import progress
from structattn.support.seeds import numpy_generator
from structattn.support.special_tokens import FIRST_SYMBOL
from structattn.tasks.formal_languages.language_files.language_file import DEFINITION, parse_language_file
from structattn.tasks.formal_languages.prepare import identity_of_draws
from structattn.tasks.loaded import require_counts
from structattn.tasks.recognition.adapted import AdaptedLanguage
from structattn.tasks.recognition.counts import Counts
from structattn.tasks.recognition.examples import Example, flare_examples
from structattn.tasks.recognition.hard import Split, hard_examples
from structattn.tasks.recognition.language import RecognitionLanguage, Shape
from structattn.tasks.recognition.registry import find_recognition_language, recognition_language
from structattn.tasks.recognition.rules import Neighbours, all_of
from structattn.text.folders.header import HEADER_NAME
from structattn.text.folders.prepared import PreparedFolder
from structattn.text.folders.writing import require_empty_folder, source_entry, write_prepared
from structattn.text.tokenization.vocabulary import Vocabulary

KIND: Final = "recognition"
HELD_OUT: Final = "test-held-out"
_EDIT_DISTANCE: Final = "test-edit-distance"
_WITH_EDIT_DISTANCE: Final = ("repeat-01", "dyck-2-3")
_NUM_EDIT_DISTANCE: Final = 50
_PROBES: Final = 40

Examples = dict[str, list[Example]]  # split -> its examples


@dataclass(frozen=True)
class RecognitionSizes:
    """Numbers and greatest lengths of strings; the defaults are those of FLaRe. The least length is 0.

    Args:
        valid: the number of strings of each of the two validation splits.
        test: the number of test strings; None: 5,010 in the protocol flare, 20 for each length in the protocol hard.
        max_length: the greatest length of ``train`` and ``valid``.
        max_length_long: the greatest length of ``valid-long``.
        max_length_test: the greatest length of ``test``; None: 500 in the protocol flare, 200 in the protocol hard.

    Raises:
        UsageError: a number is below 1, or a length is below the one before it.
    """

    train: int = 10_000
    valid: int = 1_000
    test: int | None = None
    max_length: int = 40
    max_length_long: int = 80
    max_length_test: int | None = None

    def __post_init__(self) -> None:
        require_counts(**{name: value for name, value in asdict(self).items() if value is not None})
        lengths = [self.max_length, self.max_length_long, self.max_length_test or self.max_length_long]
        if lengths != sorted(lengths):
            raise UsageError(
                f"max_length, max_length_long and max_length_test are {lengths}; expected them in increasing order "
                "(--max-length, --max-length-long, --max-length-test)"
            )

    def longest(self, protocol: Protocol) -> int:
        """Return the greatest length of ``test``."""
        default = max({"flare": 500, "hard": 200}[protocol], self.max_length_long)
        return default if self.max_length_test is None else self.max_length_test


def prepare_recognition(
    folder: Path,
    name: str,
    protocol: Protocol = "flare",
    *,
    seed: int = 1,
    test_seed: int = 0,
    sizes: RecognitionSizes = RecognitionSizes(),
) -> None:
    """Draw labelled strings of a language and write a prepared folder.

    ``flare`` draws them as FLaRe does: members and negatives with probability 1/2 each, of all lengths; its splits are
    not disjoint, but for ``test-held-out``, which has no string of the training and validation splits. ``hard`` draws
    as many members as negatives of each length, all negatives are well-shaped, and splits are disjoint.

    Args:
        folder: the prepared folder; must not exist, or be empty.
        name: a language of FLaRe or of this library, or the path of a file .cfg, .fsa or .regex, whose text the folder
            will hold.
        protocol: how strings are drawn.
        seed: the seed of the training and validation strings.
        test_seed: the seed of the test strings.
        sizes: the numbers and lengths of strings.

    Raises:
        UsageError: no language has that name, or it has no members or negatives of these lengths.
        DataError: the file defines no language; or the folder is not empty, or cannot be written; then nothing is left
            on disk.
    """
    folder = Path(folder)
    require_empty_folder(folder)
    language, file = find_recognition_language(name, protocol)
    sources = [] if file is None else [source_entry(Path(name), DEFINITION, folder)]
    draw = {"flare": _flare_splits, "hard": _hard_splits}[protocol]
    examples = draw(language, sizes, seed, test_seed)
    for split in ("train", "valid", "test"):
        if len({each.is_member for each in examples[split]}) < 2:
            raise UsageError(
                f"{language.name}: split {split!r} has no members or no negatives; expected a language with more "
                "strings of these lengths, or more of them"
            )
    write_prepared(
        folder,
        kind=KIND,
        vocabulary=Vocabulary.from_symbols(language.alphabet),
        tokenizer={"level": "character" if max(map(len, language.alphabet)) == 1 else "word"},
        splits={split: [np.array(each.string, int) + FIRST_SYMBOL for each in of] for split, of in examples.items()},
        sources=sources,
        edits={split: np.array([each.edits for each in of]) for split, of in examples.items()},
        extra={
            "language": language.name,
            "protocol": protocol,
            "seed": seed,
            "test_seed": test_seed,
            "max_lengths": {
                "train": sizes.max_length,
                "valid-long": sizes.max_length_long,
                "test": sizes.longest(protocol),
            },
            **({} if file is None else {DEFINITION: file.text}),
        },
    )


def _generator(language: RecognitionLanguage, seed: int, *names: str) -> np.random.Generator:
    """Return a generator for the name of a language, or for the grammar of a file, whatever the file is called."""
    own = language.name
    if isinstance(language, AdaptedLanguage):
        own, *_ = identity_of_draws(language.language)
    return numpy_generator(seed, KIND, own, *names)


def _flare_splits(language: RecognitionLanguage, sizes: RecognitionSizes, seed: int, test_seed: int) -> Examples:
    plan = {
        "train": (sizes.train, sizes.max_length, seed),
        "valid": (sizes.valid, sizes.max_length, seed),
        "valid-long": (sizes.valid, sizes.max_length_long, seed),
        "test": (5_010 if sizes.test is None else sizes.test, sizes.longest("flare"), test_seed),
    }
    examples: Examples = {}
    with progress("Drawing strings", len(plan), "splits") as advance:
        for split, (count, high, own) in plan.items():
            examples[split] = flare_examples(language, count, high, _generator(language, own, split))
            advance()
    seen = {each.string for split in ("train", "valid", "valid-long") for each in examples[split]}
    generator = _generator(language, test_seed, HELD_OUT)
    with suppress(UsageError):  # all members up to this length may be training strings, as in repeat-01
        examples[HELD_OUT] = flare_examples(language, sizes.valid, sizes.max_length, generator, seen)
    if language.name in _WITH_EDIT_DISTANCE:
        generator = _generator(language, test_seed, _EDIT_DISTANCE)
        drawn = flare_examples(language, 4 * _NUM_EDIT_DISTANCE, sizes.longest("flare"), generator)
        examples[_EDIT_DISTANCE] = [each for each in drawn if not each.is_member][:_NUM_EDIT_DISTANCE]
    return examples


def _hard_splits(language: RecognitionLanguage, sizes: RecognitionSizes, seed: int, test_seed: int) -> Examples:
    longest = sizes.longest("hard")
    valid = language.valid_lengths(0, longest)
    per_length = 20 if sizes.test is None else sizes.test
    plan = {
        "train": (_cycled(valid, sizes.max_length, sizes.train // 2), seed),
        "valid": (_cycled(valid, sizes.max_length, sizes.valid // 2), seed),
        "valid-long": (_cycled(valid, sizes.max_length_long, sizes.valid // 2), seed),
        "test": ([length for length in valid for _ in range(per_length // 2)], test_seed),
    }
    shares = (
        (sizes.max_length, {"train": 0.7, "valid": 0.1, "valid-long": 0.1, "test": 0.1}),
        (sizes.max_length_long, {"valid-long": 0.5, "test": 0.5}),
        (longest, {"test": 1.0}),
    )
    of_training, of_others = _rules_of_negatives(language, plan["train"][0], test_seed)
    examples: Examples = {}
    with progress("Drawing strings", len(plan), "splits") as advance:
        for split, (lengths, own) in plan.items():
            shape, generator = of_training if split == "train" else of_others, _generator(language, own, "hard", split)
            examples[split] = hard_examples(language, lengths, Split(split, shares), shape, generator)
            advance()
    return examples


def _rules_of_negatives(language: RecognitionLanguage, lengths: list[int], seed: int) -> tuple[Shape, Shape]:
    """Return what negatives of the training set satisfy, and those of the other splits.

    The former is the shape or, in a language without one, the rule of neighbours; the latter is each trivial rule. Left
    out are rules that decide the language, as counts decide parity. Negatives that counts tell apart stay in training:
    with them more seeds learned w#w^R (docs/guides/recognition.md).
    """
    generator = _generator(language, seed, "neighbours")
    members = language.sample_each(lengths, generator)
    everywhere = Split("train", ((max(lengths, default=0), {"train": 1.0}),))
    some = sorted(lengths)[:: max(1, len(lengths) // _PROBES)]
    shape = [] if language.has_shape is None else [language.has_shape]
    kept = [*shape]
    for rule in (Neighbours.of(members), Counts(members, len(language.alphabet))):
        if hard_examples(language, some, everywhere, all_of([*kept, rule]), generator):
            kept.append(rule)
    return all_of(shape or [rule for rule in kept if not isinstance(rule, Counts)]), all_of(kept)


def _cycled(valid: list[int], high: int, count: int) -> list[int]:
    """Return ``count`` lengths up to ``high``, each as often as the others."""
    chosen = [length for length in valid if length <= high]
    return [chosen[index % len(chosen)] for index in range(count)] if chosen else []


def language_of(prepared: PreparedFolder) -> RecognitionLanguage:
    """Return the language of a prepared folder, which need not be trusted.

    Raises:
        DataError: the folder holds data of another kind, or its header names no language.
        UsageError: no language has the name that the header states.
    """
    path, extra = prepared.path / HEADER_NAME, prepared.header.extra
    if prepared.kind != KIND:
        raise DataError(prepared.path, f"holds data of kind {prepared.kind!r}; recognition needs {KIND!r}")
    name, protocol, text = (extra.get(key) for key in ("language", "protocol", DEFINITION))
    if not isinstance(name, str) or protocol not in ("flare", "hard") or not isinstance(text, str | None):
        raise DataError(
            path, f"language, protocol and {DEFINITION} are {quoted(name)}, {quoted(protocol)}, {quoted(text)}"
        )
    if text is None:
        return recognition_language(name, protocol)
    return AdaptedLanguage(parse_language_file(name, text, Path(f"{path} ({name:.60})")).language)
