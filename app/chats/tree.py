"""A chat's tree of messages as pure, total functions over parent links.

``Links`` maps every message id to its parent id, oldest message first. A parent that is missing
makes its child a root and a circle is cut where it would close: damaged data shows less, but it
never raises.
"""

from __future__ import annotations

from collections.abc import Mapping

Links = Mapping[str, str | None]


def parent(links: Links, message_id: str) -> str | None:
    """The parent that exists, or None for a root, an unknown message or a missing parent."""
    parent_id = links.get(message_id)
    return parent_id if parent_id in links else None


def path(links: Links, leaf_id: str) -> list[str]:
    """From the root to ``leaf_id``; empty for an unknown leaf."""
    found: list[str] = []
    seen: set[str] = set()
    current: str | None = leaf_id if leaf_id in links else None
    while current is not None and current not in seen:
        seen.add(current)
        found.append(current)
        current = parent(links, current)
    found.reverse()
    return found


def children_by_parent(links: Links) -> dict[str | None, list[str]]:
    """Children of every message, oldest first; the roots are under None."""
    children: dict[str | None, list[str]] = {}
    for message_id in links:
        children.setdefault(parent(links, message_id), []).append(message_id)
    return children


def children(links: Links, message_id: str) -> list[str]:
    """Direct answers to ``message_id``, oldest first."""
    return [child for child in links if child != message_id and links[child] == message_id]


def siblings(links: Links, message_id: str) -> list[str]:
    """All versions of a message, oldest first, itself included; empty for an unknown one."""
    if message_id not in links:
        return []
    parent_id = parent(links, message_id)
    return [other for other in links if parent(links, other) == parent_id]


def versions(links: Links) -> dict[str, list[str]]:
    """``siblings`` of every message at once, for a whole view."""
    groups = children_by_parent(links).values()
    return {message_id: group for group in groups for message_id in group}


def leaf_below(links: Links, message_id: str) -> str:
    """The newest message in the subtree of ``message_id`` that nothing answers."""
    below = children_by_parent(links)
    seen = {message_id}
    leaves: set[str] = set()
    pending = [message_id]
    while pending:
        current = pending.pop()
        answers = [each for each in below.get(current, ()) if each not in seen]
        if not answers:
            leaves.add(current)
        seen.update(answers)
        pending.extend(answers)
    return next((each for each in reversed(list(links)) if each in leaves), message_id)


def newest(links: Links) -> str | None:
    """Where a chat goes on when its remembered leaf is gone: the newest message."""
    return next(reversed(list(links)), None)
