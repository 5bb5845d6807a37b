"""What the chat list does: search, rename, pin, delete with undo. Knows the store, not the view."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QInputDialog

from hearth.ui.guard import attempt

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.app.conversation import Conversations
    from hearth.ui.chat_list import ChatList


class ChatListController(QObject):
    """Between the list and the store.

    Signals:
        show_asked(object, object): chat id (None: a new chat) and message id or None.
        trouble(str): a sentence for the banner.
    """

    show_asked = Signal(object, object)
    trouble = Signal(str)

    def __init__(self, chat_list: ChatList, conversations: Conversations) -> None:
        super().__init__(chat_list)
        self._list = chat_list
        self._conversations = conversations
        self._store = conversations.store
        self._current: str | None = None
        chat_list.chosen.connect(self._on_chosen)
        chat_list.new_asked.connect(lambda: self.show_asked.emit(None, None))
        chat_list.search_asked.connect(self._search)
        chat_list.rename_asked.connect(self._rename)
        chat_list.pin_asked.connect(self._pin)
        chat_list.delete_asked.connect(self.delete)
        chat_list.undo_asked.connect(self._undo_delete)

    def set_current(self, chat_id: str | None) -> None:
        self._current = chat_id
        self._list.select(chat_id)

    def refresh(self) -> None:
        """Show the chats again; a search that is on stays."""
        if not self._list.search.text():
            self._list.show_chats(self._store.chats(), self._current)

    def delete(self, chat_id: str) -> None:
        """Into the bin at once; the bar below the list takes it back."""
        running = self._conversations.running_in(chat_id)
        if running is not None:
            self._conversations.stop(running)
        title = self._store.chat(chat_id).title
        if self._attempt(lambda: self._store.delete_chat(chat_id)):
            self._list.offer_undo(chat_id, title)
            if chat_id == self._current:
                self.show_asked.emit(None, None)
            self.refresh()

    def _on_chosen(self, chat_id: str, message_id: str | None) -> None:
        if message_id is not None:
            self._attempt(lambda: self._bring_into_view(message_id))
        self.show_asked.emit(chat_id, message_id)

    def _bring_into_view(self, message_id: str) -> None:
        """A search hit may lie in a branch that is not in view."""
        message = self._store.message(message_id)
        leaf = self._store.chat(message.chat_id).leaf_id
        in_view = leaf is not None and any(m.id == message_id for m in self._store.path(leaf))
        if not in_view:
            self._store.set_leaf(message.chat_id, self._store.leaf_below(message_id))

    def _search(self, text: str) -> None:
        if text.strip():
            self._list.model.show_hits(self._store.search(text))
        else:
            self.refresh()

    def _rename(self, chat_id: str) -> None:
        title, ok = QInputDialog.getText(
            self._list, "Rename", "Title of the chat", text=self._store.chat(chat_id).title
        )
        if ok and self._attempt(lambda: self._store.set_title(chat_id, title)):
            self.refresh()

    def _pin(self, chat_id: str) -> None:
        pinned = self._store.chat(chat_id).pinned
        if self._attempt(lambda: self._store.set_pinned(chat_id, pinned=not pinned)):
            self.refresh()

    def _undo_delete(self, chat_id: str) -> None:
        if self._attempt(lambda: self._store.restore_chat(chat_id)):
            self.refresh()
            self.show_asked.emit(chat_id, None)

    def _attempt(self, action: Callable[[], object]) -> bool:
        return attempt(action, self.trouble.emit)
