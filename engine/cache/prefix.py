"""Prefix reuse by content: a tree of token blocks with their attention pages.

A node holds one page and the token ids it was computed for; ids are compared, never only hashed.
A node with fewer ids than a page holds is the tail of some message (a snapshot at a boundary). For
models with attention only a hit may end at any token; with recurrent layers only where a snapshot
holds their state (``requires_state``).
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hearth.engine.cache.disk import DiskTier
    from hearth.engine.cache.pages import PageArena, PageId

State = bytes  # what a recurrent model needs at a snapshot, opaque here


@dataclass(eq=False, slots=True)
class Node:
    """``ids`` and the page that holds their keys and values. ``states`` maps a number of tokens of
    this node to the recurrent state behind them."""

    parent: Node | None
    ids: tuple[int, ...]
    page: PageId
    key: bytes  # chain hash, names the file on disk
    used: int
    saved: bool = False
    states: dict[int, State] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)

    @property
    def is_full(self) -> bool:
        return len(self.ids) == PAGE_TOKENS


@dataclass(frozen=True, slots=True)
class Prefix:
    """A hit. ``pages`` are retained for the caller; the last one may be used in part only.

    num_tokens = reused_tokens (from memory) + restored_tokens (from disk).
    """

    num_tokens: int
    pages: tuple[PageId, ...]
    reused_tokens: int
    restored_tokens: int
    state: State | None = None


@dataclass(frozen=True, slots=True)
class SaveJob:
    """A page to be written by another thread; nobody changes it meanwhile."""

    disk: DiskTier
    parent_key: bytes
    ids: tuple[int, ...]
    page: PageId
    buffer: memoryview
    states: dict[int, State]

    def write(self) -> int:
        """Returns the bytes written."""
        return self.disk.save(self.parent_key, self.ids, self.buffer, self.states)


class PrefixCache:
    """Owns the tree and one reference to each node's page; engine thread only."""

    def __init__(
        self, arena: PageArena, *, disk: DiskTier | None = None, requires_state: bool = False
    ) -> None:
        self._arena = arena
        self._disk = disk
        self._requires_state = requires_state
        self._clock = itertools.count(1)
        self._roots: list[Node] = []

    # -------------------------------------------------------------------------------- looking up

    def lookup(self, ids: Sequence[int]) -> Prefix:
        """The longest known prefix of ``ids``, at most len(ids) - 1 tokens: the last one has to be
        computed for its logits."""
        limit = len(ids) - 1
        chain = self._match(ids, limit)
        in_memory = self._usable(chain, limit)
        if self._disk is not None:
            self._restore(chain, ids, limit)
        total = self._usable(chain, limit)
        pages = [node.page for node, _ in self._covering(chain, total.tokens)]
        for page in pages:
            self._arena.retain(page)
        reused = min(in_memory.tokens, total.tokens)
        return Prefix(total.tokens, tuple(pages), reused, total.tokens - reused, total.state)

    def _match(self, ids: Sequence[int], limit: int) -> list[tuple[Node, int]]:
        """Nodes along ``ids`` with how many of their tokens agree; only the last in part."""
        chain: list[tuple[Node, int]] = []
        siblings, start = self._roots, 0
        while start < limit:
            best = self._best(siblings, ids, start, limit)
            if best is None:
                break
            chain.append(best)
            node, agreed = best
            node.used = next(self._clock)
            if agreed < PAGE_TOKENS:
                break
            siblings, start = node.children, start + PAGE_TOKENS
        return chain

    @staticmethod
    def _best(
        siblings: Sequence[Node], ids: Sequence[int], start: int, limit: int
    ) -> tuple[Node, int] | None:
        best: tuple[Node, int] | None = None
        for node in siblings:
            agreed = _agreement(node.ids, ids, start, limit)
            if agreed and (best is None or agreed > best[1]):
                best = (node, agreed)
        return best

    def _usable(self, chain: Sequence[tuple[Node, int]], limit: int) -> _Usable:
        """Where a hit along ``chain`` may end."""
        if not self._requires_state:
            tokens = sum(agreed for _, agreed in chain)
            return _Usable(min(tokens, limit), None)
        result, start = _Usable(0, None), 0
        for node, agreed in chain:
            for count, state in node.states.items():
                if count <= agreed and start + count > result.tokens:
                    result = _Usable(start + count, state)
            start += agreed
        return result

    @staticmethod
    def _covering(chain: Sequence[tuple[Node, int]], tokens: int) -> Iterator[tuple[Node, int]]:
        for index, item in enumerate(chain):
            if index * PAGE_TOKENS < tokens:
                yield item

    # ----------------------------------------------------------------------------------- disk tier

    def _restore(self, chain: list[tuple[Node, int]], ids: Sequence[int], limit: int) -> None:
        """Continue ``chain`` with pages from disk, as far as there are files and free pages."""
        assert self._disk is not None, "called with a disk tier"
        partial = chain.pop() if chain and chain[-1][1] < PAGE_TOKENS else None
        while len(chain) * PAGE_TOKENS < limit:
            parent = chain[-1][0] if chain else None
            start = len(chain) * PAGE_TOKENS
            found = self._disk.find(parent.key if parent else b"", ids[start:])
            if found is None or (partial is not None and found.agreed <= partial[1]):
                break
            node = self._load(parent, found.ids, found.name)
            if node is None:
                break
            partial = None
            chain.append((node, found.agreed))
            if found.agreed < PAGE_TOKENS:
                return
        if partial is not None:
            chain.append(partial)

    def _load(self, parent: Node | None, ids: tuple[int, ...], name: str) -> Node | None:
        assert self._disk is not None, "called with a disk tier"
        page = self.allocate()
        if page is None:
            return None
        states = self._disk.load(name, ids, self._arena.buffer(page))
        if states is None:
            self._arena.release(page)
            return None
        key = self._disk.chain_key(parent.key if parent else b"", ids)
        node = Node(parent, ids, page, key, next(self._clock), saved=True, states=states)
        self._attach(node)
        return node

    def unsaved(self) -> list[SaveJob]:
        """What is not on disk yet, parents first; each job holds a reference to its page, which the
        caller releases when it is written."""
        if self._disk is None or not self._disk.is_on:
            return []
        jobs = []
        for node in self._walk():
            if node.saved:
                continue
            node.saved = True
            self._arena.retain(node.page)
            parent_key = node.parent.key if node.parent else b""
            buffer = self._arena.buffer(node.page)
            states = dict(node.states)
            jobs.append(SaveJob(self._disk, parent_key, node.ids, node.page, buffer, states))
        return jobs

    def _walk(self) -> Iterator[Node]:
        stack = list(self._roots)
        while stack:
            node = stack.pop(0)
            yield node
            stack += node.children

    # ----------------------------------------------------------------------------------- inserting

    def insert(
        self, ids: Sequence[int], pages: Sequence[PageId], state: State | None = None
    ) -> None:
        """Keep what was computed for ``ids``; pages[i] holds positions from 128 i on.

        Full pages are shared with the caller from now on (nobody writes a full page again); a tail
        page is copied, since its owner goes on writing. ``state`` is the recurrent state behind the
        last token."""
        siblings, parent = self._roots, None
        for start in range(0, len(ids), PAGE_TOKENS):
            block = tuple(ids[start : start + PAGE_TOKENS])
            last = start + PAGE_TOKENS >= len(ids)
            node = self._find(siblings, block)
            if node is None:
                node = self._add(parent, block, pages[start // PAGE_TOKENS])
                if node is None:
                    return
            node.used = next(self._clock)
            if last and state is not None and len(block) not in node.states:
                node.states[len(block)] = state
                node.saved = False
            siblings, parent = node.children, node

    def _find(self, siblings: Sequence[Node], block: tuple[int, ...]) -> Node | None:
        """A node that holds ``block`` or, without recurrent state, a longer tail of it."""
        for node in siblings:
            if node.ids == block:
                return node
            longer = not self._requires_state and node.ids[: len(block)] == block
            if longer and len(block) < PAGE_TOKENS:
                return node
        return None

    def _add(self, parent: Node | None, block: tuple[int, ...], page: PageId) -> Node | None:
        if len(block) == PAGE_TOKENS:
            self._arena.retain(page)
        else:
            copy = self.allocate()
            if copy is None:
                return None
            self._arena.copy(page, copy)
            page = copy
        key = self._disk.chain_key(parent.key if parent else b"", block) if self._disk else b""
        node = Node(parent, block, page, key, next(self._clock))
        self._attach(node)
        return node

    def _attach(self, node: Node) -> None:
        siblings = node.parent.children if node.parent else self._roots
        if not self._requires_state:
            self._absorb(siblings, node)
        siblings.append(node)

    def _absorb(self, siblings: list[Node], node: Node) -> None:
        """A shorter tail that ``node`` contains is of no more use."""
        for other in list(siblings):
            shorter = len(other.ids) < len(node.ids) and node.ids[: len(other.ids)] == other.ids
            if shorter and not other.children:
                siblings.remove(other)
                self._arena.release(other.page)

    # ------------------------------------------------------------------------------------ eviction

    def allocate(self) -> PageId | None:
        """A page, evicting the leaf that was used longest ago when all are taken."""
        page = self._arena.allocate()
        while page is None and self._evict():
            page = self._arena.allocate()
        return page

    def _evict(self) -> bool:
        """Drop one leaf whose page nobody else uses; False when there is none."""
        leaves = [n for n in self._walk() if not n.children and not self._arena.is_shared(n.page)]
        if not leaves:
            return False
        victim = min(leaves, key=lambda node: node.used)
        siblings = victim.parent.children if victim.parent else self._roots
        siblings.remove(victim)
        self._arena.release(victim.page)
        return True

    def pages(self) -> list[PageId]:
        """One entry per reference that the tree holds (for ``PageArena.check``)."""
        return [node.page for node in self._walk()]

    def clear(self) -> None:
        for page in self.pages():
            self._arena.release(page)
        self._roots.clear()


@dataclass(frozen=True, slots=True)
class _Usable:
    tokens: int
    state: State | None


def _agreement(block: Sequence[int], ids: Sequence[int], start: int, limit: int) -> int:
    """How many tokens of ``block`` equal ids[start:limit]."""
    room = min(len(block), limit - start)
    if tuple(ids[start : start + room]) == tuple(block[:room]):
        return room
    return next(i for i in range(room) if block[i] != ids[start + i])
