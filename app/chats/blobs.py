"""Attachments by content: large ones as files named by their hash, small ones as rows."""

from __future__ import annotations

import hashlib
import time
from typing import TYPE_CHECKING

from hearth.app.chats.failures import guard
from hearth.app.chats.files import make_private_folder, sync_folder, write_whole
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from pathlib import Path

    from hearth.app.chats.database import Database

MAX_ROW_BYTES = 64 * 1024
# A blob may be put before the message that names it; only older strays are garbage.
GRACE_S = 24 * 3600.0


class Blobs:
    """Owns the blob table and the folder of blob files, on the database's thread."""

    def __init__(self, database: Database, folder: Path) -> None:
        self.database = database
        self.folder = folder

    def path(self, sha256: str) -> Path:
        return self.folder / sha256[:2] / sha256[2:]

    def put(self, data: bytes) -> str:
        """Store ``data`` durably and return its hash. The same bytes are stored once."""
        sha256 = hashlib.sha256(data).hexdigest()
        if len(data) > MAX_ROW_BYTES:
            self._put_file(sha256, data)
        in_row = None if len(data) > MAX_ROW_BYTES else data
        with self.database.writing() as connection:
            connection.execute(
                "INSERT INTO blobs VALUES (?, ?, ?) ON CONFLICT(sha256)"
                " DO UPDATE SET created_at = excluded.created_at",
                (sha256, time.time(), in_row),
            )
        return sha256

    def _put_file(self, sha256: str, data: bytes) -> None:
        path = self.path(sha256)
        with guard(path):
            if path.exists() and path.read_bytes() == data:
                return
            make_private_folder(path.parent)
            sync_folder(self.folder)
            write_whole(path, data)

    def get(self, sha256: str) -> bytes:
        """The exact bytes. Raises MachineError when they are gone or no longer the same."""
        data = self._read(sha256)
        if data is None or hashlib.sha256(data).hexdigest() != sha256:
            raise MachineError(
                f"The attachment {sha256[:12]} is {'missing' if data is None else 'damaged'}.",
                action="Attach the file again; the text of the message is still there.",
            )
        return data

    def _read(self, sha256: str) -> bytes | None:
        row = self.database.row("SELECT data FROM blobs WHERE sha256 = ?", (sha256,))
        if row is not None and row[0] is not None:
            return bytes(row[0])
        path = self.path(sha256)
        with guard(path):
            return path.read_bytes() if path.is_file() else None

    def collect(self) -> int:
        """Delete blobs that no message names and that are older than a day; how many."""
        cutoff = time.time() - GRACE_S
        named = "SELECT blob_sha256 FROM parts WHERE blob_sha256 IS NOT NULL"
        with self.database.writing() as connection:
            num_rows = connection.execute(
                f"DELETE FROM blobs WHERE created_at < ? AND sha256 NOT IN ({named})",  # noqa: S608
                (cutoff,),
            ).rowcount
        known = {row[0] for row in self.database.rows(f"SELECT sha256 FROM blobs UNION {named}")}  # noqa: S608
        strays = [path for path in self._files() if path.parent.name + path.name not in known]
        with guard(self.folder / "x"):
            for path in strays:
                if path.stat().st_mtime < cutoff:
                    path.unlink()
        return num_rows

    def problems(self) -> list[str]:
        """One sentence per named or stored blob that is missing or altered."""
        known = self.database.rows(
            "SELECT sha256 FROM blobs UNION"
            " SELECT blob_sha256 FROM parts WHERE blob_sha256 IS NOT NULL"
        )
        found: list[str] = []
        for (sha256,) in known:
            try:
                self.get(sha256)
            except MachineError as error:
                found.append(str(error))
        return found

    def _files(self) -> list[Path]:
        return [path for path in self.folder.glob("??/*") if path.is_file()]
