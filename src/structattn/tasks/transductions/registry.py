"""Registry of all transductions."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from structattn.support.errors import UsageError
from structattn.tasks.transductions.context_free import CONTEXT_FREE
from structattn.tasks.transductions.context_sensitive import CONTEXT_SENSITIVE
from structattn.tasks.transductions.language_tasks import completion, recognition
from structattn.tasks.transductions.regular import REGULAR
from structattn.tasks.transductions.transduction import Transduction

TRANSDUCTIONS: Mapping[str, Transduction] = MappingProxyType(
    {task.name: task for task in (*CONTEXT_FREE, *REGULAR, *CONTEXT_SENSITIVE)}
)


def transduction(name: str) -> Transduction:
    """Return the transduction of that name.

    Args:
        name: a key of ``TRANSDUCTIONS``; or ``recognise:LANGUAGE:EDITS`` or ``complete:LANGUAGE``, a formal language
            as a transduction.

    Raises:
        UsageError: none has that name.
    """
    if name in TRANSDUCTIONS:
        return TRANSDUCTIONS[name]
    pose, *arguments = name.split(":")
    if pose == "recognise" and len(arguments) == 2 and re.fullmatch("[0-9]+", arguments[1]):
        return recognition(arguments[0], int(arguments[1]))
    if pose == "complete" and len(arguments) == 1:
        return completion(arguments[0])
    known = ", ".join([*TRANSDUCTIONS, "recognise:LANGUAGE:EDITS", "complete:LANGUAGE"])
    raise UsageError(f"transduction {name!r} is unknown; expected one of {known}")
