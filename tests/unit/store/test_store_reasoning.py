"""Reasoning in the store: a part of its own, journalled, not searched, readable by older files."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from hearth.app.chats.migrations import STEPS, Version, stored_version
from hearth.app.chats.records import (
    ErrorPart,
    Message,
    ReasoningPart,
    Status,
    TextPart,
    UnreadablePart,
)
from hearth.app.chats.store import ChatStore

if TYPE_CHECKING:
    from pathlib import Path

THOUGHT = ReasoningPart("I </think> 缓存\0\ud800\n\n\u2028", 12.5)


def begin(store: ChatStore) -> Message:
    chat = store.create_chat(title="kept")
    user = store.add_message(chat.id, None, "user", [TextPart("why")])
    return store.begin_reply(chat.id, user.id, model_name="m", model_fingerprint="f")


def test_reasoning_is_kept_exactly_before_the_answer(store: ChatStore, folder: Path) -> None:
    reply = begin(store)
    finished = store.finish_reply(
        reply.id,
        status=Status.FAILED,
        text="Yes",
        token_ids=[1],
        reasoning=THOUGHT,
        error="It broke.",
    )
    assert finished.parts == (THOUGHT, TextPart("Yes"), ErrorPart("It broke."))
    assert finished.reasoning == THOUGHT
    assert finished.text == "Yes"
    store.close()
    again = ChatStore(folder)
    assert again.message(reply.id) == finished
    assert again.verify() == []
    again.close()


def test_reasoning_is_not_searched(store: ChatStore) -> None:
    reply = begin(store)
    thought = ReasoningPart("perhaps zebras", 1.0)
    store.finish_reply(
        reply.id, status=Status.COMPLETE, text="lions", token_ids=[1], reasoning=thought
    )
    assert store.search("lions")
    assert not store.search("zebras")


@pytest.fixture
def interrupted(store: ChatStore, folder: Path) -> tuple[Path, str]:
    """What a killed program leaves: a journal of reasoning and the first words."""
    reply = begin(store)
    store.journal(reply.id, "", [1, 2], ReasoningPart("so be", 1.0))
    store.journal(reply.id, "", [], ReasoningPart(" it\ud800", 2.5))
    store.journal(reply.id, "Yes", [3])
    killed = folder.with_name("killed")
    shutil.copytree(folder, killed)
    return killed, reply.id


def test_a_killed_program_leaves_its_reasoning(interrupted: tuple[Path, str]) -> None:
    folder, reply_id = interrupted
    store = ChatStore(folder)
    reply = store.message(reply_id)
    assert reply.status is Status.INTERRUPTED
    assert reply.parts == (ReasoningPart("so be it\ud800", 2.5), TextPart("Yes"))
    assert reply.token_ids == (1, 2, 3)
    rows = store._database.rows("SELECT count(*) FROM reasoning_journal")
    assert rows == [(0,)]
    store.close()


def test_reading_only_shows_the_journalled_reasoning(interrupted: tuple[Path, str]) -> None:
    folder, reply_id = interrupted
    with closing(sqlite3.connect(folder / "chats.sqlite3")) as connection:
        connection.execute(f"PRAGMA user_version = {Version(9, 0).number}")
    store = ChatStore(folder)
    assert store.recovery.read_only
    assert store.message(reply_id).reasoning == ReasoningPart("so be it\ud800", 2.5)
    store.close()


def test_a_file_of_the_first_version_is_upgraded(folder: Path) -> None:
    first = ChatStore(folder, steps=STEPS[:1])
    assert stored_version(first._database.connection) == Version(1, 0)
    first.add_message(first.create_chat().id, None, "user", [TextPart("old")])
    first.close()
    store = ChatStore(folder)
    assert stored_version(store._database.connection) == STEPS[-1].version
    reply = begin(store)
    store.journal(reply.id, "", [1], THOUGHT)
    store.close()


@pytest.mark.parametrize("meta", ["{}", "x", None, '{"seconds": "x"}', "[]"])
def test_a_part_with_damaged_seconds_keeps_its_bytes(store: ChatStore, meta: str | None) -> None:
    reply = begin(store)
    store.finish_reply(
        reply.id, status=Status.COMPLETE, text="", token_ids=[1], reasoning=ReasoningPart("so", 1)
    )
    store._database.connection.execute(
        "UPDATE parts SET meta = ? WHERE kind = 'reasoning'", (meta,)
    )
    assert store.message(reply.id).parts == (UnreadablePart("reasoning", b"so"),)
