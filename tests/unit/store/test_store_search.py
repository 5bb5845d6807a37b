"""Search finds words, parts of words, code and short Chinese words, and survives any query."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hearth.app.chats.records import AttachmentPart, TextPart

if TYPE_CHECKING:
    from hearth.app.chats.store import ChatStore

TEXTS = {
    "accents": "Un café crème, naïve façade",
    "chinese": "我们使用缓存来加速",
    "code": "call bar(b) and foo->baz[3] or C++",
    "nul": "before\0after the nul",
    "half": "a lone \ud800 half",
    "quotes": 'she said "stop" AND left',
}


@pytest.fixture
def filled(store: ChatStore) -> ChatStore:
    chat = store.create_chat(title="things")
    for role, text in zip(("user", "assistant") * 3, TEXTS.values(), strict=True):
        store.add_message(chat.id, None, role, [TextPart(text)])  # type: ignore[arg-type]
    return store


def _found(store: ChatStore, query: str) -> set[str]:
    names = {text: name for name, text in TEXTS.items()}
    return {names[store.message(hit.message_id).text] for hit in store.search(query)}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("cafe", "accents"),
        ("CRÈME", "accents"),
        ("faca", "accents"),
        ("缓存", "chinese"),
        ("缓", "chinese"),
        ("用缓存来", "chinese"),
        ("bar(b", "code"),
        ("c+", "code"),
        ("C++", "code"),
        ("->baz", "code"),
        ("after the", "nul"),
        ("before\0after", "nul"),
        ("\ud800", "half"),
        ("lone \ud800 half", "half"),
        ('"stop"', "quotes"),
        ("left said", "quotes"),
    ],
)
def test_a_query_finds_its_message(filled: ChatStore, query: str, expected: str) -> None:
    assert _found(filled, query) == {expected}


@pytest.mark.parametrize(("query", "marked"), [("naïve", "naïve"), ("facade", "façade")])
def test_the_snippet_marks_the_match(filled: ChatStore, query: str, marked: str) -> None:
    (hit,) = filled.search(query)
    assert hit.snippet[hit.char_start : hit.char_end] == marked
    assert (hit.chat_title, hit.role) == ("things", "user")


def test_a_long_text_gives_a_short_snippet(store: ChatStore) -> None:
    chat = store.create_chat()
    store.add_message(chat.id, None, "user", [TextPart("x " * 5000 + "needle" + " y" * 5000)])
    (hit,) = store.search("needle")
    assert len(hit.snippet) == 160
    assert hit.snippet[hit.char_start : hit.char_end] == "needle"


def test_scope_and_limit(store: ChatStore) -> None:
    chat = store.create_chat()
    for role in ("user", "assistant", "user"):
        store.add_message(chat.id, None, role, [TextPart("same words")])  # type: ignore[arg-type]
    assert len(store.search("same")) == 3
    assert len(store.search("same", scope="assistant")) == 1
    assert [hit.role for hit in store.search("sa", scope="user")] == ["user", "user"]
    newest = store.children("none") or store.siblings(store.search("same", limit=1)[0].message_id)
    assert store.search("same", limit=1)[0].message_id == newest[-1]
    assert store.search("same", limit=0) == store.search("  ") == []


def test_attachments_are_found_by_name_and_text(store: ChatStore) -> None:
    chat = store.create_chat()
    part = AttachmentPart("Steuer 2025.txt", "0" * 64, 5, "utf-8", "Einkommen\nund Ausgaben")
    store.add_message(chat.id, None, "user", [part, TextPart("see above")])
    for query in ("ausgaben", "steuer", "2025.txt"):
        (hit,) = store.search(query)
        assert hit.snippet[hit.char_start : hit.char_end].lower() == query


def test_a_changed_reply_is_found_by_its_new_words(store: ChatStore) -> None:
    from hearth.app.chats.records import Status

    chat = store.create_chat()
    user = store.add_message(chat.id, None, "user", [TextPart("hi")])
    reply = store.begin_reply(chat.id, user.id, model_name="m", model_fingerprint="f")
    for text in ("former", "latter"):
        store.finish_reply(reply.id, status=Status.COMPLETE, text=text, token_ids=[])
        assert len(store.search(text)) == 1
    assert store.search("former") == []


def test_every_odd_character_is_a_query(filled: ChatStore) -> None:
    odd = [*map(chr, range(0x250)), *"\u2028\u202e\ufeff\uffff\ud800\udfff\U0010ffff"]
    for char in odd:
        for query in (char, f"a{char}", f"{char}{char}{char}", f"stop{char}", f"{char}and b"):
            filled.search(query)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(query=st.text(alphabet='ab"*^:(){}-+.,\0\\ANDORNEAT缓存é\ud800 \n', max_size=12))
def test_any_query_is_answered(filled: ChatStore, query: str) -> None:
    for hit in filled.search(query):
        assert 0 <= hit.char_start <= hit.char_end <= len(hit.snippet)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(text=st.text(min_size=3), data=st.data())
def test_any_piece_of_a_text_finds_it(store: ChatStore, text: str, data: st.DataObject) -> None:
    char_start = data.draw(st.integers(0, len(text) - 3))
    piece = text[char_start : char_start + 3]
    chat = store.create_chat()
    message = store.add_message(chat.id, None, "user", [TextPart(text)])
    if piece.strip():
        hits = store.search(piece, limit=1000)
        assert message.id in [hit.message_id for hit in hits]
