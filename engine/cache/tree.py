"""The prefix tree: blocks of token ids with the pages computed for them.

Blocks are compared by their ids, never by hashes. Only full blocks have children. Of blocks that
begin alike behind the same parent, one that contains another replaces it.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hearth.engine.cache.pages import PageArena, PageId
    from hearth.engine.cache.states import Snapshot, StatePayload


@dataclass(eq=False, slots=True)
class Node:
    """``ids`` and the page that holds their keys and values, of which the tree owns one reference.
    ``states`` maps a number of tokens of this node to the recurrent state behind them."""

    parent: Node | None
    ids: tuple[int, ...]
    page: PageId
    key: bytes  # chain hash, names the file on disk
    used: int
    saved: bool = False
    states: dict[int, Snapshot] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Match:
    node: Node
    agreed: int  # tokens of the node that are wanted, from its first on


@dataclass(frozen=True, slots=True)
class Hit:
    """Where a request may go on: ``nodes`` from the root on cover its first ``tokens`` ids."""

    tokens: int
    nodes: tuple[Node, ...]
    state: StatePayload | None = None

    @property
    def full_nodes(self) -> tuple[Node, ...]:
        return self.nodes[: self.tokens // PAGE_TOKENS]


class PrefixTree:
    """Owns its nodes and one reference to each node's page; engine thread only."""

    def __init__(self, arena: PageArena, *, requires_state: bool) -> None:
        self._arena = arena
        self._requires_state = requires_state
        self._roots: list[Node] = []

    def walk(self) -> Iterator[Node]:
        """Every node, parents before their children."""
        waiting = deque(self._roots)
        while waiting:
            node = waiting.popleft()
            yield node
            waiting += node.children

    def siblings(self, parent: Node | None) -> list[Node]:
        """The nodes behind ``parent``; None means the beginning."""
        return self._roots if parent is None else parent.children

    # -------------------------------------------------------------------------------- looking up

    def levels(self, ids: Sequence[int], limit: int) -> list[list[Match]]:
        """Per block of ids[:limit], the nodes that agree with its beginning. The next level is
        behind the node that agrees with all of the block."""
        levels: list[list[Match]] = []
        parent: Node | None = None
        for start in range(0, limit, PAGE_TOKENS):
            block = ids[start : min(start + PAGE_TOKENS, limit)]
            matches = [Match(n, common_length(n.ids, block)) for n in self.siblings(parent)]
            levels.append([match for match in matches if match.agreed])
            full = [match.node for match in matches if match.agreed == PAGE_TOKENS]
            if not full:
                break
            parent = full[0]
        return levels

    def best(self, ids: Sequence[int], limit: int) -> Hit:
        """The longest prefix of ids[:limit] that a request may go on from."""
        levels = self.levels(ids, limit)
        trunk = [m.node for level in levels for m in level if m.agreed == PAGE_TOKENS]
        for index in range(len(levels) - 1, -1, -1):
            ends = self._ends(levels[index])
            if ends:
                count, node = max(ends, key=lambda end: end[0])
                state = node.states[count].state if self._requires_state else None
                return Hit(index * PAGE_TOKENS + count, (*trunk[:index], node), state)
        return Hit(0, ())

    def _ends(self, level: Sequence[Match]) -> list[tuple[int, Node]]:
        """Where a hit may end: anywhere, or with recurrent layers only at snapshots."""
        if not self._requires_state:
            return [(match.agreed, match.node) for match in level]
        return [
            (count, match.node)
            for match in level
            for count in match.node.states
            if count <= match.agreed
        ]

    def find(self, parent: Node | None, block: Sequence[int]) -> Node | None:
        """The node whose page holds ``block``; it may hold more behind it."""
        for node in self.siblings(parent):
            if common_length(node.ids, block) == len(block):
                return node
        return None

    # ------------------------------------------------------------------------------------ changing

    def add(self, node: Node) -> None:
        """Take over ``node`` and its page. Shorter blocks that it contains leave their snapshots to
        it; their pages are released."""
        siblings = self.siblings(node.parent)
        for other in list(siblings):
            if common_length(node.ids, other.ids) == len(other.ids):
                node.states = other.states | node.states
                self._remove(other)
        siblings.append(node)

    def evict(self, *, spare: int | None) -> bool:
        """Drop the leaf that was used longest ago and whose page nobody else uses; False when there
        is none. What was used at ``spare`` stays.

        Snapshots go with their page, so none is left that cannot be reached. With recurrent
        layers a leaf without snapshot unlocks nothing and goes first."""
        victims = [
            node
            for node in self.walk()
            if not node.children and node.used != spare and not self._arena.is_shared(node.page)
        ]
        if not victims:
            return False
        self._remove(min(victims, key=self._worth))
        return True

    def trim_snapshots(self, limit_bytes: int) -> None:
        """Drop the snapshots that were used longest ago until the others fit; of one text the
        deepest stay. What they unlocked is computed again from the next lower one."""
        found = [(node, count) for node in self.walk() for count in sorted(node.states)]
        found.reverse()  # deepest first
        found.sort(key=lambda place: -place[0].used)
        left = limit_bytes
        for node, count in found:
            left -= node.states[count].state.num_bytes
            if left < 0:
                del node.states[count]

    def _worth(self, node: Node) -> tuple[bool, int]:
        return (self._requires_state and bool(node.states), node.used)

    def _remove(self, node: Node) -> None:
        assert not node.children, "children are reached through their parent"
        self.siblings(node.parent).remove(node)
        self._arena.release(node.page)

    def clear(self) -> None:
        for node in self.walk():
            self._arena.release(node.page)
        self._roots.clear()


def common_length(left: Sequence[int], right: Sequence[int]) -> int:
    """How many ids agree from the first on."""
    room = min(len(left), len(right))
    if tuple(left[:room]) == tuple(right[:room]):
        return room
    return next(i for i in range(room) if left[i] != right[i])
