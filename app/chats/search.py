"""Full-text search over messages and attachments, in any script, for any query.

Two indexes, because neither finds everything: ``words`` (unicode61) knows words, accents and
prefixes; ``grams`` (trigram) finds substrings of three characters and more, which is what Chinese
and code need. Shorter queries compare bytes. Indexing is derived work: saving a message only notes
its part in ``unindexed``, so that a long paste does not wait for the index.
"""

from __future__ import annotations

import re
import time
import unicodedata
from typing import TYPE_CHECKING, Literal

from hearth.app.chats.codec import encode_text, readable_text
from hearth.app.chats.records import SearchHit
from hearth.app.chats.schema import HAS_NUL, SEARCH_TABLES

if TYPE_CHECKING:
    import sqlite3

    from hearth.app.chats.database import Database, Row

Scope = Literal["all", "user", "assistant"]
MIN_GRAM_CHARS = 3
SNIPPET_BEFORE_CHARS = 40
SNIPPET_CHARS = 160
_INDEXES = ("words", "grams")
_WITH_NUL = f"SELECT seq FROM parts WHERE {HAS_NUL}"  # noqa: S608 - a constant
_HITS = """
    SELECT c.id, c.title, m.id, m.role, p.body, p.name FROM parts p
    JOIN messages m ON m.seq = p.message_seq JOIN chats c ON c.id = m.chat_id
    WHERE p.kind IN ('text', 'attachment') AND c.deleted_at IS NULL
    AND ? IN ('all', m.role)"""


def search(database: Database, query: str, *, scope: Scope, limit: int) -> list[SearchHit]:
    """Newest first, one hit per message. An empty query finds nothing."""
    query = query.strip()
    if not query or limit <= 0:
        return []
    if len(query) < MIN_GRAM_CHARS or not _is_indexable(query):
        rows = _compare_bytes(database, query, scope)
    else:
        rows = _look_up(database, query, scope)
    if database.read_only:
        rows += _compare_bytes(database, query, scope)  # what could not be indexed
    return _hits(rows, query, limit)


def index_pending(database: Database, *, limit_s: float | None = None) -> bool:
    """Index parts saved since the last call; True when none is left.

    Indexing 1 MB takes about 0.3 s. ``limit_s`` stops between two parts.
    """
    if database.read_only:
        return True
    started = time.monotonic()
    while True:
        pending = database.rows("SELECT part_seq FROM unindexed ORDER BY part_seq DESC LIMIT 64")
        if not pending:
            return True
        if limit_s is not None and time.monotonic() - started > limit_s:
            return False
        with database.writing(durable=False) as connection:
            for (part_seq,) in pending:
                _index_part(connection, part_seq)
                if limit_s is not None and time.monotonic() - started > limit_s:
                    break


def _index_part(connection: sqlite3.Connection, part_seq: int) -> None:
    for table in _INDEXES:
        connection.execute(
            f"INSERT INTO {table}(rowid, name, body)"  # noqa: S608
            " SELECT seq, name, body FROM part_text WHERE seq = ?",
            (part_seq,),
        )
    connection.execute("DELETE FROM unindexed WHERE part_seq = ?", (part_seq,))


def rebuild(database: Database) -> None:
    """Make both indexes again from the messages."""
    with database.writing() as connection:
        for table, statement in zip(_INDEXES, SEARCH_TABLES, strict=True):
            connection.execute(f"DROP TABLE IF EXISTS {table}")
            connection.execute(statement)
            connection.execute(f"INSERT INTO {table}({table}) VALUES ('rebuild')")  # noqa: S608
        connection.execute("DELETE FROM unindexed")


def check(database: Database) -> None:
    """Compare both indexes with the messages. Raises IndexDamagedError."""
    with database.writing(durable=False) as connection:
        for table in _INDEXES:
            connection.execute(
                f"INSERT INTO {table}({table}, rank) VALUES ('integrity-check', 1)"  # noqa: S608
            )


def is_about_index(message: str) -> bool:
    """Whether a line of SQLite's check is about a search index, which newer releases look into too.
    An index is made of the messages and can be made again: that is no damage to them."""
    return "FTS5 table" in message


def _is_indexable(query: str) -> bool:
    """False for text that FTS5's query language cannot carry: NUL, surrogates, no words."""
    if any(char == "\0" or "\ud800" <= char <= "\udfff" for char in query):
        return False
    return bool(_words_query(query)) or len(query) >= MIN_GRAM_CHARS


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"'


def _words_query(query: str) -> str:
    """All words, the last one as a prefix, because search runs while the user types."""
    words = [word for word in query.split() if any(char.isalnum() for char in word)]
    if not words:
        return ""
    # "C++" must not become every word that begins with c.
    prefix = "*" if words[-1].isalnum() and len(words[-1]) > 1 else ""
    return " AND ".join(map(_quoted, words)) + prefix


def _look_up(database: Database, query: str, scope: Scope) -> list[Row]:
    index_pending(database)
    found = "SELECT rowid FROM grams WHERE grams MATCH ?"
    parameters = [scope, _quoted(query)]
    words = _words_query(query)
    if words:
        found += " UNION SELECT rowid FROM words WHERE words MATCH ?"
        parameters.append(words)
    sql = f"{_HITS} AND p.seq IN ({found}) ORDER BY p.seq DESC"
    rows = database.rows(sql, tuple(parameters))
    return rows + _compare_bytes(database, query, scope, f"p.seq IN ({_WITH_NUL})")


def _compare_bytes(database: Database, query: str, scope: Scope, among: str = "TRUE") -> list[Row]:
    """Hits by comparing bytes, ``among`` the parts that this condition names."""
    variants = dict.fromkeys((query, query.lower(), query.upper(), query.title()))
    tests: list[str] = []
    parameters: list[str | bytes] = [scope]
    for variant in variants:
        tests.append("instr(p.body, ?) OR instr(CAST(p.name AS BLOB), ?)")
        parameters += [encode_text(variant)] * 2
    sql = f"{_HITS} AND {among} AND ({' OR '.join(tests)}) ORDER BY p.seq DESC"
    return database.rows(sql, tuple(parameters))


def _hits(rows: list[Row], query: str, limit: int) -> list[SearchHit]:
    hits: dict[str, SearchHit] = {}
    for chat_id, title, message_id, role, body, name in rows:
        if message_id in hits:
            continue
        snippet, char_start, char_end = _snippet(readable_text(body), name, query)
        hits[message_id] = SearchHit(
            chat_id=chat_id,
            chat_title=readable_text(title),
            message_id=message_id,
            role=role,
            snippet=snippet,
            char_start=char_start,
            char_end=char_end,
        )
        if len(hits) == limit:
            break
    return list(hits.values())


def _snippet(text: str, name: str | None, query: str) -> tuple[str, int, int]:
    """A piece of text around the first match, and where the match lies in the piece."""
    span = _find(text, query)
    if span is None and name and (in_name := _find(name, query)):
        text, span = name, in_name
    char_start, char_end = span or (0, 0)
    first = max(0, char_start - SNIPPET_BEFORE_CHARS)
    piece = text[first : max(first + SNIPPET_CHARS, char_end)]
    return piece, char_start - first, char_end - first


def _find(text: str, query: str) -> tuple[int, int] | None:
    """The whole query if it stands there, else its first word, else that without accents."""
    words = query.split()
    for wanted in (query, words[0]):
        match = re.search(re.escape(wanted), text, re.IGNORECASE)
        if match:
            return match.span()
    folded = _folded(words[0])
    char_start = _folded(text).find(folded)
    return None if char_start < 0 else (char_start, char_start + len(folded))


def _folded(text: str) -> str:
    """Lower case without accents, one character for one, so that positions stay valid."""
    table = {ord(char): _folded_char(char) for char in set(text)}
    return text.translate(table)


def _folded_char(char: str) -> str:
    folded = unicodedata.normalize("NFD", char)[0].lower()
    return folded if len(folded) == 1 else char
