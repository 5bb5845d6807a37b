"""The disk tier: pages and snapshots as content-addressed files, written whole or not at all.

A file is named by the hash chain (model key, parent, token ids) and holds the ids themselves, which
are compared on every hit. It appears by rename after fsync, under a temporary name that no other
writer uses, so several processes may share the folder. Any doubt about a file means that it is
dropped and its tokens are computed again: never a wrong answer.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import logging
import os
import secrets
import time
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from hearth.engine.cache.disk_space import DEFAULT_CAPACITY_BYTES, FREE_FLOOR_BYTES, DiskSpace
from hearth.engine.cache.names import PAGE_SUFFIXES, FileNames, short_key
from hearth.engine.cache.page_file import (
    FORMAT_VERSION,
    PAGE_MAGIC,
    STATE_MAGIC,
    Label,
    PageLayout,
    read_all,
    read_ids,
    write,
)
from hearth.engine.cache.states import StatePayload
from hearth.engine.cache.tree import common_length
from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

STALE_S = 600.0  # a temporary file this old has no writer any more


@dataclass(frozen=True, slots=True)
class ModelKey:
    """Everything that changes the bits of a page. ``head_dim``: see ``PageLayout``."""

    weights: str  # the model's fingerprint
    arithmetic: str  # kernel backend and its numeric version
    cache_dtype: str
    page_floats: int
    num_layers: int
    rope: str
    drafter: str = ""
    head_dim: int | None = None
    state: str = ""  # the recurrent state's dtype

    def digest(self) -> bytes:
        lines = [f"{item.name}={getattr(self, item.name)}" for item in fields(self)]
        text = "\n".join([*lines, f"format={FORMAT_VERSION}"])
        return hashlib.blake2b(text.encode(), digest_size=32).digest()

    @property
    def layout(self) -> PageLayout:
        return PageLayout(self.num_layers, self.page_floats // self.num_layers, self.head_dim)


@dataclass(frozen=True, slots=True)
class Found:
    """A page file whose ids begin like the wanted ones."""

    name: str
    ids: tuple[int, ...]
    agreed: int


class DiskTier:
    """A folder of files for one model. ``save`` and ``save_state`` belong to one writing thread,
    everything else to the engine's. Stops writing, with one notice, when the disk fails; what is
    there can still be read, and requests go on without it.

    Attributes:
        is_on: whether it still writes.
        notice: why not, as a sentence for a person.
        num_rejected: files that were not what they should be.
    """

    def __init__(
        self,
        folder: Path,
        key: ModelKey,
        *,
        capacity_bytes: int = DEFAULT_CAPACITY_BYTES,
        free_floor_bytes: int = FREE_FLOOR_BYTES,
    ) -> None:
        self._key = key.digest()
        self._layout = key.layout
        self._folder = folder / self._key.hex()[:32]
        self._space = DiskSpace(folder, capacity_bytes, free_floor_bytes)
        self._names = FileNames(self._folder, self._key)
        self._left_out: set[bytes] = set()  # blocks without room: nothing leads to what follows
        self.is_on = True
        self.notice: str | None = None
        self.num_rejected = 0
        try:
            self._make_folder()
            _sweep(self._folder)
        except OSError as error:
            self._turn_off(error)

    def _make_folder(self) -> None:
        self._folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._folder.mkdir(exist_ok=True, mode=0o700)

    def _turn_off(self, error: OSError) -> None:
        self.is_on = False
        self.notice = (
            f"Chats cannot be kept ready on disk ({error.strerror or error}); they will be read "
            "again after a restart."
        )
        log.warning("disk tier stops writing: %s", error)

    def chain_key(self, parent: bytes, ids: Sequence[int]) -> bytes:
        """32 bytes that name ``ids`` behind ``parent`` (empty for the first block)."""
        return self._names.chain_key(parent, ids)

    # ------------------------------------------------------------------------------------- finding

    def has_page(self, parent: bytes, block: Sequence[int]) -> bool:
        return self._names.page(parent, block) in self._names.behind(parent)

    def snapshots(self, parent: bytes, block: Sequence[int]) -> list[int]:
        """After how many tokens of ``block`` there are snapshots, in rising order."""
        return self._names.snapshots(parent, block)

    def find(self, parent: bytes, block: Sequence[int], room: int) -> Found | None:
        """The page or tail behind ``parent`` that agrees with most of block[:room]."""
        names = self._names.behind(parent)
        if len(block) == PAGE_TOKENS:
            exact = self._names.page(parent, block)
            if exact in names:
                return Found(exact, tuple(block), room)
        best: Found | None = None
        for name in names:
            ids = self._read_ids(name, parent) if name.endswith(PAGE_SUFFIXES) else ()
            agreed = common_length(ids, block[:room])
            if agreed and (best is None or agreed > best.agreed):
                best = Found(name, ids, agreed)
        return best

    def _read_ids(self, name: str, parent: bytes) -> tuple[int, ...]:
        """The ids of a page file; empty when there is any doubt (the file is dropped)."""
        try:
            with (self._folder / name).open("rb") as file:
                ids = read_ids(file, self._key, parent)
        except OSError as error:
            self._pass_over(name, error)
            return ()
        if ids is None:
            self._reject(name)
            return ()
        return ids

    # ------------------------------------------------------------------------------------- reading

    def load(self, found: Found, parent: bytes, page: memoryview) -> bool:
        """Read a file straight into ``page``; False when it cannot be trusted (``page`` may then
        hold anything)."""
        label = Label(PAGE_MAGIC, self._key, parent, found.ids)
        path = self._folder / found.name
        try:
            with path.open("rb") as file:
                is_good = self._layout.read(file, label, page)
        except OSError as error:
            self._pass_over(found.name, error)
            return False
        if is_good:
            _mark_used(path)
        else:
            self._reject(found.name)
        return is_good

    def load_state(self, parent: bytes, ids: Sequence[int]) -> StatePayload | None:
        """The state behind ``ids``; None when there is none that can be trusted."""
        name = self._names.state(parent, ids)
        try:
            with (self._folder / name).open("rb") as file:
                data = read_all(file, Label(STATE_MAGIC, self._key, parent, tuple(ids)))
        except OSError as error:
            self._pass_over(name, error)
            return None
        state = None if data is None else StatePayload.from_bytes(data)
        if state is None:
            self._reject(name)
        else:
            _mark_used(self._folder / name)
        return state

    def _reject(self, name: str) -> None:
        self.num_rejected += 1
        self._names.pass_over(name)
        log.warning("cache file %s is damaged and was dropped", name)
        with contextlib.suppress(OSError):
            (self._folder / name).unlink(missing_ok=True)

    def _pass_over(self, name: str, error: OSError) -> None:
        """It cannot be read now, which does not make it damaged."""
        self._names.pass_over(name)
        log.warning("cache file %s could not be read: %s", name, error)

    # ------------------------------------------------------------------------------------- writing

    def save(self, parent: bytes, ids: Sequence[int], page: memoryview) -> int:
        """Write one page; returns the bytes written, 0 when the tier does not write any more."""
        label = Label(PAGE_MAGIC, self._key, parent, tuple(ids))
        payload = self._layout.filled(page, len(ids))
        return self._save(self._names.page(parent, ids), label, payload)

    def save_state(self, parent: bytes, ids: Sequence[int], state: StatePayload) -> int:
        """Write the state behind ``ids``; returns the bytes written."""
        label = Label(STATE_MAGIC, self._key, parent, tuple(ids))
        return self._save(self._names.state(parent, ids), label, [memoryview(state.to_bytes())])

    def _save(self, name: str, label: Label, payload: Sequence[memoryview]) -> int:
        if not self.is_on:
            return 0
        if label.parent in self._left_out:
            num_bytes = 0
        else:
            try:
                num_bytes = self._place(name, label, payload)
            except OSError as error:
                self._turn_off(error)
                return 0
        if num_bytes == 0:
            self._left_out.add(self._names.chain_key(label.parent, label.ids))
        return num_bytes

    def _place(self, name: str, label: Label, payload: Sequence[memoryview]) -> int:
        """Write a file if there may be room for it; returns its bytes."""
        num_bytes = label.file_bytes(sum(part.nbytes for part in payload))
        if not self._folder.exists():  # somebody deleted it
            self._make_folder()
        if not self._space.make_room(num_bytes, (self._folder.name, short_key(label.parent))):
            return 0
        self._write(name, label, payload)
        self._space.add(num_bytes)
        self._names.trust(name)
        return num_bytes

    def _write(self, name: str, label: Label, payload: Sequence[memoryview]) -> None:
        temporary = self._folder / f"{name}.{secrets.token_hex(4)}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                write(file, label, payload)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._folder / name)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        _sync_folder(self._folder)

    # ------------------------------------------------------------------------------------- people

    def usage_bytes(self) -> int:
        """Of all models."""
        return self._space.usage_bytes()

    def clear(self) -> None:
        """Delete every file of every model. Raises MachineError when some could not be."""
        self._space.clear()


def _mark_used(path: Path) -> None:
    """Least recently used goes first. Where that cannot be noted, reading goes on."""
    with contextlib.suppress(OSError):
        os.utime(path)


def _sweep(folder: Path) -> None:
    """Delete what killed writers left; a young file may belong to a living one."""
    for path in folder.glob("*.tmp"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE_S:
                path.unlink()


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; systems without folder descriptors (Windows) do it themselves."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # file systems that cannot sync a folder say so
            raise
    finally:
        os.close(descriptor)
