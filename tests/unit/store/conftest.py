"""Stores, long chats and difficult disks for the tests of the store."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING, Protocol

import pytest

from hearth.app.chats import writing
from hearth.app.chats.records import Message, MessageId, Status, TextPart
from hearth.app.chats.store import ChatStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "chats"


@pytest.fixture
def store(folder: Path) -> Iterator[ChatStore]:
    store = ChatStore(folder)
    yield store
    store.close()


class Fill(Protocol):
    def __call__(
        self, store: ChatStore, chat_id: str, num_messages: int, *, text: str = "word " * 20
    ) -> MessageId: ...


@pytest.fixture
def fill() -> Fill:
    """Adds a linear conversation in one transaction; returns its leaf."""

    def add(
        store: ChatStore, chat_id: str, num_messages: int, *, text: str = "word " * 20
    ) -> MessageId:
        parent_id = store.chat(chat_id).leaf_id
        with store._database.writing() as connection:
            for number in range(num_messages):
                message = Message(
                    id=f"{chat_id}-{number}",
                    chat_id=chat_id,
                    parent_id=parent_id,
                    role="assistant" if number % 2 else "user",
                    parts=(TextPart(f"{number} {text}"),),
                    status=Status.COMPLETE,
                    created_at=float(number),
                    token_ids=tuple(range(100_000, 100_300)),
                )
                writing.insert_message(connection, message)
                parent_id = message.id
        assert parent_id is not None
        return parent_id

    return add


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Mounts a small disk in memory with the given options; skips where that is not allowed."""
    mounted: list[Path] = []

    def make(options: str) -> Path:
        place = tmp_path / f"disk{len(mounted)}"
        place.mkdir()
        program = shutil.which("mount")
        command = [str(program), "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        if program is None or subprocess.run(command, capture_output=True).returncode:
            pytest.skip("mounting a disk needs root")
        mounted.append(place)
        return place

    yield make
    for place in mounted:
        subprocess.run(["umount", str(place)], check=True)
