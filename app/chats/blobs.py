"""Attachments' exact bytes: small ones in the database, large ones as files named by content."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    import sqlite3
    from pathlib import Path

IN_DATABASE_BYTES = 64 << 10


class BlobStore:
    """Content-addressed bytes. A file appears by rename after fsync, or not at all."""

    def __init__(self, folder: Path, connection: sqlite3.Connection) -> None:
        self._folder = folder
        self._connection = connection

    def put(self, data: bytes) -> str:
        """Keep ``data``; returns its sha256."""
        digest = hashlib.sha256(data).hexdigest()
        known = self._connection.execute("SELECT 1 FROM blob WHERE sha256 = ?", (digest,))
        if known.fetchone() is not None:
            return digest
        in_database = len(data) <= IN_DATABASE_BYTES
        if not in_database:
            self._write(digest, data)
        row = (digest, data if in_database else None)
        self._connection.execute("INSERT INTO blob VALUES (?, ?)", row)
        return digest

    def get(self, digest: str) -> bytes:
        """The bytes; MachineError when the file is gone or changed."""
        row = self._connection.execute("SELECT data FROM blob WHERE sha256 = ?", (digest,))
        found = row.fetchone()
        if found is None:
            raise MachineError("An attachment is missing from the store.")
        if found[0] is not None:
            return bytes(found[0])
        try:
            data = self._path(digest).read_bytes()
        except OSError as error:
            raise MachineError(f"An attachment's file cannot be read: {error.strerror}.") from error
        if hashlib.sha256(data).hexdigest() != digest:
            raise MachineError("An attachment's file has been changed on disk.")
        return data

    def drop(self, digest: str) -> None:
        self._connection.execute("DELETE FROM blob WHERE sha256 = ?", (digest,))
        self._path(digest).unlink(missing_ok=True)

    def digests(self) -> list[str]:
        return [row[0] for row in self._connection.execute("SELECT sha256 FROM blob")]

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest[2:]

    def _write(self, digest: str, data: bytes) -> None:
        path = self._path(digest)
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            temporary = path.with_name(path.name + f".tmp{os.getpid()}")
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            raise MachineError(
                f"The attachment could not be saved: {error.strerror}.",
                action="Free some disk space and paste it again.",
            ) from error
