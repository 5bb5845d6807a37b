"""``hearth chat``: a conversation in the terminal, in the same store as the window's."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from hearth.app import compose
from hearth.app.chats.records import ErrorPart, Status
from hearth.app.chats.store import ChatStore
from hearth.app.cli.exits import EXIT_FAILED, EXIT_INTERRUPTED, EXIT_OK
from hearth.app.cli.interrupts import Interrupts
from hearth.app.conversation import Conversations
from hearth.app.documents import attachment_from_file
from hearth.app.models.registry import ModelRegistry
from hearth.app.settings import SettingsFile
from hearth.app.updates import (
    ModelFailed,
    ModelLoading,
    ModelReady,
    Notice,
    ReplyFinished,
    ReplyReading,
    ReplyText,
)
from hearth.app.usage_words import usage_words
from hearth.engine.errors import HearthError, UserError

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.app.chats.records import AttachmentPart, ChatId, Message, MessageId
    from hearth.app.profile import Profile
    from hearth.app.settings import Settings
    from hearth.app.updates import Update

WAIT_S = 0.25
EFFORTS = ("low", "medium", "high", "xhigh")
DIM, PLAIN = "\033[2m", "\033[0m"
COMMAND = re.compile("/[a-z]+")
HELP = """\
/new            a new chat              /chats          list the chats
/open N         open chat N of the list /regenerate     another answer
/edit TEXT      replace your last message and answer it
/attach FILE    add a text file to the next message
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


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", help="a model's name or path (default: the chosen model)")
    parser.add_argument("--prompt", help="say this, print the answer and leave")
    parser.add_argument("--file", action="append", default=[], help="attach a text file")
    parser.add_argument("--chat", help="continue the chat with this id")
    parser.add_argument("--last", action="store_true", help="continue the latest chat")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--temperature", type=float)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--max-tokens", type=int)
    parser.add_argument(
        "--think",
        action=argparse.BooleanOptionalAction,
        help="let the model think before it answers (default: as the settings say)",
    )
    parser.add_argument("--effort", choices=EFFORTS, help="how much it thinks")
    parser.add_argument("--drafting", choices=("auto", "off", "lookup"))
    parser.add_argument(
        "--keep-bf16",
        action="store_true",
        help="weights as published, whatever the settings narrow",
    )


def defaults(options: argparse.Namespace) -> argparse.Namespace:
    """The options of ``hearth chat`` for a program that was started without a command."""
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args([], namespace=options)


def run_chat(profile: Profile, options: argparse.Namespace) -> int:
    if not profile.claim():
        raise UserError(
            "Hearth is already running with this profile.",
            action="Use its window, close it, or add --temp-profile for a separate one.",
        )
    settings_file = SettingsFile(profile.paths.settings_file)
    _override(settings_file.values, options)
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
        terminal.show(Notice(notice))
    chosen = settings_file.values.model.path
    if options.model is None and chosen and not Path(chosen).exists():
        terminal.show(Notice(f"The chosen model {chosen} is not there; using {model_path.name}."))
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


def _override(settings: Settings, options: argparse.Namespace) -> None:
    chosen = settings.sampling
    for name in ("temperature", "seed", "max_tokens"):
        value = getattr(options, name)
        try:
            if value is not None:
                setattr(chosen, name, value)
        except ValidationError as error:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(f"{flag} {value} is impossible: {error.errors()[0]['msg']}.") from error
    if options.drafting is not None:
        settings.speed.drafting = options.drafting
    if options.think is not None:
        settings.thinking.mode = "on" if options.think else "off"
    if options.effort is not None:
        settings.thinking.effort = options.effort
    if options.keep_bf16:
        settings.wide_weights.keep_all()


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


@dataclass(slots=True)
class _Shown:
    """What the terminal has printed of the running reply."""

    reading: bool = False
    reasoning: bool = False  # the reasoning is on the screen, and nothing of the answer


class Terminal:
    """Reads lines, prints updates. With ``as_json`` every line of output is one JSON object."""

    def __init__(self, conversations: Conversations, *, as_json: bool) -> None:
        self._conversations = conversations
        self._as_json = as_json
        self._chat_id: ChatId | None = None
        self._attachments: list[AttachmentPart] = []
        self._shown = _Shown()
        self._exit_code = 0

    # -------------------------------------------------------------------------------------- output

    def _emit(self, **values: object) -> None:
        print(json.dumps(values, ensure_ascii=True), flush=True)

    def _say(self, text: str) -> None:
        if not self._as_json:
            print(text, file=sys.stderr, flush=True)

    def _progress(self, text: str) -> None:
        """A line that the next one replaces; only for a person's screen."""
        if not self._as_json and sys.stderr.isatty():
            print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)

    def show(self, update: Update) -> None:
        match update:
            case ModelLoading(stage, done, total):
                self._progress(f"{stage} … {done / max(total, 1):.0%}")
            case ModelReady(info):
                self._progress("")
                made_here = f", {info.requantised}" if info.requantised else ""
                context = f"{info.context_length:,} tokens of context"
                self._say(f"{info.name}{made_here}, {context}. /help helps.")
                if self._as_json:
                    self._emit(
                        event="model",
                        name=info.name,
                        context=info.context_length,
                        requantised=info.requantised,
                    )
            case ReplyReading(done=done, total=total):
                self._progress(f"Reading … {done:,} of {total:,} tokens")
                self._shown.reading = True
            case ReplyText():
                self._text(update)
            case ReplyFinished(message):
                self._finished(message)
            case ModelFailed(sentence) | Notice(sentence):
                self._say(sentence)
                if self._as_json:
                    self._emit(event="notice", text=sentence)
            case _:
                pass

    def _text(self, update: ReplyText) -> None:
        if self._as_json:
            reasoning = {"reasoning": update.reasoning} if update.reasoning else {}
            self._emit(event="text", text=update.text, **reasoning, tokens=update.num_tokens)
            return
        if self._shown.reading:
            self._progress("")
            self._shown.reading = False
        if update.reasoning and sys.stdout.isatty():  # a file gets the answer only
            self._write(f"{DIM}{update.reasoning}{PLAIN}")
            self._shown.reasoning = True
        if update.text and self._shown.reasoning:
            self._write("\n\n")
            self._shown.reasoning = False
        self._write(update.text)

    def _write(self, text: str) -> None:
        encoding = sys.stdout.encoding or "utf-8"
        print(text.encode(encoding, "replace").decode(encoding), end="", flush=True)

    def _finished(self, message: Message) -> None:
        usage = message.usage or {}
        self._shown.reasoning = False
        if self._as_json:
            thought = message.reasoning
            self._emit(
                event="reply",
                chat=message.chat_id,
                message=message.id,
                status=message.status.value,
                text=message.text,
                reasoning=thought.text if thought is not None else "",
                reasoning_s=thought.seconds if thought is not None else 0.0,
                token_ids=list(message.token_ids or ()),
                usage=usage,
                finish_reason=message.finish_reason,
            )
            return
        print(flush=True)
        for part in message.parts:
            if isinstance(part, ErrorPart):
                self._say(part.message)
        if usage:
            self._say(f"[{' · '.join(usage_words(usage))}]")

    # -------------------------------------------------------------------------------------- input

    def open_model(self, path: Path) -> None:
        """Open and wait. Raises UserError when the model cannot be opened."""
        self._conversations.open_model(path)
        while True:
            for update in self._conversations.wait(WAIT_S):
                if isinstance(update, ModelFailed):
                    raise UserError(update.sentence)
                self.show(update)
                if isinstance(update, ModelReady):
                    return

    def check_can_think(self) -> None:
        """Say so when what was asked for has no effect."""
        model = self._conversations.model
        if model is not None and not model.can_think:
            self.show(
                Notice(f"{model.name} has no switch for thinking; --think and --effort do nothing.")
            )

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
        self._say(f"— {chat.title} ({len(path)} messages)")
        for message in path[-2:]:
            self._say(f"{'You' if message.role == 'user' else 'Hearth'}: {message.text}")

    def attach(self, path: Path) -> None:
        part, data = attachment_from_file(path.expanduser())
        self._conversations.store.put_blob(data)
        self._attachments.append(part)
        self._say(f"{part.name}: {part.num_bytes:,} bytes, {part.encoding}")

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
                    self.show(update)
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
                self.show(Notice("This line is not UTF-8; nothing was sent."))
                continue
            try:
                if line.strip() == "/quit":
                    return 0
                self._obey(line)
            except HearthError as error:
                self.show(Notice(error.sentence))

    def _obey(self, line: str) -> None:
        """A command, or a message; a line that begins with a space is always a message."""
        command, _, argument = line.partition(" ")
        plain: dict[str, Callable[[], None]] = {
            "/help": lambda: self._say(HELP),
            "/new": self._new,
            "/chats": self._list,
            "/regenerate": self._regenerate,
        }
        with_argument: dict[str, Callable[[str], None]] = {
            "/open": self._open,
            "/edit": self._edit,
            "/attach": lambda name: self.attach(Path(name)),
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
        self._say("A new chat.")

    def _list(self) -> None:
        for number, chat in enumerate(self._conversations.store.chats(), start=1):
            self._say(f"{number:3}  {chat.title or 'New chat'}")

    def _open(self, argument: str) -> None:
        chats = self._conversations.store.chats()
        if not argument.isdigit() or not 1 <= int(argument) <= len(chats):
            raise UserError("Say the number of a chat: see /chats.")
        self._chat_id = chats[int(argument) - 1].id
        self._recall()

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
