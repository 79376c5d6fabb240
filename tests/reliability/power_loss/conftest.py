"""A model of what a power loss leaves on disk, after a recording of a program's operations on a folder.

The model follows ALICE (Pillai et al. 2014) and CrashMonkey (Mohan et al. 2018) and assumes of the file system what
POSIX promises, not what ext4 does in its default mode:

- The data of a file are safe up to its last fsync. Of what was written later any blocks may be lost, the length may be
  any between, and lost blocks of a longer file are zeros.
- The entries of a folder are safe up to the last fsync of the folder. Of the later changes (creations, removals,
  renames) any subset survives; a rename within a folder is one change.
- A file that was flushed without its folder may have lost its name; a name may survive without the data.
"""

import itertools
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import structattn

SOURCE = str(Path(structattn.__file__).parent)
FILES = os.path.join("support", "files.py")  # noqa: PTH118 - a suffix of a path
BLOCK = 512
WATCHED = ("mkdir", "rename", "replace", "unlink", "remove", "rmdir")
NOT_MODELLED = ("link", "symlink", "truncate", "renames")


@dataclass(frozen=True)
class Write:
    """The content of a file changed."""

    node: int
    content: bytes


@dataclass(frozen=True)
class Entries:
    """One change of the entries of a folder: name -> node, or None if the name is gone."""

    folder: int
    names: Mapping[str, int | None]


@dataclass(frozen=True)
class Sync:
    """A file or folder was flushed; ``site`` is the chain of callers."""

    node: int
    site: str


@dataclass(frozen=True)
class Promise:
    """The program reported something as saved."""

    value: Any


Tree = dict[str, bytes | None]
"""Content of each file by path; None for a folder."""


@dataclass
class Disk:
    """What is safe on disk, and what is pending.

    Args:
        entries: the safe entries of each folder.
        contents: the safe content of each file.
        pending_entries: changes of each folder since its last fsync.
        pending_contents: the content of each file that was written since its last fsync.
    """

    entries: dict[int, dict[str, int]] = field(default_factory=lambda: {0: {}})
    contents: dict[int, bytes] = field(default_factory=dict)
    pending_entries: list[Entries] = field(default_factory=list)
    pending_contents: dict[int, bytes] = field(default_factory=dict)

    def apply(self, operation: Write | Entries | Sync | Promise, ignored: str = "") -> None:
        """Apply the next operation; a sync at the ignored site has no effect."""
        if isinstance(operation, Write):
            self.pending_contents[operation.node] = operation.content
        elif isinstance(operation, Entries):
            self.pending_entries.append(operation)
        elif isinstance(operation, Sync) and operation.site != ignored:
            self.flush(operation.node)

    def flush(self, node: int) -> None:
        """Make a file's content or a folder's entries safe."""
        if node in self.pending_contents:
            self.contents[node] = self.pending_contents.pop(node)
        for change in [change for change in self.pending_entries if change.folder == node]:
            change_entries(self.entries, change)
            self.pending_entries.remove(change)

    def tree(self, survives: Callable[[int], bool], content: Callable[[int, bytes, bytes], bytes]) -> Tree:
        """Return what is found after a power loss.

        Args:
            survives: whether the pending change of entries with this index survives.
            content: (node, safe content, written content) -> what is found in a file with pending content.
        """
        entries = {folder: dict(names) for folder, names in self.entries.items()}
        for index, change in enumerate(self.pending_entries):
            if survives(index):
                change_entries(entries, change)
        contents = {
            node: content(node, self.contents.get(node, b""), written)
            for node, written in self.pending_contents.items()
        }
        return dict(self._walk(0, "", entries, self.contents | contents))

    def _walk(
        self, folder: int, prefix: str, entries: dict[int, dict[str, int]], contents: dict[int, bytes]
    ) -> Iterator[tuple[str, bytes | None]]:
        for name, node in sorted(entries.get(folder, {}).items()):
            is_folder = node in FOLDERS
            yield prefix + name, None if is_folder else contents.get(node, b"")
            if is_folder:
                yield from self._walk(node, f"{prefix}{name}/", entries, contents)


FOLDERS: set[int] = {0}  # nodes that are folders; numbers of nodes are never used twice
NUMBERS = itertools.count(1)


def change_entries(entries: dict[int, dict[str, int]], change: Entries) -> None:
    names = entries.setdefault(change.folder, {})
    for name, node in change.names.items():
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node


def torn(generator: random.Random, safe: bytes, written: bytes) -> bytes:
    """Return a mixture of the blocks of both contents, of any length between; of the full length every other time."""
    shorter, longer = sorted((safe, written), key=len)
    shortest = len(shorter) if longer.startswith(shorter) else 0  # a file that was rewritten was empty for a moment
    length = generator.choice((len(longer), generator.randint(shortest, len(longer))))
    old, new = safe.ljust(length, b"\0"), written.ljust(length, b"\0")
    blocks = range(0, length, BLOCK)
    return b"".join(generator.choice((old, new))[block : block + BLOCK] for block in blocks)[:length]


def zeros(safe: bytes, written: bytes) -> bytes:
    """Return the safe content with the length of the written one."""
    return safe[: len(written)].ljust(len(written), b"\0")


def crash_trees(disk: Disk, generator: random.Random, draws: int) -> Iterator[Tree]:
    """Yield what a power loss may leave: systematic cases first, then random ones."""
    changes, dirty = range(len(disk.pending_entries)), list(disk.pending_contents)
    everything, nothing = (lambda index: True), (lambda index: False)
    old, new = (lambda node, safe, written: safe), (lambda node, safe, written: written)
    yield disk.tree(nothing, old)
    yield disk.tree(everything, old)
    yield disk.tree(everything, lambda node, safe, written: zeros(safe, written))
    yield disk.tree(everything, new)
    yield disk.tree(nothing, new)
    for lost in changes:
        yield disk.tree(lambda index, lost=lost: index != lost, new)
        yield disk.tree(lambda index, kept=lost: index == kept, new)
    for damaged in dirty:
        yield disk.tree(
            everything,
            lambda node, safe, written, damaged=damaged: torn(generator, safe, written) if node == damaged else written,
        )
    for _ in range(draws):
        kept = {index for index in changes if generator.random() < 0.5}
        yield disk.tree(kept.__contains__, lambda node, safe, written: torn(generator, safe, written))


@dataclass(frozen=True)
class State:
    """A state after a power loss: the tree, and what had been promised."""

    key: int
    tree: Tree
    promises: tuple[Any, ...]


@dataclass
class Recording:
    """Operations of a program on a folder."""

    root: Path
    base: Disk
    operations: list[Write | Entries | Sync | Promise] = field(default_factory=list)

    @property
    def sites(self) -> list[str]:
        """The call sites of all syncs, in the order of their first use."""
        return list(dict.fromkeys(each.site for each in self.operations if isinstance(each, Sync)))

    @property
    def num_syncs(self) -> int:
        """The number of syncs."""
        return sum(isinstance(each, Sync) for each in self.operations)

    def states(self, seed: int = 0, draws: int = 0, ignored: str = "") -> Iterator[State]:
        """Yield the distinct states after a power loss between any two operations.

        Args:
            seed: of the random states.
            draws: random states after each operation, beside the systematic ones.
            ignored: a call site whose syncs have no effect; only states that they would prevent are yielded.
        """
        generator, seen, promises = random.Random(seed), set(), []
        usual, disk = deepcopy(self.base), deepcopy(self.base)
        for operation in [Promise(None), *self.operations]:
            usual.apply(operation)
            disk.apply(operation, ignored)
            if isinstance(operation, Promise) and operation.value:
                promises.append(operation.value)
            if ignored and disk == usual:
                continue
            for tree in crash_trees(disk, generator, draws):
                key = hash((frozenset(tree.items()), len(promises)))  # bytes keep their hash
                if key not in seen:
                    seen.add(key)
                    yield State(key, tree, tuple(promises))

    def restore(self, tree: Tree) -> None:
        """Replace the recorded folder by a tree."""
        shutil.rmtree(self.root)
        self.root.mkdir()
        for name, content in tree.items():
            path = self.root / name
            if content is None:
                path.mkdir()
            else:
                path.write_bytes(content)


class Killed(BaseException):
    """Raised where a process is killed."""


Condition = Callable[[int, str], bool]
"""Of the number of a sync, from 0, and its call site."""


class Recorder:
    """Records what happens in a folder while it is installed.

    Before and after every call that changes names or flushes, the folder is compared with what it was. So writes are
    found whichever library makes them.
    """

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._nodes: dict[int, int] = {root.stat().st_ino: 0}
        self._entries: dict[int, dict[str, int]] = {0: {}}
        self._contents: dict[int, bytes] = {}
        self._root, self._device, self._num_syncs = root, root.stat().st_dev, 0
        self._kill_before: list[Condition] = []
        self._dead = False
        self.recording = Recording(root, Disk())
        self._observe()
        for operation in self.recording.operations:
            self.recording.base.apply(operation)
        for node in [*self._entries, *self._contents]:
            self.recording.base.flush(node)
        self.recording.operations.clear()
        for name in WATCHED:
            monkeypatch.setattr(os, name, self._watched(getattr(os, name)))
        for name in NOT_MODELLED:
            monkeypatch.setattr(os, name, None)
        monkeypatch.setattr(os, "fsync", self._record_sync)

    def kill_before(self, conditions: Sequence[Condition]) -> None:
        """Kill one process for each condition, before the first sync that fulfils it."""
        self._kill_before = list(conditions)

    def kill(self) -> None:
        """Kill the process: raise `Killed`, and again whenever its cleanup changes names or flushes."""
        self._observe()
        self._dead = True
        raise Killed

    @contextmanager
    def process(self) -> Iterator[None]:
        """A process of the program, which ends when it is killed."""
        try:
            yield
        except Killed:
            num_operations = len(self.recording.operations)
            self._observe()
            assert len(self.recording.operations) == num_operations, "a killed process has written"
            self._dead = False

    def promise(self, value: Any) -> None:
        """Record that the program has reported something as saved."""
        self._observe()
        self.recording.operations.append(Promise(value))

    def _watched(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            if self._dead:
                raise Killed
            self._observe()
            try:
                return function(*arguments, **options)
            finally:
                self._observe()

        return call

    def _record_sync(self, descriptor: int) -> None:
        if self._dead:
            raise Killed
        self._observe()
        status, site = os.fstat(descriptor), call_site()
        if status.st_dev != self._device or status.st_ino not in self._nodes:
            return
        if self._kill_before and self._kill_before[0](self._num_syncs, site):
            self._kill_before.pop(0)
            self.kill()
        self._num_syncs += 1
        self.recording.operations.append(Sync(self._nodes[status.st_ino], site))

    def _observe(self) -> None:
        seen: set[int] = set()
        self._compare(self._root, 0, seen)
        self._nodes = {inode: node for inode, node in self._nodes.items() if inode in seen or node == 0}

    def _compare(self, path: Path, folder: int, seen: set[int]) -> None:
        """Record the changes of a folder since the last call; the numbers of its inodes are added to ``seen``."""
        found = {}
        with os.scandir(path) as entries:
            listed = sorted(entries, key=lambda entry: entry.name)
        for entry in listed:
            assert not entry.is_symlink(), f"{entry.path}: links are not modelled"
            inode = entry.inode()
            seen.add(inode)
            if inode not in self._nodes:
                self._add(inode, entry.is_dir())
            found[entry.name] = self._nodes[inode]
        self._record_entries(folder, found)
        for entry in listed:
            node = self._nodes[entry.inode()]
            if node in FOLDERS:
                self._compare(Path(entry.path), node, seen)
            else:
                self._record_content(node, Path(entry.path).read_bytes())

    def _add(self, inode: int, is_folder: bool) -> None:
        self._nodes[inode] = node = next(NUMBERS)
        if is_folder:
            FOLDERS.add(node)
            self._entries[node] = {}
        else:
            self._contents[node] = b""

    def _record_entries(self, folder: int, found: dict[str, int]) -> None:
        before = self._entries[folder]
        old_names = {node: name for name, node in before.items()}
        gone = {name for name in before if name not in found}
        for name, node in found.items():
            if before.get(name) != node:
                source = old_names.get(node)
                renamed = {source: None} if source in gone else {}
                gone -= renamed.keys()
                self.recording.operations.append(Entries(folder, {**renamed, name: node}))
        for name in sorted(gone):
            self.recording.operations.append(Entries(folder, {name: None}))
        self._entries[folder] = found

    def _record_content(self, node: int, content: bytes) -> None:
        if self._contents[node] != content:
            self._contents[node] = content
            self.recording.operations.append(Write(node, content))


def call_site() -> str:
    """Return the functions of the package from which os.fsync was called, up to the second outside support/files."""
    frame, found, outside = sys._getframe(1), [], 0
    while frame is not None and outside < 2:
        path = frame.f_code.co_filename
        if path.startswith(SOURCE):
            in_files = path.endswith(FILES)
            outside += not in_files
            place = "" if in_files else f" in {os.path.relpath(path, SOURCE)}"
            found.append(f"{frame.f_code.co_name}:{frame.f_lineno}{place}")
        frame = frame.f_back
    return " < ".join(name for name, _ in itertools.groupby(found))


@pytest.fixture(scope="session")
def new_recorder() -> type[Recorder]:
    return Recorder
