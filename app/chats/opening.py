"""Opens the database whatever state it is in: new, old, newer, on a read-only disk, or damaged."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hearth.app.chats import backup, migrations, reading, salvage, search
from hearth.app.chats.ballast import Ballast
from hearth.app.chats.database import Database
from hearth.app.chats.failures import (
    DamagedError,
    DiskFullError,
    guard,
    read_only,
    suspicion,
)
from hearth.app.chats.files import sync_folder
from hearth.app.chats.schema import APPLICATION_ID
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearth.app.chats.migrations import Step

HEADER_BYTES = 100  # of an SQLite file
THOROUGH_CHECK_BYTES = 32 << 20  # about 0.1 s; beyond that the quick check has to do
STORED_TABLES = ("chats", "messages", "parts")  # what cannot be derived from anything else


@dataclass(slots=True)
class Opened:
    database: Database
    notices: list[str] = field(default_factory=list)  # whole sentences for the user


def open_database(path: Path, backups: Path, steps: Sequence[Step]) -> Opened:
    """Raises MachineError when the machine does not let us read or create the file."""
    if not _is_writable(path):
        return open_to_read(path, read_only(path))
    with guard(path):
        _finish_recovery(path)
    try:
        if _is_stub(path, backups):
            raise DamagedError(f"The file {path} has lost its content.")
        if suspicion(path).exists():
            raise DamagedError(f"Damage was met in the file {path}.")
        if path.exists() and path.stat().st_size > 0:
            newer = _inspect(path, steps)
            if newer is not None:
                return newer
        return _open_to_write(path, backups, steps)
    except DamagedError:
        return _recover(path, backups, steps)
    except DiskFullError as error:
        if not Ballast(path.with_name("ballast")).release():
            return open_to_read(path, error)
    return _open_to_write(path, backups, steps)


def _is_stub(path: Path, backups: Path) -> bool:
    """SQLite takes a file that is shorter than its header for a new one, and writes over it."""
    num_bytes = path.stat().st_size if path.exists() else 0
    had_content = bool(backup.existing(backups)) or _has_content(_wal(path))
    return num_bytes < HEADER_BYTES and (num_bytes > 0 or had_content)


def _inspect(path: Path, steps: Sequence[Step]) -> Opened | None:
    """Look without changing a byte: what is damaged must stay as it is, its log included.

    Returns the chats opened for reading when a newer major version wrote them.
    """
    database = Database.open_to_read(path, immutable=False)
    connection = database.connection
    try:
        with guard(path):
            _expect_ok(connection, "quick_check(20)", path)
            tables: int = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
            owner: int = connection.execute("PRAGMA application_id").fetchone()[0]
            if tables and owner != APPLICATION_ID:
                raise DamagedError(f"The file {path} was not written by this program.")
            if migrations.is_newer(connection, steps):
                return _open_newer(database)
            if tables:
                _compare_indexes(connection, path)
    except BaseException:
        database.close()
        raise
    database.close()
    return None


def _open_to_write(path: Path, backups: Path, steps: Sequence[Step]) -> Opened:
    database = Database.open(path)
    connection = database.connection
    try:
        with guard(path):
            present = migrations.stored_version(connection)
            if present != migrations.NEW and migrations.pending(connection, steps):
                backup.make(database, backups, reason=f"before-{present}")
            migrations.upgrade(connection, steps)
    except BaseException:
        database.close()
        raise
    return Opened(database)


def _compare_indexes(connection: sqlite3.Connection, path: Path) -> None:
    """The quick check (about 1 s for a gigabyte that the system has in memory) does not compare
    indexes with their tables; for a file of ordinary size this does."""
    if path.stat().st_size <= THOROUGH_CHECK_BYTES:
        for table in STORED_TABLES:
            _expect_ok(connection, f"integrity_check({table})", path)


def _expect_ok(connection: sqlite3.Connection, check: str, path: Path) -> None:
    lines = [line for (line,) in connection.execute(f"PRAGMA {check}") if line != "ok"]
    found = [line for line in lines if not search.is_about_index(line)]
    if found:
        raise DamagedError(f"The file {path} is damaged: {found[0]}.")


def _open_newer(database: Database) -> Opened:
    sentence = "These chats were written by a newer version of Hearth"
    try:
        reading.chats(database, include_deleted=True)
        reading.messages(database, ())
    except sqlite3.OperationalError as error:  # its tables are not ours any more
        raise MachineError(f"{sentence}.", action="Install that version to open them.") from error
    return Opened(database, [f"{sentence}: you can read them here, but not continue them."])


def _wal(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _has_content(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _is_writable(path: Path) -> bool:
    """Try it: permission bits say nothing about root, mounts and network drives."""
    try:
        with guard(path), tempfile.TemporaryFile(dir=path.parent):
            pass
        with guard(path):
            if path.exists():
                path.open("r+b").close()
    except MachineError as error:
        cause = error.__cause__
        return isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)
    return True


def open_to_read(path: Path, reason: MachineError) -> Opened:
    """Where nothing can be written the chats can still be read; ``reason`` becomes the notice."""
    if not _has_content(path):
        raise reason
    notice = f"{reason} The chats can be read but not continued. {reason.action}"
    if _has_content(_wal(path)):
        # The newest messages are only in the log, and reading that needs a side file.
        return Opened(_load_into_memory(path), [notice])
    return Opened(Database.open_to_read(path, immutable=True), [notice])


def _load_into_memory(path: Path) -> Database:
    memory = sqlite3.connect(":memory:", isolation_level=None)
    with tempfile.TemporaryDirectory(prefix="hearth-reading-") as name, guard(path):
        copy = Path(name) / path.name
        shutil.copyfile(path, copy)
        shutil.copyfile(_wal(path), _wal(copy))
        with closing(sqlite3.connect(copy)) as source:
            source.backup(memory)
    return Database(path, memory, read_only=True)


def _recovering(path: Path) -> Path:
    return path.with_name(f"{path.name}.recovering")


def _recover(path: Path, backups: Path, steps: Sequence[Step]) -> Opened:
    """Put a new database in the place of the damaged one, made of what can be read of it and of
    its newest backup. The old one is moved only when the new one is complete."""
    sources = [*([path] if path.exists() else []), *backup.existing(backups)[:1]]
    with guard(path):
        _remove(_recovering(path))
        counts = _build(_recovering(path), sources, backups, steps)
        aside = salvage.set_aside(path, "damaged")
        _finish_recovery(path)
        suspicion(path).unlink(missing_ok=True)
    opened = _open_to_write(path, backups, steps)
    opened.notices.append(_recovered_sentence(counts, aside))
    return opened


def _build(
    place: Path, sources: Sequence[Path], backups: Path, steps: Sequence[Step]
) -> Counter[str]:
    """A new database at ``place`` with every readable row of ``sources``; how many there are."""
    database = _open_to_write(place, backups, steps).database
    connection = database.connection
    connection.execute("PRAGMA foreign_keys = OFF")
    with database.writing():
        for source in sources:
            salvage.copy_rows(source, connection)
        salvage.join_loose_ends(connection)
    counts = Counter(
        {
            table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]  # noqa: S608
            for table in ("chats", "messages")
        }
    )
    database.close()
    return counts


def _finish_recovery(path: Path) -> None:
    """Also runs at a start after a crash in the middle: the old file is gone, the new one whole."""
    if not path.exists() and _recovering(path).exists():
        salvage.set_aside(path, "damaged")  # a log of the old file would spoil the new one
        _recovering(path).replace(path)
        sync_folder(path.parent)


def _remove(path: Path) -> None:
    for suffix in ("", *salvage.SIDE_FILES):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _recovered_sentence(counts: Counter[str], aside: Path) -> str:
    kept = f"The damaged file is kept as {aside}."
    if not counts["messages"]:
        return f"The chat database could not be read; Hearth starts with an empty one. {kept}"
    return (
        f"The chat database was damaged. {counts['chats']} chats with {counts['messages']}"
        f" messages were recovered. {kept}"
    )
