"""kill -9 at random instants: what was acknowledged is whole after the next start."""

from __future__ import annotations

import random
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from hearth.app.chats.records import AttachmentPart, Message, Status
from hearth.app.chats.store import ChatStore

if TYPE_CHECKING:
    from pathlib import Path

# Sends and journals for ever, and says each thing only after the store has returned.
WRITER = r"""
import sys
from pathlib import Path
from hearth.app.chats.records import AttachmentPart, Status, TextPart
from hearth.app.chats.store import ChatStore

def say(*words):
    print(*words, flush=True)

store = ChatStore(Path(sys.argv[1]))
chat = store.chats()[0] if store.chats() else store.create_chat(title="killed")
turn = int(sys.argv[2])
say("open")
while True:
    text = f"question {turn}\0\ud800 " + "long " * (turn % 7 * 400)
    parts = [TextPart(text)]
    if turn % 3 == 0:
        data = (f"paste {turn} " * 9000).encode()
        parts.insert(0, AttachmentPart(
            f"{turn}.txt", store.put_blob(data), len(data), "utf-8", data.decode()))
    user = store.add_message(chat.id, store.chat(chat.id).leaf_id, "user", parts)
    say("user", user.id, turn)
    reply = store.begin_reply(chat.id, user.id, model_name="m", model_fingerprint="f")
    say("reply", reply.id, turn)
    whole = ""
    for piece in range(6):
        whole += f"piece {piece} of {turn} é\n"
        store.journal(reply.id, f"piece {piece} of {turn} é\n", [turn, piece])
        say("journal", reply.id, piece)
    if turn % 4:
        store.finish_reply(
            reply.id, status=Status.COMPLETE, text=whole, token_ids=[turn], finish_reason="end")
        say("finished", reply.id, turn)
    if turn % 5 == 0:
        store.index(limit_s=0.01)
    turn += 1
"""


def _run_and_kill(folder: Path, turn: int, num_lines: int) -> list[list[str]]:
    """Run the writer until it has said ``num_lines``, kill it, and return all that it said."""
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder), str(turn)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(num_lines)]
        process.kill()  # at whatever it is doing right now
        said += process.stdout.read().splitlines(keepends=True)
    return [line.split() for line in said if line.endswith("\n")]


def _check_user(store: ChatStore, message: Message, turn: int) -> None:
    text = f"question {turn}\0\ud800 " + "long " * (turn % 7 * 400)
    assert message.parts[-1].text == text  # type: ignore[union-attr]
    if turn % 3 == 0:
        part = message.parts[0]
        assert isinstance(part, AttachmentPart)
        assert store.blob(part.blob_sha256) == (f"paste {turn} " * 9000).encode()


def _check_reply(message: Message, num_journalled: int, finished: bool) -> None:
    lines = message.text.splitlines()
    turn = lines[0].split()[3] if lines else ""
    assert lines == [f"piece {piece} of {turn} é" for piece in range(len(lines))]
    assert len(lines) >= num_journalled
    if finished:
        assert message.status is Status.COMPLETE
        assert message.token_ids == (int(turn),)
    if message.status is Status.INTERRUPTED:
        expected = [number for piece in range(len(lines)) for number in (int(turn), piece)]
        assert message.token_ids == tuple(expected)


@pytest.mark.parametrize("seed", range(3))
def test_nothing_acknowledged_is_lost(tmp_path: Path, seed: int) -> None:
    chosen = random.Random(seed)
    users: dict[str, int] = {}
    journalled: dict[str, int] = {}
    finished: set[str] = set()
    for round_number in range(6):
        turn = round_number * 1000
        for kind, *rest in _run_and_kill(tmp_path, turn, chosen.randrange(1, 60)):
            if kind == "user":
                users[rest[0]] = int(rest[1])
            elif kind == "reply":
                journalled[rest[0]] = 0
            elif kind == "journal":
                journalled[rest[0]] = int(rest[1]) + 1
            elif kind == "finished":
                finished.add(rest[0])
    assert users
    store = ChatStore(tmp_path)
    for message_id, turn in users.items():
        _check_user(store, store.message(message_id), turn)
    for message_id, num_journalled in journalled.items():
        _check_reply(store.message(message_id), num_journalled, message_id in finished)
    leaf_id = store.chats()[0].leaf_id
    if leaf_id is not None:
        assert {*users, *journalled} <= {message.id for message in store.path(leaf_id)}
    assert store.recovery.notices == ()
    assert store.verify() == []
    store.close()
