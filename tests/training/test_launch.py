"""Processes that are started together, and their places as torchrun's variables say."""

import os
import socket
from functools import partial

import pytest

from structattn.settings.training import TrainingSettings
from structattn.support.errors import SettingsError, StructattnError
from structattn.training.distributed import LostProcessError, World, world_of
from structattn.training.launch import run_processes

GROUP = {"RANK": "1", "WORLD_SIZE": "3", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


def test_place_in_the_group_of_torchrun():
    assert world_of(GROUP) == World(1, 3, 1)
    assert world_of({}) is None
    assert world_of({name: value for name, value in GROUP.items() if name != "MASTER_PORT"}) is None


@pytest.mark.parametrize(("name", "value"), [("RANK", "-1"), ("WORLD_SIZE", "two"), ("RANK", "3")])
def test_invalid_variables_are_refused(name, value):
    with pytest.raises(StructattnError, match=name):
        world_of(GROUP | {name: value})


def test_shares_are_equally_long():
    shares = [World(rank, 3).share("abcd") for rank in range(3)]
    assert shares == [(["a", "d"], False), (["b", "a"], True), (["c", "a"], True)]


def test_results_errors_and_deaths_of_processes():
    """The functions are those of installed modules, which new processes can import."""
    settings = TrainingSettings(devices=2)
    assert run_processes(partial(os.getenv, "RANK"), settings) == "0"
    with pytest.raises(StructattnError, match="RANK is '-1'"):
        run_processes(partial(world_of, GROUP | {"RANK": "-1"}), settings)
    with pytest.raises(LostProcessError, match=r"process 0 .* \(exit code 7\)"):
        run_processes(partial(os._exit, 7), settings)


def test_several_machines_need_their_variables(monkeypatch):
    for name in ("MASTER_ADDR", "MASTER_PORT", "NODE_RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(SettingsError, match=r"training.nodes: 2 machines need .* NODE_RANK"):
        run_processes(os.getpid, TrainingSettings(nodes=2))
    for name, value in {"MASTER_ADDR": "127.0.0.1", "NODE_RANK": "0"}.items():
        monkeypatch.setenv(name, value)
    for port in ("0", "65536"):
        monkeypatch.setenv("MASTER_PORT", port)
        with pytest.raises(SettingsError, match=rf"need .* a free port of .* has .* MASTER_PORT={port}, NODE_RANK=0"):
            run_processes(os.getpid, TrainingSettings(nodes=2))


def test_several_machines_need_a_free_port(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for name, value in {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0"}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SettingsError, match=rf"training.nodes: .* MASTER_PORT={port}: cannot listen at this port"):
            run_processes(os.getpid, TrainingSettings(nodes=2))
