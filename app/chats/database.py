"""Opening the chat database: discipline, migrations, backups, and what to do when it is damaged.

Errors come in two families. What the machine causes (disk full, locked, read-only) is raised as
MachineError with a sentence; everything else is a bug and stays what it is.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.app.chats.schema import APPLICATION_ID, MAJOR, MIGRATIONS, Migration
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

BUSY_TIMEOUT_MS = 5000
KEPT_BACKUPS = 3
BACKUP_EVERY_S = 24 * 3600.0
_SENTENCES = {
    sqlite3.SQLITE_FULL: ("The disk is full.", "Free some space; nothing that was saved is lost."),
    sqlite3.SQLITE_READONLY: ("The chats cannot be changed: their folder is read-only.", None),
    sqlite3.SQLITE_CANTOPEN: ("The chats cannot be opened.", "Check the folder's permissions."),
    sqlite3.SQLITE_BUSY: ("Another program is using the chats.", "Close it and try again."),
    sqlite3.SQLITE_LOCKED: ("Another program is using the chats.", "Close it and try again."),
    sqlite3.SQLITE_IOERR: ("The disk reports an error.", "Check the disk and its free space."),
    sqlite3.SQLITE_PERM: ("The chats may not be read.", "Check the folder's permissions."),
}


@contextlib.contextmanager
def machine_errors() -> Iterator[None]:
    """Turn SQLite's environmental errors into MachineError; let bugs through."""
    try:
        yield
    except sqlite3.OperationalError as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR) & 0xFF
        known = _SENTENCES.get(code)
        if known is None:
            raise
        raise MachineError(known[0], action=known[1]) from error


def is_disk_full(error: MachineError) -> bool:
    """Whether SQLite said so."""
    code = getattr(error.__cause__, "sqlite_errorcode", 0) & 0xFF
    return bool(code == sqlite3.SQLITE_FULL)


@dataclass(frozen=True, slots=True)
class Opened:
    """A usable connection and what had to be said about opening it."""

    connection: sqlite3.Connection
    read_only: bool
    notices: tuple[str, ...]


def open_database(path: Path, migrations: Sequence[Migration] = MIGRATIONS) -> Opened:
    """Open or create; migrate with a copy made before; put a damaged file aside and rescue it."""
    notices: list[str] = []
    existed = path.exists()
    with machine_errors():
        if existed and not _is_sound(path):
            notices.append(_rescue(path, migrations))
        connection = _connect(path)
        read_only = _version(connection) // 1000 > MAJOR
        if read_only:
            notices.append(
                "These chats were written by a newer version of Hearth: they can be read here, "
                "but not changed."
            )
        else:
            _migrate(connection, path, migrations)
            path.chmod(0o600)
    return Opened(connection, read_only, tuple(notices))


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = FULL")
    return connection


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All or nothing. Nothing is left open, whatever happens inside."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
    except BaseException:
        with contextlib.suppress(sqlite3.OperationalError):  # a full disk has rolled back already
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")


# ------------------------------------------------------------------------------------- migrations


def _migrate(connection: sqlite3.Connection, path: Path, migrations: Sequence[Migration]) -> None:
    current = _version(connection)
    pending = [migration for migration in migrations if migration.version > current]
    if not pending:
        return
    if current:
        back_up(connection, path, "before-migration")
    for migration in pending:
        # executescript commits by itself; each step therefore ends with its version, and a step
        # that was cut off is redone from the copy by the damage check at the next start.
        migration.apply(connection)
        connection.execute(f"PRAGMA user_version = {migration.version}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")


# ---------------------------------------------------------------------------------------- backups


def back_up(connection: sqlite3.Connection, path: Path, why: str) -> Path:
    """A consistent copy beside the database; the newest three are kept."""
    folder = path.parent / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    target = folder / f"{path.stem}-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{why}.sqlite3"
    copy = sqlite3.connect(target)
    try:
        connection.backup(copy)
    finally:
        copy.close()
    target.chmod(0o600)
    for old in sorted(folder.glob("*.sqlite3"))[:-KEPT_BACKUPS]:
        old.unlink(missing_ok=True)
    return target


def needs_daily_backup(path: Path) -> bool:
    """True when the newest backup is more than a day old."""
    backups = list((path.parent / "backups").glob("*.sqlite3"))
    newest = max((file.stat().st_mtime for file in backups), default=0.0)
    return time.time() - newest > BACKUP_EVERY_S


# ----------------------------------------------------------------------------------------- damage


def _is_sound(path: Path) -> bool:
    """SQLite's quick check; a file that is no database is not sound either."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        return False
    finally:
        connection.close()


def _rescue(path: Path, migrations: Sequence[Migration]) -> str:
    """Put the damaged file aside, copy what can be read into a new one; a sentence for the user."""
    aside = path.with_name(f"{path.name}.damaged-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}")
    path.replace(aside)
    for suffix in ("-wal", "-shm"):
        side = path.with_name(path.name + suffix)
        if side.exists():
            side.replace(aside.with_name(aside.name + suffix))
    fresh = _connect(path)
    _migrate(fresh, path, migrations)
    counts = {
        table: _copy_rows(aside, fresh, table) for table in ("chat", "message", "part", "blob")
    }
    fresh.execute("DELETE FROM message WHERE chat_id NOT IN (SELECT id FROM chat)")
    fresh.close()
    return (
        f"The chat database was damaged. {counts['chat']} chats and {counts['message']} messages "
        f"were rescued; the damaged file is kept as {aside.name}."
    )


def _copy_rows(source_path: Path, target: sqlite3.Connection, table: str) -> int:
    """Rows of ``table`` that can still be read, one by one in both directions."""
    source = sqlite3.connect(source_path, isolation_level=None)
    copied: set[tuple[object, ...]] = set()
    target.execute("PRAGMA foreign_keys = OFF")
    try:
        for order in ("", " DESC"):
            key = {"chat": "id", "message": "number", "part": "message_number", "blob": "sha256"}
            query = f"SELECT * FROM {table} ORDER BY {key[table]}{order}"  # noqa: S608 - own names
            with contextlib.suppress(sqlite3.DatabaseError):
                for row in source.execute(query):
                    marks = ",".join("?" * len(row))
                    with contextlib.suppress(sqlite3.IntegrityError):
                        target.execute(f"INSERT INTO {table} VALUES ({marks})", row)  # noqa: S608
                        copied.add(row)
    finally:
        source.close()
        target.execute("PRAGMA foreign_keys = ON")
    return len(copied)


# ---------------------------------------------------------------------------------------- ballast

BALLAST_BYTES = 2 << 20


def keep_ballast(folder: Path) -> None:
    """A file that can be given up when the disk is full, so that finishing and deleting work."""
    ballast = folder / "ballast"
    with contextlib.suppress(OSError):
        if not ballast.exists():
            descriptor = os.open(ballast, os.O_WRONLY | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(os.urandom(BALLAST_BYTES))


def drop_ballast(folder: Path) -> bool:
    """True when there was some."""
    ballast = folder / "ballast"
    if not ballast.exists():
        return False
    ballast.unlink()
    return True
