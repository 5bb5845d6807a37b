"""The window: chat list, conversation, composer, status line. Owned by Qt's main thread."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleAnnouncementEvent,
    QCloseEvent,
    QDesktopServices,
    QResizeEvent,
)
from PySide6.QtWidgets import (
    QApplication,
    QFileDialog,
    QInputDialog,
    QMainWindow,
    QMessageBox,
    QSplitter,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from hearth.app import history
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
from hearth.engine.errors import HearthError
from hearth.ui import actions, theme
from hearth.ui.chat_list import ChatList
from hearth.ui.chat_view.model import ShownMessage, shown
from hearth.ui.chat_view.view import ChatView
from hearth.ui.composer import Composer
from hearth.ui.dialogs import SettingsDialog, TextDialog, prompt_text
from hearth.ui.status import Banner, StatusLine, Welcome

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.app.chats.records import AttachmentPart
    from hearth.app.conversation import Conversations
    from hearth.app.settings import SettingsFile
    from hearth.app.updates import Update

log = logging.getLogger(__name__)

FRAME_MS = 33
SAFE_SCHEMES = ("http", "https", "mailto")


class _Pane(QWidget):
    """The right side of the window.

    Signals:
        resized(): it has another width now.
    """

    resized = Signal()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.resized.emit()


class MainWindow(QMainWindow):
    """Draws what Conversations says and passes on what the user wants.

    ``get_starter`` starts the download of the starter model; the window shows its progress by
    ``starter_progress`` and opens the model by ``open_model``.
    """

    def __init__(
        self,
        conversations: Conversations,
        settings_file: SettingsFile,
        get_starter: Callable[[], None],
    ) -> None:
        super().__init__()
        self._conversations = conversations
        self._settings_file = settings_file
        self._get_starter = get_starter
        self._chat_id: str | None = None
        self._drafts: dict[str | None, tuple[str, list[tuple[AttachmentPart, bytes]]]] = {}
        self._editing: str | None = None
        look = settings_file.values.appearance
        self._theme = theme.choose(look.theme, look.zoom_percent)
        self._build()
        self._connect()
        self.actions_by_id = actions.install(self, self._handlers())
        self._timer = QTimer(self, interval=FRAME_MS)
        self._timer.timeout.connect(self._frame)
        self._timer.start()
        for notice in settings_file.notices:
            self._banner.say(notice)
        self._refresh_list()
        self._show_chat(None)

    # ------------------------------------------------------------------------------------ building

    def _build(self) -> None:
        self.setWindowTitle("Hearth")
        self.resize(1180, 800)
        self._list = ChatList(self._theme)
        self._view = ChatView(self._theme)
        self._composer = Composer(self._theme)
        self._banner = Banner(self._theme)
        self._status = StatusLine(self._theme)
        self._welcome = Welcome(self._theme)
        self._stack = QStackedWidget()
        self._stack.addWidget(self._welcome)
        self._stack.addWidget(self._view)
        self._right = _Pane()
        self._right.resized.connect(self._align_composer)
        self._column = QVBoxLayout(self._right)
        self._composer_row = QVBoxLayout()
        self._composer_row.addWidget(self._composer)
        for item in (self._banner, self._stack):
            self._column.addWidget(item, 1 if item is self._stack else 0)
        self._column.addLayout(self._composer_row)
        self._column.addWidget(self._status)
        self._splitter = QSplitter()
        self._splitter.setHandleWidth(1)
        self._splitter.addWidget(self._list)
        self._splitter.addWidget(self._right)
        self._splitter.setStretchFactor(1, 1)
        self._splitter.setCollapsible(1, False)
        self.setCentralWidget(self._splitter)
        self._space()

    def _space(self) -> None:
        """Sizes that follow the zoom."""
        px = self._theme.px
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(0)
        self._list.setMinimumWidth(px(20))
        self._splitter.setSizes([px(31), max(self.width() - px(31), px(40))])
        self._align_composer()

    def _align_composer(self) -> None:
        """The composer is as wide as the column of text above it."""
        px = self._theme.px
        column = theme.COLUMN_CHARS * self.fontMetrics().averageCharWidth() + 2 * px(1.5)
        side = max(px(2), (self._right.width() - column) // 2)
        self._composer_row.setContentsMargins(side, px(0.5), side, px(1))

    def _connect(self) -> None:
        chats, view, composer = self._list, self._view, self._composer
        chats.chosen.connect(self._on_chosen)
        chats.new_asked.connect(lambda: self._show_chat(None))
        chats.search_asked.connect(self._search)
        chats.rename_asked.connect(self._rename)
        chats.pin_asked.connect(self._pin)
        chats.delete_asked.connect(self._delete)
        chats.undo_asked.connect(self._undo_delete)
        view.asked.connect(self._on_asked)
        view.link_clicked.connect(self._ask_before_opening)
        composer.send_asked.connect(self._send)
        composer.stop_asked.connect(self._stop)
        composer.notice.connect(self._banner.say)
        composer.text_changed.connect(self._count)
        composer.edit_last_asked.connect(self._edit_last)
        self._welcome.open_asked.connect(self._open_model_file)
        self._welcome.starter_asked.connect(self._get_starter)

    def _handlers(self) -> dict[str, Callable[[], None]]:
        return {
            "new_chat": lambda: self._show_chat(None),
            "search": self._list.search.setFocus,
            "regenerate": self._regenerate_last,
            "edit_last": self._edit_last,
            "previous_version": lambda: self._step_last_version(-1),
            "next_version": lambda: self._step_last_version(1),
            "stop": self._escape,
            "copy_answer": self._copy_last,
            "accessible_view": self._plain_view,
            "system_prompt": self._edit_system_prompt,
            "delete_chat": lambda: self._delete(self._chat_id) if self._chat_id else None,
            "quit": self._quit,
            "open_model": self._open_model_file,
            "open_model_folder": self._open_model_folder,
            "get_starter": self._get_starter,
            "zoom_in": lambda: self._zoom(25),
            "zoom_out": lambda: self._zoom(-25),
            "zoom_reset": lambda: self._zoom(0),
            "jump_to_latest": self._view.jump_to_latest,
            "focus_composer": self._composer.editor.setFocus,
            "settings": self._open_settings,
            "keys": self._show_keys,
        }

    # ------------------------------------------------------------------------------------- frames

    def _frame(self) -> None:
        """30 times a second: what has happened since the last time."""
        for update in self._conversations.pump():
            self._take(update)
        running = self._running_message()
        if running is not None:
            self._status.show_live(self._conversations.running(running))

    def _take(self, update: Update) -> None:
        match update:
            case ModelLoading(stage, done, total):
                self._welcome.show_progress(stage, done, total)
                self._status.say(f"{stage} …")
            case ModelReady(info):
                self._welcome.show_ready(info.name)
                self._status.show_model(info)
                self._update_context()
            case ModelFailed(sentence):
                self._welcome.show_no_model()
                self._status.say("No model is open")
                self._banner.say(sentence)
            case ModelClosed():
                self._status.say("No model is open")
            case ReplyStarted(message):
                self._reply_started(message)
            case ReplyReading():
                if update.chat_id == self._chat_id:
                    self._status.show_reading(update.done, update.total)
            case ReplyText(chat_id=chat_id, message_id=message_id, text=text):
                if chat_id == self._chat_id and text:
                    self._view.append_text(message_id, text)
            case ReplyFinished(message):
                self._reply_finished(message)
            case ChatChanged(chat_id):
                self._refresh_list()
                if chat_id == self._chat_id:
                    self._reload()
            case Notice(sentence):
                self._banner.say(sentence)

    def _reply_started(self, message: Message) -> None:
        self._refresh_list()
        if message.chat_id == self._chat_id:
            self._reload()
            self._announce("Answer started")

    def _reply_finished(self, message: Message) -> None:
        if message.chat_id != self._chat_id:
            return
        versions = self._conversations.store.siblings(message.id)
        self._view.finish_message(shown(message, versions))
        self._composer.set_running(running=False)
        self._status.show_finished(message)
        self._update_context()
        self._announce("Answer complete" if message.status is Status.COMPLETE else "Answer ended")

    def _announce(self, text: str) -> None:
        """Once at the start and once at the end, for screen readers; never per token."""
        QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, text))

    # --------------------------------------------------------------------------------------- chats

    def _refresh_list(self) -> None:
        if not self._list.search.text():
            self._list.show_chats(self._conversations.store.chats(), self._chat_id)

    def _show_chat(self, chat_id: str | None, message_id: str | None = None) -> None:
        """Another chat, or a new one; the unsent text of each chat is kept."""
        self._drafts[self._chat_id] = self._composer.draft()
        self._chat_id, self._editing = chat_id, None
        self._reload(jump=message_id is None)
        if message_id is not None:
            self._view.scroll_to(message_id)
        self._composer.set_draft(*self._drafts.get(chat_id, ("", [])))
        self._list.select(chat_id)
        self._composer.editor.setFocus()
        self._update_context()

    def _reload(self, *, jump: bool = True) -> None:
        """Show the branch in view of the current chat."""
        messages = self._branch()
        self._view.set_messages(messages, at_end=jump)
        self._stack.setCurrentWidget(self._view if messages else self._welcome)
        running = self._running_message()
        self._composer.set_running(running=running is not None)

    def _branch(self) -> list[ShownMessage]:
        if self._chat_id is None:
            return []
        store = self._conversations.store
        leaf = store.chat(self._chat_id).leaf_id
        if leaf is None:
            return []
        versions = store.versions(self._chat_id)
        result = []
        for message in store.path(leaf):
            item = shown(message, versions.get(message.id, [message.id]))
            running = self._conversations.running(message.id)
            result.append(item if running is None else replace(item, text=running.text))
        return result

    def _running_message(self) -> str | None:
        return self._conversations.running_in(self._chat_id) if self._chat_id else None

    def _on_chosen(self, chat_id: str, message_id: str | None) -> None:
        if message_id is not None:
            self._guard(lambda: self._show_branch_of(message_id))
        self._show_chat(chat_id, message_id)

    def _show_branch_of(self, message_id: str) -> None:
        """A search hit may lie in a branch that is not in view."""
        store = self._conversations.store
        message = store.message(message_id)
        leaf = store.chat(message.chat_id).leaf_id
        in_view = leaf is not None and any(m.id == message_id for m in store.path(leaf))
        if not in_view:
            store.set_leaf(message.chat_id, store.leaf_below(message_id))

    def _search(self, text: str) -> None:
        store = self._conversations.store
        if text.strip():
            self._list.model.show_hits(store.search(text))
        else:
            self._list.show_chats(store.chats(), self._chat_id)

    def _rename(self, chat_id: str) -> None:
        store = self._conversations.store
        title, ok = QInputDialog.getText(
            self, "Rename", "Title of the chat", text=store.chat(chat_id).title
        )
        if ok:
            self._guard(lambda: store.set_title(chat_id, title))
            self._refresh_list()

    def _pin(self, chat_id: str) -> None:
        store = self._conversations.store
        pinned = store.chat(chat_id).pinned
        self._guard(lambda: store.set_pinned(chat_id, pinned=not pinned))
        self._refresh_list()

    def _delete(self, chat_id: str) -> None:
        """Into the bin at once; the bar below the list takes it back."""
        store = self._conversations.store
        running = self._conversations.running_in(chat_id)
        if running is not None:
            self._conversations.stop(running)
        title = store.chat(chat_id).title
        if self._guard(lambda: store.delete_chat(chat_id)):
            self._list.offer_undo(chat_id, title)
            if chat_id == self._chat_id:
                self._show_chat(None)
            self._refresh_list()

    def _undo_delete(self, chat_id: str) -> None:
        if self._guard(lambda: self._conversations.store.restore_chat(chat_id)):
            self._refresh_list()
            self._show_chat(chat_id)

    # ------------------------------------------------------------------------------------- sending

    def _send(self, text: str, attachments: list[tuple[AttachmentPart, bytes]]) -> None:
        """Save and ask. The composer is emptied only when everything is on the disk."""
        if self._editing is not None:
            message_id = self._editing
            if self._guard(lambda: self._conversations.edit(message_id, text)):
                self._editing = None
                self._composer.clear()
                self._view.follow()
            return
        store = self._conversations.store

        def send() -> None:
            for _, data in attachments:
                store.put_blob(data)
            if self._chat_id is None:
                self._chat_id = store.create_chat().id
                self._drafts.pop(None, None)
            parts = [part for part, _ in attachments]
            self._conversations.send(self._chat_id, text, parts)

        if self._guard(send):
            self._composer.clear()
            self._view.follow()
            self._frame()

    def say_for_user(self, text: str) -> None:
        """Write and send a message as the user would (documentation pictures, tests)."""
        self._composer.set_draft(text, [])
        self._send(text, [])

    def _guard(self, action: Callable[[], object]) -> bool:
        """Run something that the machine may refuse; its sentence goes into the banner."""
        try:
            action()
        except HearthError as error:
            self._banner.say(error.sentence)
            return False
        return True

    def _stop(self) -> None:
        running = self._running_message()
        if running is not None:
            self._composer.set_running(running=True, stopping=True)
            self._conversations.stop(running)

    def _escape(self) -> None:
        """Stops a reply; else leaves editing. Never empties the composer otherwise."""
        if self._running_message() is not None:
            self._stop()
        elif self._editing is not None:
            self._editing = None
            self._composer.clear()
            self._composer.set_meter("")

    def _on_asked(self, message_id: str, what: str) -> None:
        actions_of = {
            "copy": lambda: self._copy(message_id),
            "regenerate": lambda: self._regenerate(message_id),
            "edit": lambda: self._edit(message_id),
            "previous": lambda: self._step_version(message_id, -1),
            "next": lambda: self._step_version(message_id, 1),
            "prompt": lambda: self._show_prompt(message_id),
        }
        actions_of[what]()

    def _copy(self, message_id: str) -> None:
        widget = self._view.widget_of(message_id)
        if widget is not None:
            widget.copy()
            self._status.say("Copied")

    def _last(self, role: str) -> ShownMessage | None:
        return next((m for m in reversed(self._view.messages) if m.role == role), None)

    def _copy_last(self) -> None:
        last = self._last("assistant")
        if last is not None:
            QApplication.clipboard().setText(last.text)
            self._status.say("Copied")

    def _regenerate(self, message_id: str) -> None:
        if self._guard(lambda: self._conversations.regenerate(message_id)):
            self._view.follow()
            self._frame()

    def _regenerate_last(self) -> None:
        if self._view.messages:
            self._regenerate(self._view.messages[-1].id)

    def _edit(self, message_id: str) -> None:
        """Put the message into the composer; sending makes a branch, Esc leaves it."""
        message = self._conversations.store.message(message_id)
        self._editing = message_id
        text = shown(message, []).text
        self._composer.set_draft(text, [])
        self._composer.set_meter("Editing: Enter makes a new branch, Esc leaves it")
        self._composer.editor.setFocus()

    def _edit_last(self) -> None:
        last = self._last("user")
        if last is not None and self._running_message() is None:
            self._edit(last.id)

    def _step_version(self, message_id: str, step: int) -> None:
        versions = self._conversations.store.siblings(message_id)
        place = versions.index(message_id) + step
        if 0 <= place < len(versions):
            self._guard(lambda: self._conversations.show_version(versions[place]))
            self._frame()

    def _step_last_version(self, step: int) -> None:
        for message in reversed(self._view.messages):
            if message.num_versions > 1:
                self._step_version(message.id, step)
                return

    # ----------------------------------------------------------------------------------- looking

    def _show_prompt(self, message_id: str) -> None:
        """The ids that were run for a reply, and their texts."""
        store = self._conversations.store
        path = history.spoken(store.path(message_id))
        fingerprint = path[-1].model_fingerprint or ""
        ids = history.prompt_ids(path, fingerprint)
        model = self._conversations.model
        if ids is None or model is None or model.fingerprint != history.model_of(fingerprint):
            self._banner.say("The exact prompt of this answer is not known to the open model.")
            return
        pieces = self._conversations.token_texts(ids)
        intro = f"{len(ids):,} tokens, exactly what the model was given before this answer."
        TextDialog("Prompt", intro, prompt_text(pieces), self._theme, self).show()

    def _plain_view(self) -> None:
        last = self._last("assistant")
        if last is not None:
            TextDialog(
                "Answer", "The last answer as plain text.", last.text, self._theme, self
            ).show()

    def _edit_system_prompt(self) -> None:
        store = self._conversations.store
        if self._chat_id is None:
            chat_id = store.create_chat().id
            self._show_chat(chat_id)
            self._refresh_list()
        assert self._chat_id is not None, "a chat has been made"
        chat = store.chat(self._chat_id)
        text, ok = QInputDialog.getMultiLineText(
            self,
            "System prompt",
            "What the model is told before the conversation (empty: the model's own default)",
            chat.system_prompt,
        )
        if ok:
            self._guard(lambda: store.set_system_prompt(chat.id, text))

    def _show_keys(self) -> None:
        TextDialog(
            "Keys", "All commands and their keys.", actions.help_text(), self._theme, self
        ).show()

    def _ask_before_opening(self, url: QUrl) -> None:
        """Links never open by themselves, and only addresses that a browser or mail takes."""
        if url.scheme() not in SAFE_SCHEMES:
            self._banner.say(f"Hearth does not open links of this kind: {url.toDisplayString()}")
            return
        question = f"Open this address in your browser?\n\n{url.toDisplayString()}"
        answer = QMessageBox.question(self, "Open link", question)
        if answer == QMessageBox.StandardButton.Yes:
            QDesktopServices.openUrl(url)

    def _count(self, text: str) -> None:
        """How long the draft is, and how much of the context would be used."""
        if self._editing is not None:
            return
        count = self._conversations.count_tokens(text) if text else 0
        model = self._conversations.model
        if count is None or model is None or not text:
            self._composer.set_meter("")
            return
        used = self._conversations.context_used(self._chat_id) if self._chat_id else 0
        left = model.context_length - used - count
        words = f"{count:,} tokens"
        if left < 0:
            words += f" — {-left:,} more than the context has left"
        self._composer.set_meter(words)

    def _update_context(self) -> None:
        model = self._conversations.model
        if model is None:
            return
        used = self._conversations.context_used(self._chat_id) if self._chat_id else 0
        self._status.show_context(used, model.context_length)

    # --------------------------------------------------------------------------------------- model

    def _open_model_file(self) -> None:
        name, _ = QFileDialog.getOpenFileName(self, "Open a model", "", "Models (*.gguf);;All (*)")
        if name:
            self.open_model(Path(name), remember=True)

    def _open_model_folder(self) -> None:
        name = QFileDialog.getExistingDirectory(self, "Open a model folder")
        if name:
            self.open_model(Path(name), remember=True)

    def open_model(self, path: Path, *, remember: bool = False) -> None:
        if remember:
            self._settings_file.values.model.path = str(path)
            self._save_settings()
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

    # ---------------------------------------------------------------------------------- appearance

    def _open_settings(self) -> None:
        dialog = SettingsDialog(self._settings_file.values, self._theme, self)
        if dialog.exec():
            dialog.apply_to(self._settings_file.values)
            self._save_settings()
            self.apply_theme()

    def _save_settings(self) -> None:
        self._guard(self._settings_file.save)

    def _zoom(self, step: int) -> None:
        """``step`` 0 goes back to 100 %."""
        look = self._settings_file.values.appearance
        wanted = 100 if step == 0 else look.zoom_percent + step
        look.zoom_percent = min(max(wanted, 75), 300)
        self._save_settings()
        self.apply_theme()

    def apply_theme(self) -> None:
        look = self._settings_file.values.appearance
        self._theme = theme.choose(look.theme, look.zoom_percent)
        app = QApplication.instance()
        assert isinstance(app, QApplication), "the window belongs to an application"
        theme.apply(app, self._theme)
        for widget in (self._view, self._composer, self._welcome, self._status, self._banner):
            widget.set_theme(self._theme)
        self._space()

    def changeEvent(self, event: QEvent) -> None:
        """The system switched between light and dark."""
        is_auto = self._settings_file.values.appearance.theme == "auto"
        if event.type() == QEvent.Type.ThemeChange and is_auto:
            self.apply_theme()
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
        self._conversations.close()
        event.accept()
