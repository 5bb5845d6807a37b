"""Full-text search that finds words, code fragments and short CJK terms, for any query string."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from hearth.app.chats.codec import decode_text
from hearth.app.chats.records import SearchHit

if TYPE_CHECKING:
    import sqlite3

Scope = Literal["all", "user", "assistant"]
SNIPPET_CHARS_BEFORE, SNIPPET_CHARS = 40, 160
TRIGRAM_CHARS = 3  # shorter queries have no trigram: the text itself is scanned
SCANNED_MESSAGES = 20_000

_SELECT = """
SELECT m.id, m.chat_id, m.role, m.search_text, c.title FROM message AS m
JOIN chat AS c ON c.id = m.chat_id
WHERE c.deleted_at IS NULL AND (? = 'all' OR m.role = ?) AND
"""


def search(connection: sqlite3.Connection, query: str, scope: Scope, limit: int) -> list[SearchHit]:
    """Newest first. Every character of the query is text; there is no query language."""
    wanted = query.strip().replace("\0", " ").encode("utf-8", "replace").decode("utf-8")
    if not wanted:
        return []
    rows = _find(connection, wanted, scope, limit)
    return [_hit(row, wanted) for row in rows]


def _find(
    connection: sqlite3.Connection, wanted: str, scope: Scope, limit: int
) -> list[tuple[str, str, str, str, bytes]]:
    if len(wanted) < TRIGRAM_CHARS:
        condition = (
            "m.number > (SELECT coalesce(max(number), 0) FROM message) - ? "
            "AND instr(lower(m.search_text), lower(?)) > 0"
        )
        arguments: tuple[object, ...] = (SCANNED_MESSAGES, wanted)
    else:
        condition = (
            "(m.number IN (SELECT rowid FROM words WHERE words MATCH ?) "
            "OR m.number IN (SELECT rowid FROM pieces WHERE pieces MATCH ?))"
        )
        words = " ".join(_quoted(word) for word in wanted.split())
        arguments = (words, _quoted(wanted))
    statement = _SELECT + condition + " ORDER BY m.number DESC LIMIT ?"
    return list(connection.execute(statement, (scope, scope, *arguments, limit)))


def _quoted(text: str) -> str:
    """A string literal of FTS5."""
    return '"' + text.replace('"', '""') + '"'


def _hit(row: tuple[str, str, str, str, bytes], wanted: str) -> SearchHit:
    message_id, chat_id, role, text, title = row
    folded = text.casefold()
    needle = wanted.casefold()
    place = folded.find(needle)
    if place < 0:
        words = [folded.find(word) for word in needle.split()]
        place = min((word for word in words if word >= 0), default=0)
        needle = needle.split()[0]
    start = max(0, place - SNIPPET_CHARS_BEFORE)
    snippet = text[start : start + SNIPPET_CHARS].replace("\n", " ")
    char_start = min(place - start, len(snippet))
    char_end = min(char_start + len(needle), len(snippet))
    return SearchHit(
        chat_id, decode_text(title), message_id, _role(role), snippet, char_start, char_end
    )


def _role(role: str) -> Literal["system", "user", "assistant"]:
    return "user" if role == "user" else "assistant" if role == "assistant" else "system"
