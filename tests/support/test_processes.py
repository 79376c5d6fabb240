"""Worker processes: results in order, whatever the number of processes, and whatever fails."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from itertools import count, islice
from pathlib import Path

import pytest

from structattn.support import processes
from structattn.support.errors import UsageError
from structattn.support.processes import WorkerPool, available_cores, worker_pool


def square(number):
    return number * number


def fail_at(limit, number):
    if number == limit:
        raise ValueError(f"number {number}")
    return number


def process_id(number):
    return os.getpid()


def die_in_a_worker(parent, number):
    if os.getpid() != parent and number == 5:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def broken(numbers, at):
    for number in range(numbers):
        if number == at:
            raise OSError("no more")
        yield number


@pytest.fixture(scope="module")
def pool():
    with worker_pool(2) as found:
        yield found


@pytest.mark.parametrize("length", [0, 1, 3, 4, 5, 30])
def test_results_are_in_order(pool, length):
    assert list(pool.map(square, range(length))) == [(number, number**2) for number in range(length)]


def test_items_are_read_as_they_are_needed(pool):
    assert list(islice(pool.map(square, count()), 9))[-1] == (8, 64)


def test_processes_compute_unless_there_are_few_items(pool):
    assert {found for _, found in pool.map(process_id, range(3))} == {os.getpid()}
    assert os.getpid() not in {found for _, found in pool.map(process_id, range(20))}


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(("limit", "length"), [(1, 3), (7, 20), (19, 20)])
def test_an_error_comes_after_the_results_before_it(workers, limit, length):
    with worker_pool(workers) as pool:
        results = pool.map(partial(fail_at, limit), range(length))
        assert [next(results)[1] for _ in range(limit)] == list(range(limit))
        with pytest.raises(ValueError, match=f"number {limit}"):
            next(results)


@pytest.mark.parametrize("at", [0, 2, 9])
def test_an_error_of_the_items_comes_after_all_results(pool, at):
    results = pool.map(square, broken(20, at))
    assert [next(results)[0] for _ in range(at)] == list(range(at))
    with pytest.raises(OSError, match="no more"):
        next(results)


def test_items_of_a_killed_worker_are_computed_here():
    with worker_pool(2) as pool:
        assert [found for _, found in pool.map(partial(die_in_a_worker, os.getpid()), range(20))] == list(range(20))


PARENT = """
import itertools, os, signal, time
from structattn.support.processes import worker_pool
with worker_pool(2) as pool:
    found = pool.map(time.sleep, itertools.repeat(0.1))  # a worker that is done before the next item serves that, too
    workers = set(pool._executor._processes) if next(found) else ()
    print(*workers, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_workers_end_with_a_killed_parent():
    killed = subprocess.run([sys.executable, "-c", PARENT], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL
    workers = [int(each) for each in killed.stdout.split()]
    assert len(workers) == 2
    began = time.monotonic()
    while any(map(is_alive, workers)):
        assert time.monotonic() - began < 30
        time.sleep(0.05)


ELSEWHERE = """
import os
from structattn.support.processes import worker_pool
with worker_pool(2) as pool:
    print(len(list(pool.map(os.getpgid, [0] * 8))), len(os.listdir(os.environ["TMPDIR"])))
"""


@pytest.mark.parametrize(("length", "entries"), [(60, 1), (73, 0), (200, 0)])
def test_processes_start_whatever_the_length_of_the_name_of_the_temporary_directory(length, entries):
    with tempfile.TemporaryDirectory(dir="/tmp") as parent:
        folder = Path(parent, "a" * (length - len(parent) - 1))
        folder.mkdir()
        environment = {**os.environ, "TMPDIR": str(folder)}
        found = subprocess.run([sys.executable, "-c", ELSEWHERE], env=environment, capture_output=True, check=False)
    assert (found.stdout.decode(), found.stderr.decode()) == (f"8 {entries}\n", "")


WORKER_WITH_WORKERS = """
from structattn.support.processes import worker_pool
def computes():
    with worker_pool(2) as pool:
        list(pool.map(abs, range(8)))
"""
WORKERS_IN_TURN = """
import time
from multiprocessing.util import get_temp_dir
from pathlib import Path
from structattn.support.processes import start_server
import worker
context = start_server()
for _ in range(2):
    process = context.Process(target=worker.computes)
    process.start()
    process.join()
    time.sleep(1)  # the server of the process ends after it
print(process.exitcode, Path(get_temp_dir()).is_dir())
"""


def test_a_worker_with_workers_of_its_own_leaves_the_folder_of_those_that_follow(tmp_path):
    (tmp_path / "worker.py").write_text(WORKER_WITH_WORKERS)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    found = subprocess.run(
        [sys.executable, "-c", WORKERS_IN_TURN], env=environment, capture_output=True, text=True, check=False
    )
    assert (found.stdout, found.stderr) == ("0 True\n", "")


def is_alive(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def test_ctrl_c_while_the_server_imports_modules_shows_no_traceback(tmp_path):
    (tmp_path / "slow.py").write_text("import pathlib, time\npathlib.Path('began').touch()\ntime.sleep(60)\n")
    script = (
        "import signal, sys\nfrom structattn.support.processes import start_server\n"
        "signal.signal(signal.SIGINT, lambda *_: None)\nstart_server('slow')\nsys.stdin.read()\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        start_new_session=True,
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while not (tmp_path / "began").exists():
        assert process.poll() is None
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    _, shown = process.communicate(timeout=60)
    assert shown == b""


def test_no_workers_are_refused():
    with pytest.raises(UsageError, match="workers is 0"):
        WorkerPool(0)


@pytest.mark.parametrize(
    ("lines", "files", "expected"),
    [
        ("0::/\n", {}, 8),
        ("0::/\n", {"cpu.max": "max 100000"}, 8),
        ("0::/jobs/one\n", {"cpu.max": "max 100000", "jobs/cpu.max": "250000 100000"}, 3),
        ("0::/jobs/one\n", {"jobs/one/cpu.max": "50000 100000", "jobs/cpu.max": "250000 100000"}, 1),
        ("0::/jobs\n", {"jobs/cpu.max": "9900000 100000"}, 8),
        ("4:memory:/\n3:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "200000", "cpu/cpu.cfs_period_us": "100000"}, 2),
        ("3:cpu,cpuacct:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 8),
    ],
)
def test_cores_are_those_of_the_affinity_and_of_the_cgroups(monkeypatch, tmp_path, lines, files, expected):
    (tmp_path / "own").write_text(lines)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(f"{text}\n")
    monkeypatch.setattr(processes, "_CGROUPS", tmp_path)
    monkeypatch.setattr(processes, "_OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: range(8), raising=False)
    assert available_cores() == expected
