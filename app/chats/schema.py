"""The database's schema as an ordered list of migrations.

``user_version`` = major * 1000 + minor. A newer minor is opened as usual; a newer major is opened
for reading only. Text is stored as bytes (UTF-8 with lone surrogates passed through), because
whatever was typed has to come back; ``search_text`` is derived from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

APPLICATION_ID = 0x48524C31  # "HRL1"
MAJOR, MINOR = 1, 0


class Migration(NamedTuple):
    """``apply`` brings a database from the version before to ``version``."""

    version: int
    name: str
    apply: Callable[[sqlite3.Connection], None]


def version_number(major: int, minor: int) -> int:
    return major * 1000 + minor


def _first(connection: sqlite3.Connection) -> None:
    connection.executescript(_FIRST)


_FIRST = """
CREATE TABLE chat (
    id TEXT PRIMARY KEY,
    title BLOB NOT NULL,
    system_prompt BLOB NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    leaf_id TEXT,
    pinned INTEGER NOT NULL DEFAULT 0,
    deleted_at REAL
) WITHOUT ROWID;
CREATE INDEX chat_by_time ON chat (pinned DESC, updated_at DESC);

CREATE TABLE message (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    chat_id TEXT NOT NULL REFERENCES chat (id) ON DELETE CASCADE,
    parent_id TEXT,
    role TEXT NOT NULL,
    status TEXT NOT NULL,
    created_at REAL NOT NULL,
    token_ids BLOB,
    covers INTEGER NOT NULL DEFAULT 0,
    model_fingerprint TEXT,
    model_name TEXT,
    usage TEXT,
    finish_reason TEXT,
    search_text TEXT NOT NULL DEFAULT ''
);
CREATE INDEX message_by_chat ON message (chat_id, number);
CREATE INDEX message_by_status ON message (status) WHERE status = 'streaming';

CREATE TABLE part (
    message_number INTEGER NOT NULL REFERENCES message (number) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    kind TEXT NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (message_number, place)
) WITHOUT ROWID;

CREATE TABLE journal (
    number INTEGER PRIMARY KEY,
    message_id TEXT NOT NULL,
    text BLOB NOT NULL,
    token_ids BLOB NOT NULL
);
CREATE INDEX journal_by_message ON journal (message_id, number);

CREATE TABLE blob (
    sha256 TEXT PRIMARY KEY,
    data BLOB
) WITHOUT ROWID;

CREATE VIRTUAL TABLE words USING fts5 (
    search_text, content = 'message', content_rowid = 'number', tokenize = 'unicode61'
);
CREATE VIRTUAL TABLE pieces USING fts5 (
    search_text, content = 'message', content_rowid = 'number', tokenize = 'trigram'
);
CREATE TRIGGER message_inserted AFTER INSERT ON message BEGIN
    INSERT INTO words (rowid, search_text) VALUES (new.number, new.search_text);
    INSERT INTO pieces (rowid, search_text) VALUES (new.number, new.search_text);
END;
CREATE TRIGGER message_deleted AFTER DELETE ON message BEGIN
    INSERT INTO words (words, rowid, search_text) VALUES ('delete', old.number, old.search_text);
    INSERT INTO pieces (pieces, rowid, search_text) VALUES ('delete', old.number, old.search_text);
END;
CREATE TRIGGER message_changed AFTER UPDATE OF search_text ON message BEGIN
    INSERT INTO words (words, rowid, search_text) VALUES ('delete', old.number, old.search_text);
    INSERT INTO pieces (pieces, rowid, search_text) VALUES ('delete', old.number, old.search_text);
    INSERT INTO words (rowid, search_text) VALUES (new.number, new.search_text);
    INSERT INTO pieces (rowid, search_text) VALUES (new.number, new.search_text);
END;
"""

MIGRATIONS = (Migration(version_number(1, 0), "chats, messages, parts, journal, search", _first),)
