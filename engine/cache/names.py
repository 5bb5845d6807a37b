"""Names of the disk tier's files, and which of them continue a block.

``<parent>-<chain hash>.page`` a whole page, ``<parent>-<ids>-<chain hash>.tail`` a page that is
filled in part, ``<parent>-<ids>-<chain hash>.state`` a snapshot. A chain hash covers model key,
parent and ids. A name only leads to a file: what is in it is compared.
"""

from __future__ import annotations

import hashlib
import os
import time
from typing import TYPE_CHECKING

from hearth.engine.cache.page_file import pack_ids
from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

PARENT_CHARS = 16  # of the parent's chain hash; the file's label holds all of it
PAGE_SUFFIXES = (".page", ".tail")
SETTLED_NS = 100_000_000  # folder times are coarse: a younger one may still hide a change


class FileNames:
    """Names in one folder; engine thread only, but for ``page``, ``state`` and ``trust``."""

    def __init__(self, folder: Path, key: bytes) -> None:
        self._folder = folder
        self._key = key
        self._bad: set[str] = set()  # cannot be trusted or read, and perhaps not be deleted
        self._listing: tuple[int, dict[str, list[str]]] | None = None

    def chain_key(self, parent: bytes, ids: Sequence[int]) -> bytes:
        digest = hashlib.blake2b(self._key + parent, digest_size=32)
        digest.update(pack_ids(ids))
        return digest.digest()

    def page(self, parent: bytes, ids: Sequence[int]) -> str:
        if len(ids) == PAGE_TOKENS:
            return f"{short_key(parent)}-{self.chain_key(parent, ids).hex()}.page"
        return f"{self._part(parent, ids)}.tail"

    def state(self, parent: bytes, ids: Sequence[int]) -> str:
        return f"{self._part(parent, ids)}.state"

    def _part(self, parent: bytes, ids: Sequence[int]) -> str:
        return f"{short_key(parent)}-{len(ids):03d}-{self.chain_key(parent, ids).hex()}"

    # ------------------------------------------------------------------------------------- listing

    def behind(self, parent: bytes) -> list[str]:
        """Names of the files that continue ``parent``."""
        names = self._list().get(short_key(parent), [])
        return [name for name in names if name not in self._bad]

    def snapshots(self, parent: bytes, block: Sequence[int]) -> list[int]:
        """After how many tokens of ``block`` there are snapshots, in rising order."""
        names = [name for name in self.behind(parent) if name.endswith(".state")]
        counts = {name.split("-")[1] for name in names}
        return [
            count
            for count in range(1, len(block) + 1)
            if f"{count:03d}" in counts and self.state(parent, block[:count]) in names
        ]

    def _list(self) -> dict[str, list[str]]:
        """The folder's names by parent, read again when the folder has changed."""
        try:
            changed = self._folder.stat().st_mtime_ns
            if self._listing is not None and self._listing[0] == changed:
                return self._listing[1]
            names = sorted(os.listdir(self._folder))  # noqa: PTH208 - names are all that is wanted
        except OSError:
            return {}
        groups: dict[str, list[str]] = {}
        for name in names:
            groups.setdefault(name.partition("-")[0], []).append(name)
        is_settled = time.time_ns() - changed > SETTLED_NS
        self._listing = (changed, groups) if is_settled else None
        return groups

    def pass_over(self, name: str) -> None:
        """Leave a file alone until it is written again."""
        self._bad.add(name)

    def trust(self, name: str) -> None:
        self._bad.discard(name)


def short_key(parent: bytes) -> str:
    return parent.hex()[:PARENT_CHARS] if parent else "root"
