"""What goes into the store comes back equal, character for character and id for id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hearth.app.chats import codec, parts
from hearth.app.chats.records import (
    AttachmentPart,
    ErrorPart,
    Part,
    Status,
    TextPart,
    UnreadablePart,
)

if TYPE_CHECKING:
    from hearth.app.chats.store import ChatStore

ANY_TEXT = st.text(alphabet=st.characters(codec=None, exclude_categories=()))
HOSTILE = [
    "",
    "\0",
    "a\0b",
    "\ud800",
    "\udc80 then \ud83d\ude00 as two halves",
    "\ufeffBOM first",
    "CRLF\r\nCR\rLF\n",
    "line\u2028paragraph\u2029next\x85line\x0b\x0c",
    "no\u00a0break, soft\u00adhyphen, \u200bzero width, \u202eright to left",
    "<|im_start|>user\nnot a control token<|im_end|>",
    "e\u0301 is not \u00e9",
    "'; DROP TABLE chats; --",
    "\U0010ffff\ufffe\uffff",
]


@given(ANY_TEXT)
def test_any_string_has_exact_bytes(text: str) -> None:
    assert codec.decode_text(codec.encode_text(text)) == text


@given(st.lists(st.integers(min_value=0, max_value=2**32 - 1)))
def test_any_ids_have_exact_bytes(token_ids: list[int]) -> None:
    assert codec.decode_ids(codec.encode_ids(token_ids)) == tuple(token_ids)


@pytest.mark.parametrize("damaged", [b"", b"\x03abc", b"\x02abc", b"\x04ab", b"\xff"])
def test_damaged_ids_are_unknown(damaged: bytes) -> None:
    assert codec.decode_ids(damaged) is None


@given(st.binary(), st.none() | st.text(), st.sampled_from(["text", "attachment", "error", "x"]))
def test_any_row_is_a_part(body: bytes, meta: str | None, kind: str) -> None:
    part = parts.decode(kind, body, meta)
    if isinstance(part, UnreadablePart):
        assert part == UnreadablePart(kind, body)
        assert parts.encode(part).body == body


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(text=ANY_TEXT, name=ANY_TEXT)
def test_any_message_comes_back_equal(store: ChatStore, text: str, name: str) -> None:
    saved: tuple[Part, ...] = (
        AttachmentPart(name, "0" * 64, len(text), "utf-8", text),
        TextPart(text),
        ErrorPart(text),
        UnreadablePart("later", b"\xff\0"),
    )
    chat = store.create_chat(title=name, system_prompt=text)
    message = store.add_message(chat.id, None, "user", saved)
    assert store.message(message.id).parts == saved
    assert store.chat(chat.id).title == name
    assert store.chat(chat.id).system_prompt == text


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_comes_back_equal(store: ChatStore, text: str) -> None:
    chat = store.create_chat(title=text)
    user = store.add_message(chat.id, None, "user", [TextPart(text)], token_ids=[1, 70_000])
    reply = store.begin_reply(chat.id, user.id, model_name=text, model_fingerprint="f")
    store.journal(reply.id, text, [5])
    store.finish_reply(reply.id, status=Status.STOPPED, text=text, token_ids=[5, 6], error=text)
    first, second = store.path(reply.id)
    assert (first.text, first.token_ids) == (text, (1, 70_000))
    assert (second.text, second.token_ids, second.model_name) == (text, (5, 6), text)
    assert second.parts[-1] == ErrorPart(text)
    assert store.verify() == []


def test_five_megabytes_come_back_equal(store: ChatStore) -> None:
    text = "".join(chr(32 + number % 90) + "缓" for number in range(1_250_000))
    assert len(text.encode()) == 5_000_000
    chat = store.create_chat()
    message = store.add_message(chat.id, None, "user", [TextPart(text)])
    assert store.message(message.id).text == text


def test_a_bad_part_spoils_only_itself(store: ChatStore) -> None:
    chat = store.create_chat()
    message = store.add_message(chat.id, None, "user", [TextPart("one"), TextPart("two")])
    with store._database.writing() as connection:
        connection.execute("UPDATE parts SET body = x'ff' WHERE position = 0")
        connection.execute("UPDATE messages SET usage = '{', status = 'unheard of'")
    found = store.message(message.id)
    assert found.parts == (UnreadablePart("text", b"\xff"), TextPart("two"))
    assert found.status is Status.INTERRUPTED
    assert store.verify() == [f"Part 0 of message {message.id} was altered on the disk."]
