"""Every kind of model, with every mechanism, positions and option, keeps the promises of ``model_promises.py``."""

import inspect
from types import NoneType
from typing import Annotated, Literal, get_args, get_origin

import pytest
from tests.contracts.model_cases import CASES, HUGGINGFACE_CASES
from tests.contracts.model_promises import PROMISES, promises_of

from structattn.models.builders.recognition import RecognizerSettings
from structattn.settings.base import OneOf, Settings, members_of
from structattn.settings.models import ModelSettings, OwnModelSettings

WITHOUT_INFLUENCE = {
    *("weight_init", "embedding_init", "pretrained"),  # on anything but initial weights
    *("straight_through", "noise"),  # on anything but training
    "bos",  # on anything but data
}

WITH_SHAPES = [
    *("transformer, superposition", "masked, hard", "looped, softmax, hard", "transformer, paper depth stack"),
    *("encoder_decoder, gaussian, delta_product", "encoder_decoder, rare c2w", "two_stream, relative"),
    *("two_stream_encoder_decoder, none", "lstm, joined nondeterministic", "rnn, stratified"),
]


def with_shapes(name, promise):
    return name in WITH_SHAPES and promise in ("steps", "beams", "explanations")


@pytest.mark.parametrize(
    ("name", "promise"),
    [
        pytest.param(*case.values, marks=pytest.mark.shapes) if with_shapes(*case.values) else case
        for case in promises_of(CASES)
    ],
)
def test_promises(name, promise):
    PROMISES[promise](CASES[name])


def settings_in(value):
    """All settings in settings."""
    if isinstance(value, Settings):
        yield value
        for name in type(value).model_fields:
            yield from settings_in(getattr(value, name))
    elif isinstance(value, tuple):
        for each in value:
            yield from settings_in(each)


def choices_of(annotation, metadata=()):
    """What a field can be: classes of settings, words, truth values, None, and "number" for all numbers."""
    if registered := [each.registered for each in metadata if isinstance(each, OneOf) and each.registered]:
        return set(registered[0]())
    if get_origin(annotation) is Annotated:
        return choices_of(annotation.__origin__, annotation.__metadata__)
    if get_origin(annotation) is Literal:
        return {each for value in get_args(annotation) for each in choices_in(value)}
    if annotation in (bool, NoneType):
        return {True, False} if annotation is bool else {None}
    if isinstance(annotation, type) and issubclass(annotation, Settings | int | float):
        return {annotation if issubclass(annotation, Settings) else "number"}
    return {each for argument in get_args(annotation) for each in choices_of(argument)}


def choices_in(value):
    """What the value of a field is."""
    if isinstance(value, tuple):
        return {each for item in value for each in choices_in(item)}
    if isinstance(value, Settings):
        return {type(value)}
    return {value if isinstance(value, bool | str | None) else "number"}


def owner_of(settings, name):
    """The class that has a field: each kind of model has its own, other classes have those of their bases in common."""
    if settings in get_args(OwnModelSettings):
        return settings
    return next(each for each in settings.__mro__ if name in inspect.get_annotations(each))


def test_every_kind_mechanism_and_option_has_a_case():
    found, wanted, cases = set(), set(), [*CASES.values(), *HUGGINGFACE_CASES.values()]
    for case in cases:
        for settings in settings_in(case.run.model):
            for name, field in type(settings).model_fields.items():
                place = owner_of(type(settings), name), name
                found |= {(*place, each) for each in choices_in(getattr(settings, name))}
                wanted |= {(*place, each) for each in choices_of(field.annotation, field.metadata)}
    missing = sorted(str(choice) for choice in wanted - found if choice[1] not in WITHOUT_INFLUENCE)
    assert missing == []
    assert {type(case.run.model) for case in cases} == {*members_of(ModelSettings)}
    recognizers = {type(case.run.model) for case in cases if case.task == "recognition"}
    assert recognizers == {*get_args(RecognizerSettings)}
