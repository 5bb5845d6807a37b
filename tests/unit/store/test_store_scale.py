"""Long chats and many chats: reads stay a fixed number of statements, and streaming writes little.
How long they take is what ``hearth bench ui`` prints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hearth.app.chats import codec
from hearth.app.chats.records import Status, TextPart

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.app.chats.store import ChatStore
    from tests.unit.store.conftest import Fill

MAX_WRITTEN_BYTES_PER_1000_TOKENS = 1_000_000
MAX_STATEMENTS = 10


def _num_statements(store: ChatStore, work: Callable[[], object]) -> int:
    """How many SQL statements ``work`` runs."""
    statements: list[str] = []
    with store._database.writing() as connection:
        connection.set_trace_callback(statements.append)
    try:
        work()
    finally:
        connection.set_trace_callback(None)
    return sum(not line.startswith(("COMMIT", "BEGIN")) for line in statements)


def test_a_chat_of_1000_messages_is_one_read(store: ChatStore, fill: Fill) -> None:
    leaf_id = fill(store, store.create_chat().id, 1000, text="some words of a message " * 40)
    assert len(store.path(leaf_id)) == 1000
    assert 0 < _num_statements(store, lambda: store.path(leaf_id)) <= MAX_STATEMENTS


def test_a_list_of_2000_chats_is_one_read(store: ChatStore) -> None:
    with store._database.writing() as connection:
        connection.executemany(
            "INSERT INTO chats(id, title, system_prompt, created_at, updated_at)"
            " VALUES (?, ?, x'', 0, ?)",
            [(f"c{number}", f"title {number}".encode(), number) for number in range(2000)],
        )
    assert len(store.chats()) == 2000
    assert 0 < _num_statements(store, store.chats) <= MAX_STATEMENTS


def test_a_chat_of_10000_messages_stays_usable(store: ChatStore, fill: Fill) -> None:
    chat = store.create_chat()
    leaf_id = fill(store, chat.id, 10_000)
    assert len(store.path(leaf_id)) == 10_000
    assert store.leaf_below(store.path(leaf_id)[0].id) == leaf_id
    assert store.siblings(leaf_id) == [leaf_id]
    assert len(store.versions(chat.id)) == 10_000

    def add() -> None:
        store.add_message(chat.id, leaf_id, "user", [TextPart("x")])

    assert 0 < _num_statements(store, add) <= 3 * MAX_STATEMENTS
    assert store.index(limit_s=60)
    assert len(store.search("9999 word")) == 1


def test_ids_of_a_long_history_come_back() -> None:
    assert codec.decode_ids(codec.encode_ids(range(300_000))) == tuple(range(300_000))


def test_streaming_writes_little(store: ChatStore) -> None:
    """1,000 tokens at 20 a second: 50 journal entries and the end of the reply."""
    counters = Path("/proc/self/io")
    if not counters.exists():
        pytest.skip("this system does not count written bytes")

    def written_bytes() -> int:
        lines = counters.read_text().splitlines()
        return int(next(line.split()[1] for line in lines if line.startswith("wchar")))

    chat = store.create_chat()
    user = store.add_message(chat.id, None, "user", [TextPart("go")])
    reply = store.begin_reply(chat.id, user.id, model_name="m", model_fingerprint="f")
    before = written_bytes()
    for _ in range(50):
        store.journal(reply.id, "four " * 20, list(range(50_000, 50_020)))
    store.finish_reply(
        reply.id, status=Status.COMPLETE, text="four " * 1000, token_ids=range(50_000, 51_000)
    )
    assert written_bytes() - before < MAX_WRITTEN_BYTES_PER_1000_TOKENS
