"""Fork training runs from a process that has imported torch, so that tests can start and kill many runs quickly.

Prints a line when ready. Reads one JSON object per line from standard input and answers each with one line:

    {"settings": {...}, "folder": "...", "log": "...", "die_at": 7, "start_at": 12.5}   ->  {"pid": 123}
    {"wait": 123}                                                                      ->  {"exit": 0}

``die_at`` kills the run at its n-th file operation in the folder; ``start_at`` is a monotonic time;
``limits`` extend a run; ``file_limit`` is the maximum file size in bytes; ``environment`` has further variables;
``poison`` is the number of the first forward pass of the model that returns NaN.
"""

import itertools
import json
import os
import resource
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed.fsdp  # here, because it takes a second

from structattn.models import LanguageModel
from structattn.settings.run import resolve_settings
from structattn.support.errors import StructattnError
from structattn.training.run_training import train

# What a training on a formal language imports; other topics and exports would import libraries that take seconds.
OF_TRAININGS = ("operators", "attention", "models", "fast", "text", "settings", "runs", "metrics", "training")
OF_TRAININGS += ("tasks.language_modeling", "tasks.formal_languages")
WATCHED = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.scandir", "os.listdir"}


def die_at(count: int, folder: str) -> None:
    seen = 0

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal seen
        if event in WATCHED and arguments and str(arguments[0]).startswith(folder):
            seen += 1
            if seen == count:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)


def poison(first: int) -> None:
    forward, calls = LanguageModel.forward, itertools.count(1)

    def poisoned(*arguments: object, **more: object) -> torch.Tensor:
        logits = forward(*arguments, **more)
        return logits * torch.nan if next(calls) >= first else logits

    LanguageModel.forward = poisoned


def run(request: dict) -> None:
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.environ.update(request.get("environment", {}))
    settings = resolve_settings(request["settings"])
    if request.get("die_at"):
        die_at(request["die_at"], request["folder"])
    if request.get("poison"):
        poison(request["poison"])
    time.sleep(max(0.0, request.get("start_at", 0.0) - time.monotonic()))
    hard_limit = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    resource.setrlimit(resource.RLIMIT_FSIZE, (request.get("file_limit", hard_limit), hard_limit))
    sys.dont_write_bytecode = True  # a module that the limit cuts off could not be imported
    try:
        limits = request.get("limits")
        summary = train(settings, Path(request["folder"]), request.get("resume", "auto"), limits=limits)
    except StructattnError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard_limit, hard_limit))
        os.write(1, f"{type(error).__name__} {error}\n".encode())  # a single write: runs share the log
        os._exit(error.exit_code)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard_limit, hard_limit))
    os.write(1, f"{summary}\n".encode())
    os._exit(0)


def answer(request: dict) -> dict[str, int]:
    if "wait" in request:
        return {"exit": os.waitstatus_to_exitcode(os.waitpid(request["wait"], 0)[1])}
    pid = os.fork()
    if pid == 0:
        try:
            run(request)
        finally:
            os._exit(99)
    return {"pid": pid}


def main() -> None:
    torch.set_num_threads(1)
    sys.path.append(str(Path(__file__).parents[1]))
    from preloading import import_everything

    import_everything(*(f"structattn.{name}" for name in OF_TRAININGS))
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
