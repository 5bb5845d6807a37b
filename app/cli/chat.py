"""``hearth chat``: a conversation in the terminal, in the same store as the window's."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hearth.app import compose
from hearth.app.chats.records import Status
from hearth.app.chats.store import ChatStore
from hearth.app.cli.chat_options import add_arguments, choose_thinking, override
from hearth.app.cli.exits import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from hearth.app.cli.interrupts import Interrupts
from hearth.app.cli.screen import Screen
from hearth.app.conversation import Conversations
from hearth.app.documents import attachment_from_file
from hearth.app.models.registry import ModelRegistry
from hearth.app.settings import SettingsFile
from hearth.app.updates import ModelFailed, ModelReady, Notice, ReplyFinished
from hearth.engine.errors import HearthError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.app.chats.records import AttachmentPart, ChatId, Message, MessageId
    from hearth.app.profile import Profile
    from hearth.app.settings import Settings

WAIT_S = 0.25
COMMAND = re.compile("/[a-z]+")
HELP = """\
/new            a new chat              /chats          list the chats
/open N         open chat N of the list /regenerate     another answer
/edit TEXT      replace your last message and answer it
/attach FILE    add a text file to the next message
/think WORD     before the answer: on, off, auto, or an effort (low, medium, high, xhigh)
/help           this list               /quit           leave (Ctrl+D too)
Ctrl+C stops the answer; what it wrote is kept. A second Ctrl+C leaves.
A line that begins with a space is sent even when it looks like a command."""


def add_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("chat", help="a conversation in the terminal")
    add_arguments(parser)
    parser.add_argument(
        "--temp-profile",
        action="store_true",
        default=argparse.SUPPRESS,  # given here or before the command
        help="a throw-away profile, removed at the end",
    )
    parser.set_defaults(run=run_chat)


def run_chat(profile: Profile, options: argparse.Namespace) -> int:
    if not profile.claim():
        raise UserError(
            "Hearth is already running with this profile.",
            action="Use its window, close it, or add --temp-profile for a separate one.",
        )
    settings_file = SettingsFile(profile.paths.settings_file)
    override(settings_file.values, options)
    if options.safe_mode:
        settings_file.values.speed.cache_gigabytes = 0.0
    model_path = _model_path(profile, settings_file.values, options.model)
    store = ChatStore(profile.paths.chats)
    store.purge()
    try:
        engine = compose.build_engine(profile.paths, settings_file.values)
    except HearthError:
        store.close()
        raise
    conversations = Conversations(store, engine, settings_file.values)
    terminal = Terminal(conversations, as_json=options.json)
    for notice in settings_file.notices:
        terminal.screen.show(Notice(notice))
    chosen = settings_file.values.model.path
    if options.model is None and chosen and not Path(chosen).exists():
        terminal.screen.show(
            Notice(f"The chosen model {chosen} is not there; using {model_path.name}.")
        )
    try:
        terminal.open_model(model_path)
        if options.think is not None or options.effort is not None:
            terminal.check_can_think()
        terminal.choose_chat(options.chat, latest=options.last)
        for file in options.file:
            terminal.attach(Path(file))
        if options.prompt is not None:
            return terminal.say(options.prompt)
        return terminal.converse()
    finally:
        conversations.close()


def _model_path(profile: Profile, settings: Settings, wanted: str | None) -> Path:
    registry = ModelRegistry(profile.paths.models)
    if wanted is not None:
        return registry.find(wanted).path
    path = registry.default(settings.model.path)
    if path is None:
        raise UserError(
            "There is no model yet.",
            action="Run 'hearth models pull starter', or name a file with --model.",
        )
    return path


class Terminal:
    """Reads lines and shows what comes of them on its ``screen``."""

    def __init__(self, conversations: Conversations, *, as_json: bool) -> None:
        self._conversations = conversations
        self._as_json = as_json
        self._chat_id: ChatId | None = None
        self._attachments: list[AttachmentPart] = []
        self.screen = Screen(as_json=as_json)
        self._exit_code = 0

    # -------------------------------------------------------------------------------------- input

    def open_model(self, path: Path) -> None:
        """Open and wait. Raises UserError when the model cannot be opened."""
        self._conversations.open_model(path)
        while True:
            for update in self._conversations.wait(WAIT_S):
                if isinstance(update, ModelFailed):
                    raise UserError(update.sentence)
                self.screen.show(update)
                if isinstance(update, ModelReady):
                    return

    def check_can_think(self) -> None:
        """Say so when what was asked for has no effect."""
        model = self._conversations.model
        if model is not None and not model.can_think:
            self.screen.show(Notice(f"{model.name} has no switch for thinking: nothing changes."))

    def choose_chat(self, chat_id: ChatId | None, *, latest: bool) -> None:
        store = self._conversations.store
        if chat_id is not None:
            self._chat_id = store.chat(chat_id).id
        elif latest:
            chats = store.chats()
            self._chat_id = chats[0].id if chats else None
        if self._chat_id is not None:
            self._recall()

    def _recall(self) -> None:
        assert self._chat_id is not None, "a chat is open"
        store = self._conversations.store
        chat = store.chat(self._chat_id)
        path = store.path(chat.leaf_id) if chat.leaf_id else []
        self.screen.say(f"— {chat.title} ({len(path)} messages)")
        for message in path[-2:]:
            self.screen.say(f"{'You' if message.role == 'user' else 'Hearth'}: {message.text}")

    def attach(self, path: Path) -> None:
        part, data = attachment_from_file(path.expanduser())
        self._conversations.store.put_blob(data)
        self._attachments.append(part)
        self.screen.say(f"{part.name}: {part.num_bytes:,} bytes, {part.encoding}")

    def say(self, text: str) -> int:
        """Send and wait for the answer; the exit code."""
        if self._chat_id is None:
            self._chat_id = self._conversations.store.create_chat().id
        attachments, self._attachments = self._attachments, []
        return self._await(self._conversations.send(self._chat_id, text, attachments))

    def _await(self, reply_id: MessageId) -> int:
        """Show a reply until it ends. Ctrl+C stops it, a second one leaves; the exit code."""
        with Interrupts() as interrupts:
            while True:
                for update in self._conversations.wait(WAIT_S):
                    self.screen.show(update)
                    if isinstance(update, ReplyFinished) and update.message.id == reply_id:
                        if interrupts.asked:
                            return EXIT_INTERRUPTED
                        return EXIT_FAILED if update.message.status is Status.FAILED else EXIT_OK
                if interrupts.is_new:
                    interrupts.is_new = False
                    self._conversations.stop(reply_id)

    def converse(self) -> int:
        """Read lines until the end of input."""
        while True:
            try:
                line = input("" if self._as_json or not sys.stdin.isatty() else "> ")
            except EOFError:
                return 0
            except UnicodeDecodeError:
                self.screen.show(Notice("This line is not UTF-8; nothing was sent."))
                continue
            try:
                if line.strip() == "/quit":
                    return 0
                self._obey(line)
            except HearthError as error:
                self.screen.show(Notice(error.sentence))

    def _obey(self, line: str) -> None:
        """A command, or a message; a line that begins with a space is always a message."""
        command, _, argument = line.partition(" ")
        plain: dict[str, Callable[[], None]] = {
            "/help": lambda: self.screen.say(HELP),
            "/new": self._new,
            "/chats": self._list,
            "/regenerate": self._regenerate,
        }
        with_argument: dict[str, Callable[[str], None]] = {
            "/open": self._open,
            "/edit": self._edit,
            "/attach": lambda name: self.attach(Path(name)),
            "/think": self._think,
        }
        if line.strip() in plain:
            plain[line.strip()]()
        elif command in with_argument:
            with_argument[command](argument)
        elif COMMAND.fullmatch(line.strip()) and line.startswith("/"):
            raise UserError(
                f"There is no command {line.strip()}.",
                action="See /help, or begin with a space to send it.",
            )
        elif line.strip():
            self.say(line)

    def _new(self) -> None:
        self._chat_id = None
        self.screen.say("A new chat.")

    def _list(self) -> None:
        for number, chat in enumerate(self._conversations.store.chats(), start=1):
            self.screen.say(f"{number:3}  {chat.title or 'New chat'}")

    def _open(self, argument: str) -> None:
        chats = self._conversations.store.chats()
        if not argument.isdigit() or not 1 <= int(argument) <= len(chats):
            raise UserError("Say the number of a chat: see /chats.")
        self._chat_id = chats[int(argument) - 1].id
        self._recall()

    def _think(self, word: str) -> None:
        self.screen.say(choose_thinking(self._conversations.settings.thinking, word.strip()))
        self.check_can_think()

    def _path(self) -> list[Message]:
        if self._chat_id is None:
            raise UserError("There is no chat yet.")
        leaf = self._conversations.store.chat(self._chat_id).leaf_id
        return self._conversations.store.path(leaf) if leaf else []

    def _regenerate(self) -> None:
        path = self._path()
        if not path:
            raise UserError("There is nothing to answer yet.")
        self._await(self._conversations.regenerate(path[-1].id))

    def _edit(self, text: str) -> None:
        own = [message for message in self._path() if message.role == "user"]
        if not own:
            raise UserError("There is no message of yours to edit.")
        self._await(self._conversations.edit(own[-1].id, text))
