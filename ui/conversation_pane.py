"""The right side of the window: banner, conversation or welcome page, composer, status line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtWidgets import QStackedWidget, QVBoxLayout, QWidget

from hearth.ui.chat_view.view import ChatView
from hearth.ui.composer import Composer
from hearth.ui.status import Banner, StatusLine, Welcome
from hearth.ui.theme import COLUMN_CHARS

if TYPE_CHECKING:
    from PySide6.QtGui import QResizeEvent

    from hearth.ui.theme import Theme


class ConversationPane(QWidget):
    """Owns the widgets and their places; who uses them is the window's business.

    Attributes: banner, welcome, view, composer, status.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.banner = Banner(theme)
        self.welcome = Welcome(theme)
        self.view = ChatView(theme)
        self.composer = Composer(theme)
        self.status = StatusLine(theme)
        self._stack = QStackedWidget()
        self._stack.addWidget(self.welcome)
        self._stack.addWidget(self.view)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(0)
        self._composer_row = QVBoxLayout()
        self._composer_row.addWidget(self.composer)
        column.addWidget(self.banner)
        column.addWidget(self._stack, 1)
        column.addLayout(self._composer_row)
        column.addWidget(self.status)

    def show_conversation(self, *, has_messages: bool) -> None:
        """An empty chat shows the welcome page."""
        self._stack.setCurrentWidget(self.view if has_messages else self.welcome)

    def set_theme(self, theme: Theme) -> None:
        self._theme = theme
        for widget in (self.view, self.composer, self.welcome, self.status, self.banner):
            widget.set_theme(theme)
        self._align_composer()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._align_composer()

    def _align_composer(self) -> None:
        """The composer is as wide as the column of text above it."""
        px = self._theme.px
        column = COLUMN_CHARS * self.fontMetrics().averageCharWidth() + 2 * px(1.5)
        side = max(px(2), (self.width() - column) // 2)
        self._composer_row.setContentsMargins(side, px(0.5), side, px(1))
