"""Reads what can still be read of a damaged database into a new one, row by row.

The damaged file is kept untouched: reading happens on a copy, because merely opening a database in
WAL mode may write to it.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

from hearth.app.chats.database import lenient_text
from hearth.app.chats.files import time_stamp, unused_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TABLES = {
    "blobs": ("sha256", "created_at", "data"),
    "chats": (
        *("id", "title", "system_prompt", "created_at", "updated_at"),
        *("leaf_id", "pinned", "deleted_at"),
    ),
    "messages": (
        *("seq", "id", "chat_id", "parent_id", "role", "status", "created_at", "token_ids"),
        *("covers", "model_fingerprint", "model_name", "usage", "finish_reason"),
    ),
    "parts": (
        *("message_seq", "position", "kind", "body", "meta", "name", "blob_sha256", "checksum"),
    ),
    "journal": ("message_seq", "position", "body", "token_ids"),
    "reasoning_journal": ("message_seq", "position", "body", "seconds"),
}
WITHOUT_ROWID = ("journal", "reasoning_journal")  # only a running reply is in them
SIDE_FILES = ("-wal", "-shm", "-journal")
_HEADER_BYTES = 100
_MAGIC = b"SQLite format 3\0"
_MAX_LOOKUPS = 200_000  # bounds the search for readable rows in a badly damaged file


def set_aside(path: Path, why: str) -> Path:
    """Rename the database with its side files, so that SQLite would still open it as it was."""
    aside = unused_name(path.with_name(f"{path.name}.{why}-{time_stamp()}"))
    for suffix in ("", *SIDE_FILES):
        source = path.with_name(path.name + suffix)
        if source.exists():
            source.replace(aside.with_name(aside.name + suffix))
    return aside


def copy_rows(source: Path, target: sqlite3.Connection) -> Counter[str]:
    """Copy into ``target`` every readable row that it lacks; how many of each table.

    Runs in the caller's transaction, with foreign keys deferred to ``join_loose_ends``.
    """
    copied: Counter[str] = Counter()
    copy = unused_name(source.with_name(f"{source.name}.reading"))
    try:
        _copy_files(source, copy, target)
        with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            connection.text_factory = lenient_text
            _copy_tables(connection, target, copied)
    finally:
        for suffix in ("", *SIDE_FILES):
            copy.with_name(copy.name + suffix).unlink(missing_ok=True)
    return copied


def _copy_tables(
    source: sqlite3.Connection, target: sqlite3.Connection, copied: Counter[str]
) -> None:
    known: dict[str, int] = dict(target.execute("SELECT id, seq FROM messages"))
    without_parts = {
        row[0]
        for row in target.execute(
            "SELECT id FROM messages WHERE seq NOT IN (SELECT message_seq FROM parts)"
        )
    }
    new_seqs: dict[int, int] = {}
    for table, columns in TABLES.items():
        for row in _readable_rows(source, table, columns):
            values = dict(zip(columns, row, strict=True))
            if table == "messages" and values["id"] in known:
                if values["id"] in without_parts:
                    new_seqs[values["seq"]] = known[values["id"]]
                continue
            copied[table] += _copy_row(target, table, values, new_seqs)


def _copy_row(
    target: sqlite3.Connection, table: str, values: dict[str, Any], new_seqs: dict[int, int]
) -> int:
    """Insert one row under the new number of its message; 0 when it does not fit in."""
    old_seq = values.pop("seq", None)
    if "message_seq" in values:
        if values["message_seq"] not in new_seqs:
            return 0  # its message was lost, or is there already
        values["message_seq"] = new_seqs[values["message_seq"]]
    marks = ", ".join("?" * len(values))
    sql = f"INSERT OR IGNORE INTO {table}({', '.join(values)}) VALUES ({marks})"  # noqa: S608
    cursor = target.execute(sql, tuple(values.values()))
    if old_seq is not None and cursor.rowcount and cursor.lastrowid is not None:
        new_seqs[old_seq] = cursor.lastrowid
    return cursor.rowcount


def _readable_rows(
    connection: sqlite3.Connection, table: str, columns: tuple[str, ...]
) -> Iterator[tuple[Any, ...]]:
    """Rows in order of their numbers; ranges that fail are halved until single rows are left."""
    if table in WITHOUT_ROWID:
        yield from _attempt(connection, f"SELECT {', '.join(columns)} FROM {table}") or ()  # noqa: S608
        return
    sql = f"SELECT {', '.join(columns)} FROM {table} WHERE rowid BETWEEN ? AND ? ORDER BY rowid"  # noqa: S608
    ranges = [(1, _highest(connection, table))]
    for _ in range(_MAX_LOOKUPS):
        if not ranges:
            return
        first, last = ranges.pop()
        rows = _attempt(connection, sql, (first, last))
        if rows is not None:
            yield from rows
        elif first < last:
            middle = (first + last) // 2
            ranges += [(middle + 1, last), (first, middle)]


def _attempt(
    connection: sqlite3.Connection, sql: str, bounds: tuple[int, ...] = ()
) -> list[tuple[Any, ...]] | None:
    try:
        return connection.execute(sql, bounds).fetchall()
    except (sqlite3.DatabaseError, OverflowError, UnicodeDecodeError):
        return None


def _highest(connection: sqlite3.Connection, table: str) -> int:
    """The largest row number, or more than there can be when that page is damaged."""
    rows = _attempt(connection, f"SELECT max(rowid) FROM {table}")  # noqa: S608
    if rows is not None and isinstance(rows[0][0], int):
        return rows[0][0]
    pages = _attempt(connection, "PRAGMA page_count")
    return min(32 * pages[0][0] if pages else 0, 1 << 20)


def _copy_files(source: Path, copy: Path, reference: sqlite3.Connection) -> None:
    shutil.copyfile(source, copy)
    copy.chmod(0o600)
    wal = source.with_name(f"{source.name}-wal")
    if wal.exists():
        shutil.copyfile(wal, copy.with_name(f"{copy.name}-wal"))
    with copy.open("r+b") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            _mend_header(file, copy.stat().st_size, reference)


def _mend_header(file: Any, num_bytes: int, reference: sqlite3.Connection) -> None:
    """Put the header of a sound database of ours in place of a destroyed one."""
    header = bytearray(reference.serialize()[:_HEADER_BYTES])
    page_bytes = int.from_bytes(header[16:18], "big")
    header[28:32] = (num_bytes // page_bytes).to_bytes(4, "big")
    header[92:96] = header[24:28]  # otherwise SQLite does not believe the number of pages
    file.seek(0)
    file.write(header)


def join_loose_ends(connection: sqlite3.Connection) -> None:
    """Make the copied rows consistent: a lost chat gets a new row, a lost leaf the newest."""
    connection.execute(
        "INSERT INTO chats(id, title, system_prompt, created_at, updated_at)"
        " SELECT chat_id, CAST('' AS BLOB), CAST('' AS BLOB), min(created_at), max(created_at)"
        " FROM messages WHERE chat_id NOT IN (SELECT id FROM chats) GROUP BY chat_id"
    )
    connection.execute(
        "UPDATE chats SET leaf_id = (SELECT id FROM messages WHERE chat_id = chats.id"
        " ORDER BY seq DESC LIMIT 1) WHERE leaf_id IS NOT NULL AND leaf_id NOT IN"
        " (SELECT id FROM messages WHERE chat_id = chats.id)"
        " OR leaf_id IS NULL"
    )
