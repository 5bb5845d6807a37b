"""Opens the database whatever state it is in: new, old, newer, on a read-only disk, or damaged."""

from __future__ import annotations

import errno
import shutil
import sqlite3
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hearth.app.chats import backup, migrations, reading, salvage
from hearth.app.chats.database import Database
from hearth.app.chats.failures import DamagedError, denied, guard
from hearth.app.chats.schema import APPLICATION_ID
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearth.app.chats.migrations import Step


@dataclass(slots=True)
class Opened:
    database: Database
    notices: list[str] = field(default_factory=list)  # whole sentences for the user


def open_database(path: Path, backups: Path, steps: Sequence[Step]) -> Opened:
    """Raises MachineError when the machine does not let us read or create the file."""
    if not _is_writable(path):
        return _open_on_read_only_disk(path)
    if not _has_content(path) and backup.existing(backups):
        return _recover(path, backups, steps)  # a 0-byte file where there were chats
    try:
        return _open_sound(path, backups, steps)
    except DamagedError:
        return _recover(path, backups, steps)


def _open_sound(path: Path, backups: Path, steps: Sequence[Step]) -> Opened:
    database = Database.open(path)
    try:
        return _check(database, backups, steps)
    except BaseException:
        database.close()
        raise


def _check(database: Database, backups: Path, steps: Sequence[Step]) -> Opened:
    path, connection = database.path, database.connection
    with guard(path):
        if migrations.is_newer(connection, steps):
            database.close()
            return _open_newer(path)
        _quick_check(connection, path)
        present = migrations.stored_version(connection)
        has_tables = bool(connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0])
        owner: int = connection.execute("PRAGMA application_id").fetchone()[0]
        if has_tables and owner != APPLICATION_ID:
            raise DamagedError(f"The file {path} was not written by this program.")
        if has_tables and migrations.pending(connection, steps):
            backup.make(database, backups, reason=f"before-{present}")
        migrations.upgrade(connection, steps)
    return Opened(database)


def _quick_check(connection: sqlite3.Connection, path: Path) -> None:
    """About 1 s for a gigabyte that the system has in memory."""
    found: str = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise DamagedError(f"The file {path} is damaged: {found}.")


def _open_newer(path: Path) -> Opened:
    database = Database.open_to_read(path, immutable=False)
    sentence = "These chats were written by a newer version of Hearth"
    try:
        reading.chats(database, include_deleted=True)
        reading.messages(database, ())
    except sqlite3.OperationalError as error:  # its tables are not ours any more
        database.close()
        raise MachineError(f"{sentence}.", action="Install that version to open them.") from error
    return Opened(database, [f"{sentence}: you can read them here, but not continue them."])


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


def _open_on_read_only_disk(path: Path) -> Opened:
    if not _has_content(path):
        raise denied(path)
    notice = (
        f"The folder {path.parent} cannot be written to: the chats can be read but not continued."
        " Choose another folder with HEARTH_HOME, or start with --temp-profile."
    )
    wal = path.with_name(f"{path.name}-wal")
    if _has_content(wal):  # its newest messages are only there, and reading it needs a side file
        folder = Path(tempfile.mkdtemp(prefix="hearth-reading-"))
        shutil.copyfile(path, folder / path.name)
        shutil.copyfile(wal, folder / wal.name)
        return Opened(Database.open_to_read(folder / path.name, immutable=False), [notice])
    return Opened(Database.open_to_read(path, immutable=True), [notice])


def _recover(path: Path, backups: Path, steps: Sequence[Step]) -> Opened:
    """Start a new database from what can be read of the old one and of its newest backup."""
    with guard(path):
        aside = salvage.set_aside(path, "damaged") if path.exists() else None
    sources = [*([aside] if aside else []), *backup.existing(backups)[:1]]
    opened = _open_sound(path, backups, steps)
    connection = opened.database.connection
    counts = []
    with guard(path):
        connection.execute("PRAGMA foreign_keys = OFF")
        with opened.database.writing():
            counts = [salvage.copy_rows(source, connection) for source in sources]
            salvage.drop_orphans(connection)
        connection.execute("PRAGMA foreign_keys = ON")
    num_chats: int = connection.execute("SELECT count(*) FROM chats").fetchone()[0]
    num_messages: int = connection.execute("SELECT count(*) FROM messages").fetchone()[0]
    where = f" The damaged file is kept as {aside}." if aside else ""
    if num_messages:
        from_backup = counts[-1]["messages"] if len(counts) > (1 if aside else 0) else 0
        extra = f", {from_backup} of them from the newest backup" if from_backup else ""
        opened.notices.append(
            f"The chat database was damaged. {num_chats} chats with {num_messages} messages were"
            f" recovered{extra}.{where}"
        )
    else:
        opened.notices.append(
            f"The chat database could not be read; Hearth starts with an empty one.{where}"
        )
    return opened
