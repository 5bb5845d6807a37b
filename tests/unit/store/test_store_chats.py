"""Chats, branches, replies, attachments, the bin and the checks."""

from __future__ import annotations

import os
import stat
import threading
from typing import TYPE_CHECKING

import pytest

from hearth.app.chats import blobs
from hearth.app.chats.records import AttachmentPart, Status, TextPart
from hearth.app.chats.store import ChatStore
from hearth.engine.errors import MachineError, UserError

if TYPE_CHECKING:
    from pathlib import Path


def test_pinned_chats_come_first_and_the_newest_next(store: ChatStore) -> None:
    chats = [store.create_chat(title=title) for title in ("a", "b", "c")]
    store.add_message(chats[0].id, None, "user", [TextPart("later than the others")])
    store.set_pinned(chats[1].id, pinned=True)
    assert [chat.title for chat in store.chats()] == ["b", "a", "c"]
    store.set_title(chats[2].id, "z")
    store.set_system_prompt(chats[2].id, "be brief")
    assert store.chat(chats[2].id).title == "z"
    assert store.chat(chats[2].id).system_prompt == "be brief"


def test_an_edit_is_a_sibling_and_nothing_is_hidden(store: ChatStore) -> None:
    chat = store.create_chat()
    first = store.add_message(chat.id, None, "user", [TextPart("one")])
    answer = store.add_message(chat.id, first.id, "assistant", [TextPart("uno")])
    edited = store.add_message(chat.id, None, "user", [TextPart("two")])
    again = store.add_message(chat.id, first.id, "assistant", [TextPart("ein")])
    assert store.siblings(first.id) == [first.id, edited.id]
    assert store.siblings(answer.id) == store.children(first.id) == [answer.id, again.id]
    assert store.versions(chat.id)[edited.id] == [first.id, edited.id]
    assert store.leaf_below(first.id) == again.id
    assert store.chat(chat.id).leaf_id == again.id
    store.set_leaf(chat.id, edited.id)
    assert store.chat(chat.id).leaf_id == edited.id
    assert [message.text for message in store.path(answer.id)] == ["one", "uno"]


def test_a_reply_is_rebuilt_from_its_journal(folder: Path, store: ChatStore) -> None:
    chat = store.create_chat()
    user = store.add_message(chat.id, None, "user", [TextPart("hi")])
    silent = store.begin_reply(chat.id, user.id, model_name="m", model_fingerprint="f")
    reply = store.begin_reply(chat.id, user.id, model_name="m", model_fingerprint="f")
    assert reply.status is Status.STREAMING
    for text, ids in (("hel", [1]), ("lo \ud83d", [2, 70_000]), ("\ude00", [])):
        store.journal(reply.id, text, ids)
    second = ChatStore(folder)  # as after kill -9: nothing was closed
    assert second.recovery.interrupted == (silent.id, reply.id)
    found = second.message(reply.id)
    assert (found.status, found.text) == (Status.INTERRUPTED, "hello \ud83d\ude00")
    assert found.token_ids == (1, 2, 70_000)
    assert second.message(silent.id).parts == ()
    second.close()
    finished = store.finish_reply(
        reply.id,
        status=Status.COMPLETE,
        text="hello",
        token_ids=[1],
        usage={"prompt_tokens": 3.0},
        finish_reason="end",
    )
    assert (finished.text, finished.usage, finished.finish_reason) == (
        "hello",
        {"prompt_tokens": 3.0},
        "end",
    )
    assert store.verify() == []


def test_damaged_journal_ids_do_not_cost_the_text(folder: Path, store: ChatStore) -> None:
    chat = store.create_chat()
    user = store.add_message(chat.id, None, "user", [TextPart("hi")])
    reply = store.begin_reply(chat.id, user.id, model_name="m", model_fingerprint="f")
    store.journal(reply.id, "kept", [1])
    with store._database.writing() as connection:
        connection.execute(
            "UPDATE journal SET token_ids = x'09', body = CAST(body || x'ff' AS BLOB)"
        )
    second = ChatStore(folder)
    assert second.message(reply.id).text == "kept\ufffd"
    assert second.message(reply.id).token_ids is None
    second.close()


def test_ids_of_a_turn_can_be_set_later(store: ChatStore) -> None:
    chat = store.create_chat()
    user = store.add_message(chat.id, None, "user", [TextPart("hi")])
    assert store.message(user.id).token_ids is None
    store.set_token_ids(user.id, [7, 8], "print", covers=2)
    found = store.message(user.id)
    assert (found.token_ids, found.model_fingerprint, found.covers) == ((7, 8), "print", 2)


def test_deleting_can_be_undone_until_it_is_purged(store: ChatStore) -> None:
    chat = store.create_chat(title="old")
    data = b"x" * 100_000
    part = AttachmentPart("a.txt", store.put_blob(data), len(data), "utf-8", data.decode())
    store.add_message(chat.id, None, "user", [part])
    store.index(limit_s=10)
    store.delete_chat(chat.id)
    assert store.chats() == []
    assert [each.title for each in store.chats(include_deleted=True)] == ["old"]
    assert store.search("xxx") == []
    store.restore_chat(chat.id)
    assert [each.title for each in store.chats()] == ["old"]
    store.delete_chat(chat.id)
    assert store.purge() == 0
    assert store.purge(older_than_s=0) == 1
    assert store.chats(include_deleted=True) == []
    with pytest.raises(UserError):
        store.chat(chat.id)
    assert store.verify() == []


def test_attachments_are_stored_once_and_collected_late(
    store: ChatStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    large, small = os.urandom(blobs.MAX_ROW_BYTES + 1), os.urandom(blobs.MAX_ROW_BYTES)
    names = [store.put_blob(large), store.put_blob(small)]
    assert names == [store.put_blob(large), store.put_blob(small)]
    files = [path for path in (folder / "blobs").rglob("*") if path.is_file()]
    assert [path.parent.name + path.name for path in files] == [names[0]]
    assert store.blob(names[0]) == large
    assert store.blob(names[1]) == small
    store.purge()  # a paste that is not sent yet is no garbage
    assert store.blob(names[0]) == large
    monkeypatch.setattr(blobs, "GRACE_S", -5.0)
    chat = store.create_chat()
    store.add_message(chat.id, None, "user", [AttachmentPart("s", names[1], 1, "utf-8", "")])
    store.purge()
    assert store.blob(names[1]) == small
    assert not files[0].exists()
    with pytest.raises(MachineError, match="missing"):
        store.blob(names[0])


def test_an_altered_attachment_is_refused_and_reported(store: ChatStore, folder: Path) -> None:
    name = store.put_blob(b"y" * 100_000)
    path = folder / "blobs" / name[:2] / name[2:]
    path.write_bytes(b"z" * 100_000)
    with pytest.raises(MachineError, match="damaged"):
        store.blob(name)
    assert store.verify() == [f"The attachment {name[:12]} is damaged."]
    store.put_blob(b"y" * 100_000)  # attaching it again mends it
    assert store.verify() == []


def test_verify_names_what_does_not_fit(store: ChatStore) -> None:
    chat = store.create_chat()
    message = store.add_message(chat.id, None, "user", [TextPart("some words")])
    store.index(limit_s=10)
    assert store.verify() == []
    with store._database.writing() as connection:
        connection.execute("UPDATE messages SET parent_id = 'gone'")
        connection.execute("UPDATE chats SET leaf_id = 'lost'")
        connection.execute("INSERT INTO words(words) VALUES ('delete-all')")
    assert store.verify() == [
        f"Message {message.id} answers gone, which does not exist.",
        f"Chat {chat.id} ends in message lost, which does not exist.",
        "The search index did not match the messages; it has been made again.",
    ]
    assert [each.text for each in store.path(message.id)] == ["some words"]
    assert len(store.search("words")) == 1


def test_everything_is_private(store: ChatStore, folder: Path) -> None:
    store.put_blob(b"x" * 100_000)
    store.backup()
    for path in (folder, *folder.rglob("*")):
        expected = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == expected, path


def test_the_newest_three_backups_are_kept(store: ChatStore, folder: Path) -> None:
    assert store.back_up_daily()
    assert not store.back_up_daily()
    made = [store.backup() for _ in range(4)]
    kept = {path for path in (folder / "backups").iterdir() if path.is_file()}
    assert kept == set(made[1:])


def test_another_thread_is_refused(store: ChatStore) -> None:
    refused: list[str] = []

    def use() -> None:
        try:
            store.chats()
        except AssertionError as error:
            refused.append(str(error))

    thread = threading.Thread(target=use)
    thread.start()
    thread.join()
    assert refused == ["the store was used from a foreign thread"]


def test_two_processes_may_write_in_turn(folder: Path, store: ChatStore) -> None:
    second = ChatStore(folder)
    for number in range(5):
        store.create_chat(title=f"first {number}")
        second.create_chat(title=f"second {number}")
    assert len(store.chats()) == len(second.chats()) == 10
    second._database.connection.execute("PRAGMA busy_timeout = 10")
    with store._database.writing(), pytest.raises(MachineError, match="Another program"):
        second.create_chat()
    second.close()
