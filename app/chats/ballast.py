"""A small file given up when the disk is full, so that finishing and deleting still work."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from hearth.app.chats.failures import guard
from hearth.app.chats.files import write_whole

if TYPE_CHECKING:
    from pathlib import Path

BALLAST_BYTES = 2 * 1024 * 1024


class Ballast:
    """Owns the file ``ballast`` beside the database."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def take(self) -> None:
        """Reserve the space again once there is plenty; a full disk is left alone."""
        with guard(self._path):
            if self._path.exists():
                return
            if shutil.disk_usage(self._path.parent).free > 4 * BALLAST_BYTES:
                # Not zeros: some file systems store those as holes, which reserve nothing.
                write_whole(self._path, b"ballast\n" * (BALLAST_BYTES // 8))

    def release(self) -> bool:
        """Give the space back. False when there was none left to give."""
        with guard(self._path):
            if not self._path.exists():
                return False
            self._path.unlink()
            return True
