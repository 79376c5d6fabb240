"""Run a sweep in a process that is killed at random moments, and started again until it completes; print the kills.

Usage: killed_sweep.py SWEEP.yaml FOLDER KILLS SECONDS, of which each process has at most so many.
"""

import itertools
import os
import random
import signal
import sys
import time
from pathlib import Path

import torch._dynamo  # noqa: F401 - once here: it takes the first optimizer of every forked process seconds

from structattn.settings.sweep import load_sweep
from structattn.sweeps.sweep import run_sweep
from structattn.sweeps.worker import run_job


class Engine:
    """Runs each job at once, in the process that will be killed."""

    max_jobs = 1

    def __init__(self):
        self._ended, self._numbers = [], itertools.count()

    def start(self, job):
        number = next(self._numbers)
        self._ended.append((number, run_job(job)))
        return number

    def wait(self, timeout):
        ended, self._ended = self._ended, []
        return ended

    def close(self):
        pass


def main(settings: str, folder: str, kills: str, seconds: str) -> None:
    sweep, generator, hits = load_sweep(Path(settings)), random.Random(1), 0
    while True:
        pid = os.fork()
        if pid == 0:
            run_sweep(sweep, Path(folder), Engine, lambda status: None)
            os._exit(0)
        if hits < int(kills):
            time.sleep(generator.uniform(0, float(seconds)))
            os.kill(pid, signal.SIGKILL)  # not waited for yet, so its id cannot have been reused
        status = os.waitpid(pid, 0)[1]
        if os.WIFEXITED(status):
            assert os.WEXITSTATUS(status) == 0
            break
        hits += 1
    sys.stdout.write(str(hits))


main(*sys.argv[1:])
