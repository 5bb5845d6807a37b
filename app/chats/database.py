"""One SQLite connection that belongs to one thread and knows which writes must be durable."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from hearth.app.chats.failures import guard
from hearth.app.chats.files import make_private_file
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Row = tuple[Any, ...]
BUSY_TIMEOUT_MS = 5000
MAX_IDLE_WAL_BYTES = 4 * 1024 * 1024  # one huge paste must not leave a huge side file


class Database:
    """Owns the connection. Every method must be called by the thread that created it.

    A durable transaction ends with fsync (about 4 ms); one that is not durable survives the death
    of the program but may be lost with the power, which is right for the journal (0.05 ms).
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, *, read_only: bool) -> None:
        self.path = path
        self.connection = connection
        self.read_only = read_only
        self._owner = threading.get_ident()

    @classmethod
    def open(cls, path: Path) -> Database:
        with guard(path):
            make_private_file(path)
            connection = sqlite3.connect(path, isolation_level=None)
            try:
                _prepare(connection)
            except BaseException:
                connection.close()
                raise
        return cls(path, connection, read_only=False)

    @classmethod
    def open_to_read(cls, path: Path, *, immutable: bool) -> Database:
        """Open without writing a byte. ``immutable``: on a medium where nothing can change."""
        options = "mode=ro&immutable=1" if immutable else "mode=ro"
        with guard(path):
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?{options}", uri=True, isolation_level=None
            )
            connection.text_factory = lenient_text
            try:
                connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
            except BaseException:
                connection.close()
                raise
        return cls(path, connection, read_only=True)

    def rows(self, sql: str, parameters: tuple[Any, ...] = ()) -> list[Row]:
        self._check_thread()
        with guard(self.path):
            return self.connection.execute(sql, parameters).fetchall()

    def row(self, sql: str, parameters: tuple[Any, ...] = ()) -> Row | None:
        self._check_thread()
        with guard(self.path):
            found: Row | None = self.connection.execute(sql, parameters).fetchone()
            return found

    @contextmanager
    def writing(self, *, durable: bool = True) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it is stored when the block ends, or nothing."""
        self._check_thread()
        if self.read_only:
            raise MachineError(
                "The chats are open for reading only.",
                action="The notice shown at the start says why and what to do.",
            )
        with guard(self.path):
            mode = "FULL" if durable else "NORMAL"
            self.connection.execute(f"PRAGMA synchronous = {mode}")
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                yield self.connection
                self.connection.execute("COMMIT")
            finally:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")

    def close(self) -> None:
        self._check_thread()
        self.connection.close()

    def _check_thread(self) -> None:
        assert threading.get_ident() == self._owner, "the store was used from a foreign thread"


def lenient_text(data: bytes) -> str:
    """Damaged bytes in one short field must not make a list of rows unreadable."""
    return data.decode("utf-8", "replace")


def _prepare(connection: sqlite3.Connection) -> None:
    connection.text_factory = lenient_text
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA journal_size_limit = {MAX_IDLE_WAL_BYTES}")
