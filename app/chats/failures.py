"""Turns failures of the machine around the store into sentences; everything else stays a bug."""

from __future__ import annotations

import errno
import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from hearth.engine.errors import HearthError, MachineError, UserError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class DiskFullError(MachineError):
    """No space is left. What was stored before is untouched."""


class DamagedError(MachineError):
    """The database file is damaged. The next start repairs it into a new file."""


class IndexDamagedError(MachineError):
    """Only the search index is damaged; it is derived from the messages and can be rebuilt."""


_FULL_ERRNOS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_UNUSABLE_ERRNOS = frozenset({errno.EROFS, errno.ENOTDIR, errno.EEXIST})  # or a file in its place
_DENIED_ERRNOS = frozenset({errno.EACCES, errno.EPERM})
_WAY_OUT = "Choose another folder with HEARTH_HOME, or start with --temp-profile."


def disk_full(path: Path) -> DiskFullError:
    return DiskFullError(
        f"The disk that holds {path.parent} is full.",
        action="Free some space there; everything saved so far is safe.",
    )


def read_only(path: Path) -> MachineError:
    return MachineError(f"The folder {path.parent} cannot be written to.", action=_WAY_OUT)


def denied(path: Path) -> MachineError:
    return MachineError(f"Hearth may not open {path}.", action=f"Check its permissions. {_WAY_OUT}")


def damaged(path: Path) -> DamagedError:
    return DamagedError(
        f"The file {path} is damaged.",
        action="Restart Hearth: it keeps the file and recovers what can be read.",
    )


def suspicion(path: Path) -> Path:
    """A file whose presence says that damage was met in ``path``."""
    return path.with_name(f"{path.name}.suspect")


def suspect(path: Path) -> None:
    """Make the next start repair ``path``, whatever a quick look at it says: SQLite's quick check
    does not compare indexes with their tables."""
    with suppress(OSError):
        suspicion(path).touch(mode=0o600)


def failing_disk(path: Path) -> MachineError:
    return MachineError(
        f"The disk or network drive that holds {path.parent} does not answer properly.",
        action=f"Check the drive and its connection. {_WAY_OUT}",
    )


def explain_sqlite(error: sqlite3.Error, path: Path) -> HearthError | None:
    """The sentence for an SQLite error that comes from the machine; None for a bug."""
    code: int | None = getattr(error, "sqlite_errorcode", None)  # absent on sqlite3's own errors
    if code is None:
        return None
    if code == sqlite3.SQLITE_CORRUPT_VTAB:
        return IndexDamagedError("The search index is damaged.", action="Search once more.")
    if code == sqlite3.SQLITE_IOERR_SHMSIZE:
        return disk_full(path)
    match code & 0xFF:
        case sqlite3.SQLITE_FULL:
            return disk_full(path)
        case sqlite3.SQLITE_BUSY | sqlite3.SQLITE_LOCKED:
            return MachineError(
                f"Another program is using {path}.", action="Close it and try again."
            )
        case sqlite3.SQLITE_READONLY:
            return read_only(path)
        case sqlite3.SQLITE_PERM | sqlite3.SQLITE_CANTOPEN | sqlite3.SQLITE_AUTH:
            return denied(path)
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_NOLFS | sqlite3.SQLITE_PROTOCOL:
            return failing_disk(path)
        case sqlite3.SQLITE_CORRUPT | sqlite3.SQLITE_NOTADB:
            return damaged(path)
        case sqlite3.SQLITE_NOMEM:
            return MachineError("There is not enough memory.", action="Close other programs.")
        case sqlite3.SQLITE_TOOBIG:
            return UserError(
                "This text is larger than one message can hold.", action="Split it into parts."
            )
    return None


def explain_os(error: OSError, path: Path) -> MachineError | None:
    """The sentence for a failed file operation that comes from the machine; None for a bug."""
    if error.errno in _FULL_ERRNOS:
        return disk_full(path)
    if error.errno in _UNUSABLE_ERRNOS:
        return read_only(path)
    if error.errno in _DENIED_ERRNOS:
        return denied(path)
    if error.errno in (errno.EIO, errno.ESTALE, errno.ETIMEDOUT):
        return failing_disk(path)
    return None


@contextmanager
def guard(path: Path) -> Iterator[None]:
    """Raise the sentence for what the machine did to ``path``; let bugs through as they are."""
    try:
        yield
    except sqlite3.Error as error:
        explained = explain_sqlite(error, path)
        if explained is None:
            raise
        if isinstance(explained, DamagedError):
            suspect(path)
        raise explained from error
    except UnicodeDecodeError as error:  # SQLite's own message quotes damaged bytes
        suspect(path)
        raise damaged(path) from error
    except OSError as error:
        failure = explain_os(error, path)
        if failure is None:
            raise
        raise failure from error
