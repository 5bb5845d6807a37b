"""The list of chats with search, pinning and a delete that can be undone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import (
    QAbstractListModel,
    QModelIndex,
    QPersistentModelIndex,
    QPoint,
    Qt,
    QTimer,
    Signal,
)
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QMenu,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hearth.app.chats.records import Chat, SearchHit
    from hearth.ui.theme import Theme

SEARCH_AFTER_MS = 180
UNDO_MS = 12_000
ID_ROLE = Qt.ItemDataRole.UserRole
MESSAGE_ROLE = Qt.ItemDataRole.UserRole + 1


class ChatListModel(QAbstractListModel):
    """Chats, or what a search found: (chat id, message id, text)."""

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[tuple[str, str | None, str]] = []

    def show_chats(self, chats: Sequence[Chat]) -> None:
        rows = [
            (chat.id, None, ("📌 " if chat.pinned else "") + (chat.title or "New chat"))
            for chat in chats
        ]
        self._set(rows)

    def show_hits(self, hits: Sequence[SearchHit]) -> None:
        rows: list[tuple[str, str | None, str]] = [
            (hit.chat_id, hit.message_id, f"{hit.chat_title or 'New chat'}\n{hit.snippet}")
            for hit in hits
        ]
        self._set(rows)

    def _set(self, rows: Sequence[tuple[str, str | None, str]]) -> None:
        if list(rows) == self._rows:
            return
        self.beginResetModel()
        self._rows = list(rows)
        self.endResetModel()

    def rowCount(self, parent: QModelIndex | QPersistentModelIndex | None = None) -> int:
        return len(self._rows)

    def data(
        self,
        index: QModelIndex | QPersistentModelIndex,
        role: int = Qt.ItemDataRole.DisplayRole,
    ) -> object:
        chat_id, message_id, text = self._rows[index.row()]
        if role in (Qt.ItemDataRole.DisplayRole, Qt.ItemDataRole.ToolTipRole):
            return text
        return {ID_ROLE: chat_id, MESSAGE_ROLE: message_id}.get(role)

    def row_of(self, chat_id: str) -> int | None:
        return next((row for row, item in enumerate(self._rows) if item[0] == chat_id), None)


class ChatList(QWidget):
    """Takes chats, emits intent.

    Signals:
        chosen(str, object): chat id, and the message id when a search hit was chosen.
        new_asked()
        search_asked(str): text of the search field, after a pause; empty shows all chats.
        rename_asked(str), pin_asked(str), delete_asked(str), undo_asked(str): chat id.
    """

    chosen = Signal(str, object)
    new_asked = Signal()
    search_asked = Signal(str)
    rename_asked = Signal(str)
    pin_asked = Signal(str)
    delete_asked = Signal(str)
    undo_asked = Signal(str)

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("sidebar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.model = ChatListModel()
        self._new = QPushButton("New chat")
        self.search = QLineEdit(placeholderText="Search all chats", clearButtonEnabled=True)
        self.search.setAccessibleName("Search all chats")
        self.view = QListView()
        self.view.setModel(self.model)
        self.view.setAccessibleName("Chats")
        self.view.setTextElideMode(Qt.TextElideMode.ElideRight)
        self.view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self._undo = _UndoBar()
        self._arrange(theme)
        self._timer = QTimer(self, singleShot=True, interval=SEARCH_AFTER_MS)
        self._connect()

    def _arrange(self, theme: Theme) -> None:
        px = theme.px
        layout = QVBoxLayout(self)
        layout.setContentsMargins(px(1.25), px(1.5), px(1.25), px(1.25))
        layout.setSpacing(px(1))
        for widget in (self._new, self.search, self.view, self._undo):
            layout.addWidget(widget)

    def _connect(self) -> None:
        self._new.clicked.connect(self.new_asked)
        self._timer.timeout.connect(lambda: self.search_asked.emit(self.search.text()))
        self.search.textChanged.connect(lambda _: self._timer.start())
        self.view.clicked.connect(self._choose)
        self.view.activated.connect(self._choose)
        self.view.customContextMenuRequested.connect(self._menu)
        self._undo.undone.connect(self.undo_asked)

    def show_chats(self, chats: Sequence[Chat], current: str | None) -> None:
        self.model.show_chats(chats)
        self.select(current)

    def select(self, chat_id: str | None) -> None:
        row = self.model.row_of(chat_id) if chat_id is not None else None
        if row is None:
            self.view.clearSelection()
            self.view.setCurrentIndex(QModelIndex())
        else:
            self.view.setCurrentIndex(self.model.index(row))

    def stop_timers(self) -> None:
        """Before the store closes: no search comes after it."""
        self._timer.stop()

    def offer_undo(self, chat_id: str, title: str) -> None:
        self._undo.offer(chat_id, title)

    def _choose(self, index: QModelIndex) -> None:
        self.chosen.emit(index.data(ID_ROLE), index.data(MESSAGE_ROLE))

    def _menu(self, place: QPoint) -> None:
        index = self.view.indexAt(place)
        if not index.isValid():
            return
        chat_id = str(index.data(ID_ROLE))
        menu = QMenu(self)
        menu.addAction("Rename …", lambda: self.rename_asked.emit(chat_id))
        menu.addAction("Pin or unpin", lambda: self.pin_asked.emit(chat_id))
        menu.addSeparator()
        menu.addAction("Delete", lambda: self.delete_asked.emit(chat_id))
        menu.popup(self.view.viewport().mapToGlobal(place))


class _UndoBar(QWidget):
    """Offers the last deletion back for a while; the bin keeps it for 30 days anyway.

    Signals:
        undone(str): chat id.
    """

    undone = Signal(str)

    def __init__(self) -> None:
        super().__init__()
        self._chat_id = ""
        self._text = QLabel()
        self._text.setObjectName("quiet")
        self._text.setWordWrap(True)
        button = QPushButton("Undo")
        button.clicked.connect(self._undo)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self._text, 1)
        row.addWidget(button)
        self._timer = QTimer(self, singleShot=True, interval=UNDO_MS)
        self._timer.timeout.connect(self.hide)
        self.hide()

    def offer(self, chat_id: str, title: str) -> None:
        self._chat_id = chat_id
        self._text.setText(f"“{title or 'New chat'}” is deleted.")
        self.show()
        self._timer.start()

    def _undo(self) -> None:
        self.hide()
        self.undone.emit(self._chat_id)
