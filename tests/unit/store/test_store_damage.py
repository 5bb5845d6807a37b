"""Damaged files: what was readable is recovered, and the damaged file is kept as it was."""

from __future__ import annotations

import contextlib
import random
import shutil
import sqlite3
from typing import TYPE_CHECKING

import pytest

from hearth.app.chats import failures, search
from hearth.app.chats.records import TextPart
from hearth.app.chats.store import ChatStore

if TYPE_CHECKING:
    from pathlib import Path

NUM_CHATS, NUM_MESSAGES = 12, 20


def _text(chat: int, number: int) -> str:
    return f"chat {chat} message {number} " + "some words " * 30


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A closed store with 12 chats of 20 messages; tests damage copies of it."""
    folder = tmp_path_factory.mktemp("sound")
    store = ChatStore(folder)
    for chat_number in range(NUM_CHATS):
        chat = store.create_chat(title=f"chat {chat_number}")
        parent_id = None
        for number in range(NUM_MESSAGES):
            text = TextPart(_text(chat_number, number))
            parent_id = store.add_message(chat.id, parent_id, "user", [text]).id
    store.index(limit_s=60)
    store.close()
    return folder


@pytest.fixture
def copy(sound: Path, tmp_path: Path) -> Path:
    return shutil.copytree(sound, tmp_path / "copy")


def _texts(store: ChatStore) -> dict[str, list[str]]:
    leaves = [(chat.title, chat.leaf_id) for chat in store.chats()]
    return {title: [m.text for m in store.path(leaf)] for title, leaf in leaves if leaf}


def _whole_texts() -> set[str]:
    return {_text(chat, number) for chat in range(NUM_CHATS) for number in range(NUM_MESSAGES)}


def _assert_recovered(folder: Path, damaged: bytes) -> ChatStore:
    store = ChatStore(folder)
    (kept,) = folder.glob("chats.sqlite3.damaged-????????-??????")
    assert kept.read_bytes() == damaged
    (notice,) = store.recovery.notices
    assert str(kept) in notice
    assert not list(folder.glob("*.reading*"))
    assert store.verify() == []
    return store


def test_a_sound_store_says_nothing(copy: Path) -> None:
    store = ChatStore(copy)
    assert store.recovery.notices == store.recovery.interrupted == ()
    assert sum(map(len, _texts(store).values())) == NUM_CHATS * NUM_MESSAGES
    store.close()


def test_a_zeroed_header_costs_nothing(copy: Path) -> None:
    path = copy / "chats.sqlite3"
    damaged = bytes(100) + path.read_bytes()[100:]
    path.write_bytes(damaged)
    store = _assert_recovered(copy, damaged)
    assert {text for texts in _texts(store).values() for text in texts} == _whole_texts()
    assert "12 chats with 240 messages" in store.recovery.notices[0]
    store.close()


@pytest.mark.parametrize("first_page", [1, 4, 9, 20, 33])
def test_a_zeroed_page_costs_only_its_rows(copy: Path, first_page: int) -> None:
    path = copy / "chats.sqlite3"
    damaged = bytearray(path.read_bytes())
    damaged[first_page * 4096 : (first_page + 1) * 4096] = bytes(4096)
    path.write_bytes(damaged)
    store = _assert_recovered(copy, bytes(damaged))
    found = {text for texts in _texts(store).values() for text in texts}
    assert found <= _whole_texts() | {""}
    store.close()


@pytest.mark.parametrize("share", [0.3, 0.7, 0.95])
def test_a_cut_file_gives_what_is_left(copy: Path, share: float) -> None:
    path = copy / "chats.sqlite3"
    damaged = path.read_bytes()[: int(path.stat().st_size * share)]
    path.write_bytes(damaged)
    store = _assert_recovered(copy, damaged)
    chat = store.create_chat(title="life goes on")
    store.add_message(chat.id, None, "user", [TextPart("still here")])
    assert len(store.search("still here")) == 1
    store.close()


@pytest.mark.parametrize("seed", range(25))
def test_flipped_bytes_never_stop_the_start(copy: Path, seed: int) -> None:
    path = copy / "chats.sqlite3"
    data = bytearray(path.read_bytes())
    chosen = random.Random(seed)
    for _ in range(chosen.choice([1, 20, 300])):
        data[chosen.randrange(len(data))] ^= 1 << chosen.randrange(8)
    path.write_bytes(data)
    store = ChatStore(copy)
    for chat in store.chats(include_deleted=True):
        if chat.leaf_id:
            store.path(chat.leaf_id)
    chat = store.create_chat(title="new")
    store.add_message(chat.id, None, "user", [TextPart("a new message")])
    assert "a new message" in [hit.snippet for hit in store.search("a new message")]
    store.verify()
    store.purge(older_than_s=0)
    store.close()
    kept = list(copy.glob("chats.sqlite3.damaged-????????-??????"))
    assert all(file.read_bytes() == bytes(data) for file in kept)


@pytest.mark.parametrize("content", [b"not a database at all" * 1000, bytes(50_000), b"x"])
def test_an_unreadable_file_is_kept_and_a_new_one_begun(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "chats.sqlite3").write_bytes(content)
    store = _assert_recovered(tmp_path, content)
    assert "starts with an empty one" in store.recovery.notices[0]
    assert store.chats() == []
    store.close()


def test_a_foreign_database_is_kept(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "chats.sqlite3") as foreign:
        foreign.execute("CREATE TABLE theirs(x)")
    foreign.close()
    store = _assert_recovered(tmp_path, (tmp_path / "chats.sqlite3").read_bytes())
    store.close()


def test_what_the_damage_took_comes_from_the_backup(copy: Path) -> None:
    store = ChatStore(copy)
    store.backup()
    extra = store.add_message(store.chats()[0].id, None, "user", [TextPart("after the backup")])
    store.close()
    path = copy / "chats.sqlite3"
    data = bytearray(path.read_bytes())
    for page in (4, 9, 20, 33):
        data[page * 4096 : (page + 1) * 4096] = bytes(4096)
    path.write_bytes(data)
    store = _assert_recovered(copy, bytes(data))
    with store._database.writing() as connection:
        bodies = [bytes(row[0]).decode() for row in connection.execute("SELECT body FROM parts")]
    assert _whole_texts() <= set(bodies)
    assert len(bodies) <= NUM_CHATS * NUM_MESSAGES + 1
    assert extra.text in bodies or len(bodies) == NUM_CHATS * NUM_MESSAGES
    store.close()


def test_an_empty_file_where_chats_were_is_recovered_from_the_backup(copy: Path) -> None:
    store = ChatStore(copy)
    store.backup()
    store.close()
    (copy / "chats.sqlite3").write_bytes(b"")
    store = _assert_recovered(copy, b"")
    assert "12 chats with 240 messages" in store.recovery.notices[0]
    store.close()


@pytest.mark.parametrize("damage", ["zeroed", "cut", "garbage"])
def test_a_damaged_log_tail_costs_only_what_was_in_it(tmp_path: Path, damage: str) -> None:
    live = ChatStore(tmp_path / "live")
    chat = live.create_chat(title="power cut")
    parent_id = None
    for number in range(30):
        message = live.add_message(chat.id, parent_id, "user", [TextPart(f"message {number}")])
        parent_id = message.id
    after = shutil.copytree(tmp_path / "live", tmp_path / "after")  # as the power cut left it
    live.close()
    wal = after / "chats.sqlite3-wal"
    data = bytearray(wal.read_bytes())
    tail = slice(len(data) * 2 // 3, None)
    if damage == "cut":
        del data[tail]
    else:
        length = len(data) - len(data) * 2 // 3
        data[tail] = bytes(length) if damage == "zeroed" else random.Random(1).randbytes(length)
    wal.write_bytes(data)
    (after / "chats.sqlite3-shm").unlink()
    store = ChatStore(after)
    assert store.recovery.notices == ()
    leaf_id = store.chats()[0].leaf_id
    assert leaf_id is not None
    texts = [message.text for message in store.path(leaf_id)]
    assert texts == [f"message {number}" for number in range(len(texts))]
    assert len(texts) >= 15
    assert store.verify() == []
    store.close()


def test_a_damaged_search_index_is_made_again(store: ChatStore) -> None:
    chat = store.create_chat()
    store.add_message(chat.id, None, "user", [TextPart("findable words")])
    store.index(limit_s=10)
    with store._database.writing() as connection:
        connection.execute("UPDATE words_data SET block = x'00ff00ff' WHERE id > 10")
        connection.execute("UPDATE grams_data SET block = x'00ff00ff' WHERE id > 10")
    assert len(store.search("findable")) == 1
    assert store.verify() == []
    with store._database.writing() as connection:
        connection.execute("UPDATE words_data SET block = x'00ff00ff' WHERE id > 10")
    store.delete_chat(chat.id)
    assert store.purge(older_than_s=0) == 1
    assert len(store.verify()) == 1
    assert store.verify() == []


def test_a_recovery_that_was_cut_off_is_finished_or_begun_again(copy: Path) -> None:
    path, recovering = copy / "chats.sqlite3", copy / "chats.sqlite3.recovering"
    shutil.copyfile(path, recovering)
    path.rename(copy / "chats.sqlite3.damaged-20260101-000000")
    (copy / "chats.sqlite3-wal").write_bytes(b"of the damaged file")
    store = ChatStore(copy)  # cut off between the two renames
    assert sum(map(len, _texts(store).values())) == NUM_CHATS * NUM_MESSAGES
    store.close()
    assert not recovering.exists()
    recovering.write_bytes(path.read_bytes()[:10_000])
    damaged = bytes(100) + path.read_bytes()[100:]
    path.write_bytes(damaged)
    (copy / "chats.sqlite3.damaged-20260101-000000").unlink()
    for kept in copy.glob("*.damaged-*-wal"):
        kept.unlink()
    store = _assert_recovered(copy, damaged)  # cut off while reading
    assert "240 messages" in store.recovery.notices[0]
    assert not recovering.exists()
    store.close()


@pytest.mark.parametrize("table", ["messages", "parts"])
def test_an_index_that_disagrees_with_its_table_is_found_at_the_start(
    copy: Path, table: str
) -> None:
    """SQLite's quick check says "ok" to this."""
    path = copy / "chats.sqlite3"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        [(page, size)] = connection.execute(
            "SELECT rootpage, (SELECT page_size FROM pragma_page_size) FROM sqlite_schema"
            " WHERE type = 'index' AND tbl_name = ? ORDER BY rootpage LIMIT 1",
            (table,),
        ).fetchall() or [(0, 0)]
    if page == 0:
        pytest.skip(f"{table} has no index of its own")
    data = bytearray(path.read_bytes())
    middle = (page - 1) * size + size - 40  # cells grow from the end of a page
    data[middle : middle + 8] = bytes(byte ^ 1 for byte in data[middle : middle + 8])
    path.write_bytes(data)
    store = ChatStore(copy)
    assert _texts(store)
    assert store.verify() == []
    store.close()


def test_damage_that_is_met_while_running_is_repaired_at_the_next_start(copy: Path) -> None:
    path = copy / "chats.sqlite3"
    before = path.read_bytes()
    failures.suspect(path)
    store = _assert_recovered(copy, before)
    assert {text for texts in _texts(store).values() for text in texts} == _whole_texts()
    assert not failures.suspicion(path).exists()
    store.close()
    again = ChatStore(copy)
    assert again.recovery.notices == ()
    again.close()


def test_what_newer_sqlite_says_of_an_index_is_no_damage_to_messages() -> None:
    """From 3.44 on, SQLite's check looks into search indexes; this machine's may be older."""
    assert search.is_about_index("malformed inverted index for FTS5 table main.words")
    assert not search.is_about_index("row 3 missing from index parts_of_message")
