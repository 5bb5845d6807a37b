"""A chat's messages as a tree: total functions over parent links.

A missing parent makes a root and a cycle is cut, so that no damage makes a chat unopenable.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hearth.app.chats.records import MessageId

    Parents = Mapping[MessageId, MessageId | None]


def path_to(leaf: MessageId, parents: Parents) -> list[MessageId]:
    """From the root to ``leaf``; empty when ``leaf`` is unknown."""
    path: list[MessageId] = []
    seen: set[MessageId] = set()
    current: MessageId | None = leaf
    while current is not None and current in parents and current not in seen:
        path.append(current)
        seen.add(current)
        current = parents[current]
    path.reverse()
    return path


def children_of(
    parent: MessageId | None,
    order: Sequence[MessageId],
    parents: Parents,
) -> list[MessageId]:
    """Children, oldest first; None gives the roots (an unknown parent counts as none)."""
    return [
        message
        for message in order
        if (parents[message] if parents[message] in parents else None) == parent
    ]


def siblings_of(
    message: MessageId, order: Sequence[MessageId], parents: Parents
) -> list[MessageId]:
    """Versions of a message, oldest first, itself included."""
    parent = parents.get(message)
    return children_of(parent if parent in parents else None, order, parents)


def newest_leaf_below(
    message: MessageId, order: Sequence[MessageId], parents: Parents
) -> MessageId:
    """The end of the branch that goes on from ``message`` by the newest child each time."""
    seen = {message}
    current = message
    while True:
        below = [child for child in children_of(current, order, parents) if child not in seen]
        if not below:
            return current
        current = below[-1]
        seen.add(current)
