"""Prefix reuse by content: what was computed for a beginning is found again, in memory or on disk.

For models with attention only a hit may end at any token; with recurrent layers only where a
snapshot holds their state (``requires_state``).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.cache.restore import Restorer
from hearth.engine.cache.states import Snapshot
from hearth.engine.cache.tree import Node, PrefixTree
from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hearth.engine.cache.disk import DiskTier
    from hearth.engine.cache.pages import PageArena, PageId
    from hearth.engine.cache.states import StatePayload
    from hearth.engine.cache.tree import Hit


DEFAULT_SNAPSHOT_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Prefix:
    """A hit. ``pages`` are retained for the caller; the last one may be used in part only, and
    whoever goes on writing in it copies it first.

    num_tokens = reused_tokens (from memory) + restored_tokens (from disk).
    """

    num_tokens: int
    pages: tuple[PageId, ...]
    reused_tokens: int
    restored_tokens: int
    state: StatePayload | None = None


@dataclass(frozen=True, slots=True)
class SaveJob:
    """What is to be written by another thread; nobody changes it meanwhile. ``buffer`` is None when
    only snapshots are new."""

    disk: DiskTier
    parent_key: bytes
    ids: tuple[int, ...]
    page: PageId
    buffer: memoryview | None
    states: dict[int, StatePayload]

    def write(self) -> int:
        """Returns the bytes written."""
        num_bytes = 0
        if self.buffer is not None:
            num_bytes += self.disk.save(self.parent_key, self.ids, self.buffer)
        for count, state in self.states.items():
            num_bytes += self.disk.save_state(self.parent_key, self.ids[:count], state)
        return num_bytes


class PrefixCache:
    """Owns the tree and one reference to each node's page; engine thread only."""

    def __init__(
        self,
        arena: PageArena,
        *,
        disk: DiskTier | None = None,
        requires_state: bool = False,
        snapshot_bytes: int = DEFAULT_SNAPSHOT_BYTES,
    ) -> None:
        self._arena = arena
        self._snapshot_bytes = snapshot_bytes
        self._disk = disk
        self._tree = PrefixTree(arena, requires_state=requires_state)
        self._clock = itertools.count(1)
        self._restorer = None
        if disk is not None:
            self._restorer = Restorer(
                self._tree, arena, disk, self._allocate, requires_state=requires_state
            )

    # -------------------------------------------------------------------------------- looking up

    def lookup(self, ids: Sequence[int]) -> Prefix:
        """The longest known prefix of ``ids``, at most len(ids) - 1 tokens: the last one has to be
        computed for its logits."""
        limit = max(len(ids) - 1, 0)
        stamp = next(self._clock)
        hit = self._tree.best(ids, limit)
        _touch(hit, stamp)
        restored: set[Node] = set()
        if self._restorer is not None and hit.tokens < limit:
            restored = self._restorer.restore(ids, limit, hit, stamp)
            hit = self._tree.best(ids, limit)
            _touch(hit, stamp)
        for node in hit.nodes:
            self._arena.retain(node.page)
        num_restored = _tokens_in(hit, restored)
        pages = tuple(node.page for node in hit.nodes)
        return Prefix(hit.tokens, pages, hit.tokens - num_restored, num_restored, hit.state)

    def give_back(self, prefix: Prefix) -> None:
        """Release a hit that is not used after all."""
        for page in prefix.pages:
            self._arena.release(page)

    # ----------------------------------------------------------------------------------- inserting

    def insert(
        self, ids: Sequence[int], pages: Sequence[PageId], state: StatePayload | None = None
    ) -> None:
        """Keep what was computed for ``ids``; pages[i] holds positions from 128 i on.

        Full pages are shared with the caller from now on (nobody writes a full page again); a tail
        page is copied, since its owner goes on writing. ``state`` is the recurrent state behind the
        last token. When memory is short, the beginning is kept as far as there are pages."""
        assert len(pages) * PAGE_TOKENS >= len(ids), "every token has its page"
        stamp = next(self._clock)
        node: Node | None = None
        for start in range(0, len(ids), PAGE_TOKENS):
            block = tuple(ids[start : start + PAGE_TOKENS])
            known = self._tree.find(node, block)
            node = known or self._add(node, block, pages[start // PAGE_TOKENS], stamp)
            if node is None:
                return
            node.used = stamp
        count = (len(ids) - 1) % PAGE_TOKENS + 1
        if node is not None and state is not None and count not in node.states:
            node.states[count] = Snapshot(state)
            self._tree.trim_snapshots(self._snapshot_bytes)

    def _add(
        self, parent: Node | None, block: tuple[int, ...], page: PageId, stamp: int
    ) -> Node | None:
        if len(block) == PAGE_TOKENS:
            self._arena.retain(page)
        else:
            copy = self._allocate(stamp)
            if copy is None:
                return None
            self._arena.copy(page, copy)
            page = copy
        key = self._disk.chain_key(parent.key if parent else b"", block) if self._disk else b""
        node = Node(parent, block, page, key, stamp)
        self._tree.add(node)
        return node

    # -------------------------------------------------------------------------------------- saving

    def unsaved(self) -> list[SaveJob]:
        """What is not on disk yet, parents first; each job holds a reference to its page, which the
        caller releases when it is written."""
        if self._disk is None or not self._disk.is_on:
            return []
        jobs = (self._job(self._disk, node) for node in self._tree.walk())
        return [job for job in jobs if job is not None]

    def _job(self, disk: DiskTier, node: Node) -> SaveJob | None:
        new = {count: item for count, item in node.states.items() if not item.saved}
        if node.saved and not new:
            return None
        self._arena.retain(node.page)
        buffer = None if node.saved else self._arena.buffer(node.page)
        node.saved = True
        for item in new.values():
            item.saved = True
        parent_key = node.parent.key if node.parent else b""
        states = {count: item.state for count, item in new.items()}
        return SaveJob(disk, parent_key, node.ids, node.page, buffer, states)

    # -------------------------------------------------------------------------------------- memory

    @property
    def notice(self) -> str | None:
        """One sentence when the disk tier has stopped writing."""
        return self._disk.notice if self._disk is not None else None

    def allocate(self) -> PageId | None:
        """A page with one reference, evicting what was used longest ago when all are taken."""
        return self._allocate(None)

    def _allocate(self, spare: int | None) -> PageId | None:
        page = self._arena.allocate()
        while page is None and self._tree.evict(spare=spare):
            page = self._arena.allocate()
        return page

    def pages(self) -> list[PageId]:
        """One entry per reference that the tree holds (for ``PageArena.check``)."""
        return [node.page for node in self._tree.walk()]

    def clear(self) -> None:
        self._tree.clear()


def _touch(hit: Hit, stamp: int) -> None:
    for node in hit.nodes:
        node.used = stamp


def _tokens_in(hit: Hit, nodes: Iterable[Node]) -> int:
    """How many tokens of a hit lie in ``nodes``."""
    chosen = set(nodes)
    return sum(
        min(hit.tokens - index * PAGE_TOKENS, PAGE_TOKENS)
        for index, node in enumerate(hit.nodes)
        if node in chosen
    )
