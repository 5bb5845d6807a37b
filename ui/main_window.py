"""The window: chat list, conversation, composer, status line. Owned by Qt's main thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, Qt, QTimer, Signal
from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QCloseEvent
from PySide6.QtWidgets import QMainWindow, QSplitter

from hearth.app.chats.records import Message, Status
from hearth.app.updates import (
    ChatChanged,
    ModelClosed,
    ModelFailed,
    ModelLoading,
    ModelReady,
    Notice,
    ReplyFinished,
    ReplyReading,
    ReplyStarted,
    ReplyText,
)
from hearth.ui import actions, viewers
from hearth.ui.branch import branch
from hearth.ui.chat_list import ChatList
from hearth.ui.chat_list_controller import ChatListController
from hearth.ui.chat_view.model import shown
from hearth.ui.conversation_pane import ConversationPane
from hearth.ui.drafts import Drafts
from hearth.ui.guard import attempt
from hearth.ui.message_actions import MessageActions
from hearth.ui.preferences import Preferences
from hearth.ui.thinking_switch import ThinkingSwitch
from hearth.ui.token_meter import TokenMeter, count_words

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hearth.app.chats.records import AttachmentPart
    from hearth.app.conversation import Conversations
    from hearth.app.settings import SettingsFile
    from hearth.app.updates import Update
    from hearth.ui.theme import Theme

FRAME_MS = 33


class MainWindow(QMainWindow):
    """Draws what Conversations says and passes on what the user wants.

    ``get_starter`` starts the download of the starter model; the window shows its progress by
    ``starter_progress`` and opens the model by ``open_model``.

    Signals:
        models_asked(): the user wants to see the models at hand and what they need.
    """

    models_asked = Signal()

    def __init__(
        self,
        conversations: Conversations,
        settings_file: SettingsFile,
        get_starter: Callable[[], None],
    ) -> None:
        super().__init__()
        self._conversations = conversations
        self._get_starter = get_starter
        self._chat_id: str | None = None
        self._preferences = Preferences(settings_file, self)
        self._build()
        self._connect()
        self.actions_by_id = actions.install(self, self._handlers())
        self._timer = QTimer(self, interval=FRAME_MS)
        self._timer.timeout.connect(self._frame)
        self._timer.start()
        for notice in settings_file.notices:
            self._banner.say(notice)
        self._chats.refresh()
        self._show_chat(None)

    # ------------------------------------------------------------------------------------ building

    def _build(self) -> None:
        self.setWindowTitle("Hearth")
        self.resize(1180, 800)
        self._list = ChatList(self.theme)
        self._pane = ConversationPane(self.theme)
        self._view, self._composer = self._pane.view, self._pane.composer
        self._banner, self._status = self._pane.banner, self._pane.status
        self._welcome = self._pane.welcome
        self._drafts = Drafts(self._composer)
        self._meter = TokenMeter(self._conversations, self)
        self._thinking = ThinkingSwitch(self._composer, self._preferences)
        self._splitter = QSplitter()
        self._splitter.setHandleWidth(1)
        self._splitter.addWidget(self._list)
        self._splitter.addWidget(self._pane)
        self._splitter.setStretchFactor(1, 1)
        self._splitter.setCollapsible(1, False)
        self.setCentralWidget(self._splitter)
        self._space()

    @property
    def theme(self) -> Theme:
        return self._preferences.theme

    def _space(self) -> None:
        """Sizes that follow the zoom."""
        px = self.theme.px
        self._list.setMinimumWidth(px(20))
        self._splitter.setSizes([px(31), max(self.width() - px(31), px(40))])

    def _connect(self) -> None:
        view, composer = self._view, self._composer
        self._preferences.trouble.connect(self._banner.say)
        self._preferences.theme_changed.connect(self._theme_changed)
        self._chats = ChatListController(self._list, self._conversations)
        self._chats.show_asked.connect(self._show_chat)
        self._chats.trouble.connect(self._banner.say)
        messages = MessageActions(self, view, self._conversations, lambda: self.theme)
        messages.edit_asked.connect(self._edit)
        messages.changed.connect(self._frame)
        messages.said.connect(self._status.say)
        messages.trouble.connect(self._banner.say)
        self._messages = messages
        composer.send_asked.connect(self._send)
        composer.stop_asked.connect(self._stop)
        composer.notice.connect(self._banner.say)
        composer.text_changed.connect(self._meter.count)
        self._meter.counted.connect(self._show_count)
        composer.edit_last_asked.connect(self._messages.edit_last)
        self._welcome.open_asked.connect(
            lambda: self._open_chosen(viewers.ask_for_model_file(self))
        )
        self._welcome.starter_asked.connect(self._get_starter)

    def _handlers(self) -> dict[str, Callable[[], None]]:
        return {
            "new_chat": lambda: self._show_chat(None),
            "search": self._list.search.setFocus,
            "regenerate": self._messages.regenerate_last,
            "edit_last": self._messages.edit_last,
            "previous_version": lambda: self._messages.step_last_version(-1),
            "next_version": lambda: self._messages.step_last_version(1),
            "stop": self._escape,
            "copy_answer": self._messages.copy_last,
            "think": self._thinking.toggle,
            "show_reasoning": self._messages.show_last_reasoning,
            "accessible_view": self._messages.show_last_answer,
            "system_prompt": self._edit_system_prompt,
            "delete_chat": self._delete_chat,
            "quit": self._quit,
            "open_model": lambda: self._open_chosen(viewers.ask_for_model_file(self)),
            "open_model_folder": lambda: self._open_chosen(viewers.ask_for_model_folder(self)),
            "get_starter": self._get_starter,
            "models": self.models_asked.emit,
            "zoom_in": lambda: self._preferences.zoom(25),
            "zoom_out": lambda: self._preferences.zoom(-25),
            "zoom_reset": lambda: self._preferences.zoom(0),
            "jump_to_latest": self._view.jump_to_latest,
            "focus_composer": self._composer.editor.setFocus,
            "settings": self._preferences.edit,
            "keys": lambda: viewers.show_keys(self.theme, self),
        }

    # ------------------------------------------------------------------------------------- frames

    def _frame(self) -> None:
        """30 times a second: what has happened since the last time."""
        for update in self._conversations.pump():
            self._take(update)
        message_id = self._running_message()
        running = self._conversations.running(message_id) if message_id is not None else None
        if message_id is not None and running is not None:
            self._status.show_live(running)
            self._view.show_thinking(message_id, running.reasoning_s)

    def _take(self, update: Update) -> None:
        match update:
            case ModelLoading(stage, done, total):
                self._welcome.show_progress(stage, done, total)
                self._status.say(f"{stage} …")
            case ModelReady(info):
                self._welcome.show_ready(info.name)
                self._status.show_model(info)
                self._thinking.show_model(info)
                self._update_context()
            case ModelFailed(sentence):
                self.show_no_model()
                self._banner.say(sentence)
            case ModelClosed():
                self._thinking.show_model(None)
                self._status.say("No model is open")
            case ReplyStarted(message):
                self._reply_started(message)
            case ReplyReading():
                if update.chat_id == self._chat_id:
                    self._status.show_reading(update.done, update.total)
            case ReplyText(chat_id=chat_id, message_id=message_id, text=text, reasoning=thought):
                if chat_id == self._chat_id and (text or thought):
                    self._view.append_text(message_id, text, thought)
            case ReplyFinished(message):
                self._reply_finished(message)
            case ChatChanged(chat_id):
                self._chats.refresh()
                if chat_id == self._chat_id:
                    self._reload()
            case Notice(sentence):
                self._banner.say(sentence)

    def _reply_started(self, message: Message) -> None:
        self._chats.refresh()
        if message.chat_id == self._chat_id:
            self._reload()
            self._announce("Answer started")

    def _reply_finished(self, message: Message) -> None:
        if message.chat_id != self._chat_id:
            return
        self._view.finish_message(shown(message, self._conversations.store.siblings(message.id)))
        self._composer.set_running(running=False)
        self._status.show_finished(message)
        self._update_context()
        self._announce("Answer complete" if message.status is Status.COMPLETE else "Answer ended")

    def _announce(self, text: str) -> None:
        """Once at the start and once at the end, for screen readers; never per token."""
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, text))

    # --------------------------------------------------------------------------------------- chats

    def _show_chat(self, chat_id: str | None, message_id: str | None = None) -> None:
        """Another chat, or a new one; the unsent text of each chat is kept."""
        self._drafts.switch(self._chat_id, chat_id)
        self._chat_id = chat_id
        self._reload(jump=message_id is None)
        if message_id is not None:
            self._view.scroll_to(message_id)
        self._chats.set_current(chat_id)
        self._composer.editor.setFocus()
        self._update_context()

    def _reload(self, *, jump: bool = True) -> None:
        """Show the branch in view of the current chat."""
        messages = branch(self._conversations, self._chat_id)
        self._view.set_messages(messages, at_end=jump)
        self._pane.show_conversation(has_messages=bool(messages))
        running = self._running_message()
        self._composer.set_running(running=running is not None)

    def _delete_chat(self) -> None:
        if self._chat_id is not None:
            self._chats.delete(self._chat_id)

    def _running_message(self) -> str | None:
        return self._conversations.running_in(self._chat_id) if self._chat_id else None

    # ------------------------------------------------------------------------------------- sending

    def _send(self, text: str, attachments: list[tuple[AttachmentPart, bytes]]) -> None:
        """Save and ask. The composer is emptied only when everything is on the disk."""
        message_id = self._drafts.editing
        if message_id is not None:
            if self._attempt(lambda: self._conversations.edit(message_id, text)):
                self._drafts.leave_editing()
                self._view.follow()
                self._frame()
            return
        store = self._conversations.store

        def send() -> None:
            for _, data in attachments:
                store.put_blob(data)
            if self._chat_id is None:
                self._chat_id = store.create_chat().id
                self._chats.set_current(self._chat_id)
            parts = [part for part, _ in attachments]
            self._conversations.send(self._chat_id, text, parts)

        if self._attempt(send):
            self._composer.clear()
            self._view.follow()
            self._frame()

    def say_for_user(self, text: str) -> None:
        """Write and send a message as the user would (documentation pictures, tests)."""
        self._composer.set_draft(text, [])
        self._send(text, [])

    def _attempt(self, action: Callable[[], object]) -> bool:
        """Run something that the machine may refuse; its sentence goes into the banner."""
        return attempt(action, self._banner.say)

    def _stop(self) -> None:
        running = self._running_message()
        if running is not None:
            self._composer.set_running(running=True, stopping=True)
            self._conversations.stop(running)

    def _escape(self) -> None:
        """Stops a reply; else leaves editing. Never empties the composer."""
        if self._running_message() is not None:
            self._stop()
        else:
            self._drafts.leave_editing()

    def _edit(self, message_id: str) -> None:
        """Put a message into the composer; sending makes a branch, Esc brings the draft back."""
        if self._running_message() is None:
            message = self._conversations.store.message(message_id)
            refused = self._drafts.edit(message_id, shown(message, []).text)
            if refused is not None:
                self._banner.say(refused)

    def _edit_system_prompt(self) -> None:
        store = self._conversations.store
        if self._chat_id is None:
            self._show_chat(store.create_chat().id)
            self._chats.refresh()
        assert self._chat_id is not None, "a chat has been made"
        chat = store.chat(self._chat_id)
        text = viewers.ask_for_system_prompt(chat.system_prompt, self)
        if text is not None:
            self._attempt(lambda: store.set_system_prompt(chat.id, text))

    def _show_count(self, count: int | None) -> None:
        """How long the draft is, and whether the context has room for it."""
        model = self._conversations.model
        if self._drafts.editing is not None:
            return
        room = model.context_length - self._context_used() if model is not None else None
        self._composer.set_meter(count_words(count, room))

    def _context_used(self) -> int:
        return self._conversations.context_used(self._chat_id) if self._chat_id else 0

    def _update_context(self) -> None:
        model = self._conversations.model
        if model is not None:
            self._status.show_context(self._context_used(), model.context_length)

    # --------------------------------------------------------------------------------------- model

    def _open_chosen(self, path: Path | None) -> None:
        if path is not None:
            self.open_model(path, remember=True)

    def open_model(self, path: Path, *, remember: bool = False) -> None:
        if remember:
            self._preferences.remember_model(path)
        self._welcome.show_progress("Opening", 0, 1)
        self._conversations.open_model(path)

    def starter_progress(self, done: int, total: int) -> None:
        self._welcome.show_progress("Downloading the starter model", done, total)

    def show_no_model(self) -> None:
        self._welcome.show_no_model()
        self._status.say("No model is open")

    def say(self, sentence: str) -> None:
        """A sentence in the banner."""
        self._banner.say(sentence)

    # ---------------------------------------------------------------------------------- the window

    def apply_theme(self) -> None:
        """Show what the settings say now."""
        self._preferences.apply()

    def _theme_changed(self) -> None:
        self._pane.set_theme(self.theme)
        self._space()

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.ThemeChange:
            self._preferences.system_changed()
        super().changeEvent(event)

    def _quit(self) -> None:
        self.close()

    def show_in_front(self) -> None:
        """A second start asked for this window."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()

    def closeEvent(self, event: QCloseEvent) -> None:
        """Quitting writes nothing that matters: it is already saved."""
        self._timer.stop()
        self._list.stop_timers()
        self._composer.stop_timers()
        self._meter.stop()
        self._conversations.close()
        event.accept()
