"""Continues what the prefix tree knows with pages and snapshots from disk.

Everything restored becomes part of the tree, so the hit is then simply looked up again. A damaged
file is dropped by the disk tier, and the next best takes its place.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.cache.states import Snapshot
from hearth.engine.cache.tree import Node, common_length
from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hearth.engine.cache.disk import DiskTier
    from hearth.engine.cache.pages import PageArena, PageId
    from hearth.engine.cache.tree import Hit, PrefixTree


@dataclass(frozen=True, slots=True)
class _Wish:
    """One lookup: ``ids`` up to ``limit``; pages used at ``stamp`` are not evicted for it."""

    ids: Sequence[int]
    limit: int
    stamp: int

    def block(self, index: int) -> tuple[int, ...]:
        """The whole block, also behind the limit: it names the file."""
        return tuple(self.ids[index * PAGE_TOKENS : (index + 1) * PAGE_TOKENS])

    def room(self, index: int) -> int:
        """Tokens of the block that may be used."""
        return min(self.limit - index * PAGE_TOKENS, PAGE_TOKENS)


class Restorer:
    """Adds nodes to the tree; engine thread only."""

    def __init__(
        self,
        tree: PrefixTree,
        arena: PageArena,
        disk: DiskTier,
        allocate: Callable[[int], PageId | None],
        *,
        requires_state: bool,
    ) -> None:
        self._tree = tree
        self._arena = arena
        self._disk = disk
        self._allocate = allocate
        self._requires_state = requires_state

    def restore(self, ids: Sequence[int], limit: int, hit: Hit, stamp: int) -> set[Node]:
        """Nodes that were read from disk because they lead further than ``hit``."""
        wish = _Wish(ids, limit, stamp)
        loaded: set[Node] = set()
        if self._requires_state:
            self._restore_snapshot(wish, hit.tokens, loaded)
        else:
            self._restore_pages(wish, hit, loaded)
        return loaded

    # -------------------------------------------------------------------------- attention only

    def _restore_pages(self, wish: _Wish, hit: Hit, loaded: set[Node]) -> None:
        """Page by page, as far as there are files and memory."""
        index, floor = divmod(hit.tokens, PAGE_TOKENS)
        parent = hit.full_nodes[-1] if index else None
        while index * PAGE_TOKENS < wish.limit:
            node = self._load_best(parent, wish, index, floor)
            if node is None:
                return
            loaded.add(node)
            if common_length(node.ids, wish.block(index)[: wish.room(index)]) < PAGE_TOKENS:
                return
            parent, index, floor = node, index + 1, 0

    def _load_best(self, parent: Node | None, wish: _Wish, index: int, floor: int) -> Node | None:
        """The file that agrees with more than ``floor`` tokens of a block, as a node."""
        parent_key = parent.key if parent else b""
        while True:
            found = self._disk.find(parent_key, wish.block(index), wish.room(index))
            if found is None or found.agreed <= floor:
                return None
            page = self._allocate(wish.stamp)
            if page is None:
                return None
            if self._disk.load(found, parent_key, self._arena.buffer(page)):
                key = self._disk.chain_key(parent_key, found.ids)
                node = Node(parent, found.ids, page, key, wish.stamp, saved=True)
                self._tree.add(node)
                return node
            self._arena.release(page)  # the file is dropped; look for the next best

    # -------------------------------------------------------------------------- with snapshots

    def _restore_snapshot(self, wish: _Wish, known_tokens: int, loaded: set[Node]) -> None:
        """The deepest snapshot on disk whose pages are all there; each one that fails costs its
        distance to the next, never everything."""
        for index, count in reversed(self._stored_snapshots(wish)):
            if index * PAGE_TOKENS + count <= known_tokens:
                return
            if self._bring(wish, index, count, loaded):
                return

    def _stored_snapshots(self, wish: _Wish) -> list[tuple[int, int]]:
        """(block, tokens in it) of every snapshot along the ids that pages may lead to."""
        result: list[tuple[int, int]] = []
        parent: Node | None = None
        parent_key, index, on_disk = b"", 0, False
        while index * PAGE_TOKENS < wish.limit:
            block = wish.block(index)
            counts = self._disk.snapshots(parent_key, block[: wish.room(index)])
            result += [(index, count) for count in counts]
            if len(block) < PAGE_TOKENS:
                break
            parent = None if on_disk else self._tree.find(parent, block)
            on_disk = parent is None
            if on_disk and not self._disk.has_page(parent_key, block):
                break
            parent_key, index = self._disk.chain_key(parent_key, block), index + 1
        return result

    def _bring(self, wish: _Wish, index: int, count: int, loaded: set[Node]) -> bool:
        """Make one snapshot and every page before it part of the tree."""
        parent: Node | None = None
        for before in range(index):
            node = self._page(parent, wish, before, PAGE_TOKENS, loaded)
            if node is None:
                return False
            parent = node
        end = self._page(parent, wish, index, count, loaded)
        if end is None:
            return False
        state = self._disk.load_state(parent.key if parent else b"", end.ids[:count])
        if state is None:
            return False
        end.states[count] = Snapshot(state, saved=True)
        return True

    def _page(
        self, parent: Node | None, wish: _Wish, index: int, count: int, loaded: set[Node]
    ) -> Node | None:
        """The node that holds ``count`` tokens of a block, from memory or from disk."""
        node = self._tree.find(parent, wish.block(index)[:count])
        if node is None:
            node = self._load_best(parent, wish, index, count - 1)
            if node is not None:
                loaded.add(node)
        if node is not None:
            node.used = wish.stamp
        return node
