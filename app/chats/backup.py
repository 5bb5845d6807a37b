"""Copies of the database made with SQLite's online backup, never by copying a live file."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from typing import TYPE_CHECKING

from hearth.app.chats.failures import guard
from hearth.app.chats.files import (
    make_private_file,
    make_private_folder,
    sync_folder,
    time_stamp,
    unused_name,
)

if TYPE_CHECKING:
    from pathlib import Path

    from hearth.app.chats.database import Database

KEPT = 3
DAILY = "daily"
DAY_S = 24 * 3600.0


def make(database: Database, folder: Path, *, reason: str = DAILY) -> Path:
    """Copy the whole database into ``folder`` and keep the newest three of this reason."""
    path = unused_name(folder / f"{reason}-{time_stamp()}.sqlite3")
    temporary = path.with_suffix(".tmp")
    with guard(path):
        make_private_folder(folder)
        try:
            make_private_file(temporary)
            with closing(sqlite3.connect(temporary)) as target:
                database.connection.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")
            _sync_file(temporary)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(folder)
        for old in existing(folder, reason=reason)[KEPT:]:
            old.unlink()
    return path


def existing(folder: Path, *, reason: str | None = None) -> list[Path]:
    """Backups, newest first; of one reason, or all of them."""
    pattern = f"{reason}-*.sqlite3*" if reason else "*.sqlite3*"
    return sorted(folder.glob(pattern), key=lambda path: path.stat().st_mtime_ns, reverse=True)


def is_due(folder: Path) -> bool:
    newest = existing(folder, reason=DAILY)[:1]
    return not newest or time.time() - newest[0].stat().st_mtime > DAY_S


def _sync_file(path: Path) -> None:
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
