"""What can be done with a message: copy, write again, edit, other versions, look closer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal

from hearth.ui import clipboard, viewers
from hearth.ui.guard import attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from PySide6.QtWidgets import QWidget

    from hearth.app.conversation import Conversations
    from hearth.ui.chat_view.model import ShownMessage
    from hearth.ui.chat_view.view import ChatView
    from hearth.ui.theme import Theme


class MessageActions(QObject):
    """Between the conversation view and the conversations.

    Signals:
        edit_asked(str): message id; the window puts its text into the composer.
        changed(): a reply was asked for or another version is in view.
        said(str): a short word for the status line.
        trouble(str): a sentence for the banner.
    """

    edit_asked = Signal(str)
    changed = Signal()
    said = Signal(str)
    trouble = Signal(str)

    def __init__(
        self,
        window: QWidget,
        view: ChatView,
        conversations: Conversations,
        theme: Callable[[], Theme],
    ) -> None:
        super().__init__(window)
        self._window = window
        self._view = view
        self._conversations = conversations
        self._theme = theme
        view.asked.connect(self._on_asked)
        view.link_clicked.connect(lambda url: self._say_if(viewers.open_link(url, window)))

    def _on_asked(self, message_id: str, what: str) -> None:
        actions: dict[str, Callable[[str], None]] = {
            "copy": self._copy,
            "regenerate": self.regenerate,
            "edit": self.edit_asked.emit,
            "previous": lambda message: self._step_version(message, -1),
            "next": lambda message: self._step_version(message, 1),
            "prompt": self._show_prompt,
        }
        actions[what](message_id)

    def regenerate(self, message_id: str) -> None:
        """Another version of a reply, or an answer to a message without one."""
        if self._attempt(lambda: self._conversations.regenerate(message_id)):
            self._view.follow()
            self.changed.emit()

    def regenerate_last(self) -> None:
        if self._view.messages:
            self.regenerate(self._view.messages[-1].id)

    def edit_last(self) -> None:
        last = self._last("user")
        if last is not None:
            self.edit_asked.emit(last.id)

    def copy_last(self) -> None:
        last = self._last("assistant")
        if last is not None:
            clipboard.copy(last.text)
            self.said.emit("Copied")

    def show_last_reasoning(self) -> None:
        thought = [message.id for message in self._view.messages if message.reasoning]
        if thought:
            self._view.scroll_into_sight(thought[-1])
            self._view.toggle_reasoning(thought[-1])

    def show_last_answer(self) -> None:
        last = self._last("assistant")
        if last is not None:
            viewers.show_answer(last.text, self._theme(), self._window)

    def step_last_version(self, step: int) -> None:
        for message in reversed(self._view.messages):
            if message.num_versions > 1:
                self._step_version(message.id, step)
                return

    def _last(self, role: str) -> ShownMessage | None:
        return next((m for m in reversed(self._view.messages) if m.role == role), None)

    def _copy(self, message_id: str) -> None:
        widget = self._view.widget_of(message_id)
        if widget is not None:
            widget.copy()
            self.said.emit("Copied")

    def _step_version(self, message_id: str, step: int) -> None:
        versions = self._conversations.store.siblings(message_id)
        place = versions.index(message_id) + step
        if 0 <= place < len(versions):
            self._attempt(lambda: self._conversations.show_version(versions[place]))
            self.changed.emit()

    def _show_prompt(self, message_id: str) -> None:
        theme = self._theme()
        self._say_if(viewers.show_prompt(self._conversations, message_id, theme, self._window))

    def _say_if(self, sentence: str | None) -> None:
        if sentence is not None:
            self.trouble.emit(sentence)

    def _attempt(self, action: Callable[[], object]) -> bool:
        return attempt(action, self.trouble.emit)
