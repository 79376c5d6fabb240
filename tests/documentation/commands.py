"""A process that runs the commands of a page, so that each need not import torch again.

    python commands.py SOCKET [SOURCES]

``SOURCES`` is the folder of the package, if it is not the installed one. The programs of ``PROGRAMS`` send their
arguments and standard streams to the socket, and exit with the code that comes back.
"""

import json
import os
import socket
import sys
from pathlib import Path

# Commands run as a reader's do, but for three things: trainings are of small models and end after two updates, sampled
# data are few, and figures are not rendered, which tests/report does.
SMALL = {
    "formal-language": ["--train", "50", "--valid", "9", "--test-per-length", "1"],
    "transduction": [
        *("--train-lengths", "1", "6", "--test-lengths", "7", "9", "--valid-per-length", "1", "--test-per-length", "1"),
    ],
    "recognition": [
        "--train",
        "60",
        "--valid",
        "40",
        "--test",
        "4",
        "--max-length",
        "9",
        "--max-length-long",
        "11",
        "--max-length-test",
        "13",
    ],
    "transformation": ["--train", "200", "--valid", "3", "--test", "3", "--gen", "3"],
}
SMALL_MODELS = {name: ["model.d_model=32", "model.d_ff=32"] for name in ("text", "translation", "hybrid_translation")}
PROGRAM = """#!{python} -SE
import json, os, socket, sys

with socket.socket(socket.AF_UNIX) as server:
    server.connect({address!r})
    request = json.dumps([{name!r}, os.getcwd(), *sys.argv[1:]]).encode()
    socket.send_fds(server, [request], [0, 1, 2])
    sys.exit(int(server.recv(16)))
"""


def made_smaller(arguments):
    """Return the arguments of a command at a size that takes a second."""
    if arguments[0] == "train" and "--resume" not in arguments:
        return [*arguments, "training.max_updates=2", *SMALL_MODELS.get(arguments[1], [])]
    if arguments[0] == "prepare" and arguments[1] in SMALL:
        return [*arguments, *SMALL[arguments[1]]]
    return arguments


def run(name, folder, arguments):
    """Run a command in this process; return its exit code."""
    os.chdir(folder)
    if name == "pytest":
        import pytest

        return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", *arguments]))
    from structattn.cli.main import main

    sys.argv = ["structattn", *made_smaller(arguments)]
    try:
        return main() or 0
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


def save_empty_figure(figure, target, **options):
    target.write('<svg width="1pt" height="1pt"></svg>' if options["format"] == "svg" else b"figure")


def serve(address):
    """Run one command after another, each in a fork."""
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(address)
        server.listen()
        while True:
            connection, _ = server.accept()
            with connection:
                request, streams, _, _ = socket.recv_fds(connection, 1 << 16, 3)
                name, folder, *arguments = json.loads(request)
                if (child := os.fork()) == 0:
                    for number, stream in enumerate(streams):
                        os.dup2(stream, number)
                    code = run(name, folder, arguments)
                    sys.stdout.flush()
                    sys.stderr.flush()
                    os._exit(code)
                for stream in streams:
                    os.close(stream)
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                connection.sendall(str(code).encode())


if __name__ == "__main__":
    if len(sys.argv) > 2:
        # An editable installation finds its own sources first, whatever the path says.
        sys.meta_path[:] = [finder for finder in sys.meta_path if "Redirecting" not in type(finder).__name__]
        sys.path.insert(0, sys.argv[2])
        import torch  # noqa: F401 - for the forks; the page changes modules of the package
    else:
        from matplotlib.figure import Figure

        sys.path.append(str(Path(__file__).parents[1]))
        from preloading import import_everything

        import_everything()
        Figure.savefig = save_empty_figure
    serve(sys.argv[1])
