"""One message as a widget: reasoning, text, chips, a footer with what can be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRect, QUrl, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QToolButton, QWidget

from hearth.ui import clipboard
from hearth.ui.chat_view.blocks import defines_references, parser
from hearth.ui.chat_view.column import TextColumn
from hearth.ui.chat_view.reasoning_block import ReasoningBlock

if TYPE_CHECKING:
    from hearth.ui.chat_view.model import ShownMessage
    from hearth.ui.chat_view.panes import CodePane, TextPane
    from hearth.ui.theme import Theme

SHOWN_CHARS = 100_000  # of an own message: laying out megabytes takes many seconds
BUBBLE_SHARE = 0.82  # of the column: own messages are narrower and stand to the right


class MessageView(QWidget):
    """Draws a ``ShownMessage``. Takes data, emits intent; knows neither store nor engine.

    Signals:
        asked(str, str): (message id, what): "copy", "regenerate", "edit", "previous", "next",
            "read", "prompt".
        link_clicked(QUrl): the window asks before it opens anything.
        height_changed(): the content needs another height.
        reasoning_toggled(str, bool): message id; its reasoning was opened or closed.
    """

    asked = Signal(str, str)
    reasoning_toggled = Signal(str, bool)
    link_clicked = Signal(QUrl)
    height_changed = Signal()

    def __init__(self, message: ShownMessage, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.message = message
        self._column = TextColumn(self, theme, self.link_clicked.emit)
        self.reasoning: ReasoningBlock | None = None
        self._bubble = QRect()
        self._chips = [self._chip(text) for text in message.chips]
        self._errors = [self._error(text) for text in message.errors]
        hidden = len(message.text) - SHOWN_CHARS
        if message.is_own and hidden > 0:
            self._errors.append(
                self._error(f"… and {hidden:,} more characters. Copy gives all of them.")
            )
        self._bar = _ActionBar(message, theme, self)
        self._bar.asked.connect(lambda what: self.asked.emit(self.message.id, what))
        who = "You" if message.is_own else "Assistant"
        self.setAccessibleName(f"{who} said: {message.text[:200]}")
        if message.is_own:
            if message.text:
                self._column.add_plain(message.text[:SHOWN_CHARS])
        else:
            self._begin(message)

    @property
    def _panes(self) -> list[TextPane | CodePane]:
        return self._column.panes

    # ------------------------------------------------------------------------------------- content

    def _begin(self, message: ShownMessage) -> None:
        self._column.append(message.text, final=not message.is_streaming)
        if message.is_streaming:
            self._think(message.reasoning)
            self.show_thinking(message.reasoning_s)
        else:
            self._finish_reasoning(message)

    def append(self, text: str, reasoning: str = "") -> None:
        """More of a streaming reply."""
        self._think(reasoning)
        self._column.append(text, final=False)
        self.height_changed.emit()

    def _think(self, text: str) -> None:
        if text:
            self._reasoning_block().append(text)

    def show_thinking(self, seconds: float) -> None:
        """How long a streaming reply has been thinking, or did."""
        if self.reasoning is not None:
            self.reasoning.show_time(seconds, is_thinking=not self._column.source.strip())

    def _finish_reasoning(self, message: ShownMessage) -> None:
        if message.reasoning:
            self._reasoning_block().finish(message.reasoning, message.reasoning_s)

    def _reasoning_block(self) -> ReasoningBlock:
        if self.reasoning is None:
            self.reasoning = ReasoningBlock(self._theme, self)
            self.reasoning.link_clicked.connect(self.link_clicked)
            self.reasoning.height_changed.connect(self.height_changed)
            self.reasoning.toggled.connect(
                lambda is_open: self.reasoning_toggled.emit(self.message.id, is_open)
            )
        return self.reasoning

    def finish(self, message: ShownMessage) -> None:
        """The reply is whole: the tail becomes blocks, the footer appears."""
        source = self._column.source
        self.message = message
        self._finish_reasoning(message)
        if not message.text.startswith(source) or defines_references(message.text):
            self._column.clear()
            self._column.append(message.text, final=True)
        else:
            self._column.append(message.text[len(source) :], final=True)
        for text in message.errors[len(self._errors) :]:
            self._errors.append(self._error(text))
        self._bar.set_message(message)
        self.height_changed.emit()

    def _chip(self, text: str) -> QLabel:
        chip = QLabel(f"  {text}  ", self)
        chip.setObjectName("chip")
        chip.setFixedHeight(self._theme.px(3.5))
        chip.show()
        return chip

    def _error(self, text: str) -> QLabel:
        label = QLabel(text, self)
        label.setObjectName("quiet")
        label.setWordWrap(True)
        label.show()
        return label

    # -------------------------------------------------------------------------------------- layout

    def relayout(self) -> None:
        """A pane wants another height although no text came (Show all)."""
        self._column.forget_places()
        self.height_changed.emit()

    def layout_for(self, width: int) -> int:
        """Place everything for ``width``; returns the height."""
        px = self._theme.px
        pad = px(1.5) if self.message.is_own else 0
        inner = self._inner_width(width) if self.message.is_own else width
        left = width - inner - pad if self.message.is_own else 0
        top = y = px(0.5)
        y += pad
        for chip in self._chips:
            chip.setGeometry(left, y, min(inner, chip.sizeHint().width()), chip.height())
            y += chip.height() + px(0.75)
        if self.reasoning is not None:
            height = self.reasoning.layout_for(inner)
            self.reasoning.setGeometry(left, y, inner, height)
            y += height + px(0.75)
        y = self._column.place(left, y, inner)
        for label in self._errors:
            height = label.heightForWidth(inner)
            label.setGeometry(left, y + px(0.5), inner, height)
            y += height + px(0.5)
        y += pad
        self._bubble = QRect(left - pad, top, inner + 2 * pad, y - top)
        self._bar.place(left - pad, y + px(0.4), inner + 2 * pad, align_right=self.message.is_own)
        return y + px(0.4) + self._bar.height() + px(1.5)

    def _inner_width(self, width: int) -> int:
        """As narrow as the text allows, at most a share of the column."""
        widest = int(width * BUBBLE_SHARE)
        natural = max(self._theme.px(6), self._column.natural_width(widest))
        for chip in self._chips:
            natural = max(natural, chip.sizeHint().width())
        return min(natural, widest)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not self.message.is_own:
            return
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(QColor(0, 0, 0, 0))
        painter.setBrush(self._theme.colour("own_bubble"))
        radius = self._theme.px(1.5)
        painter.drawRoundedRect(self._bubble, radius, radius)
        painter.end()

    # ------------------------------------------------------------------------------------- copying

    def copy(self) -> None:
        """The message without its reasoning: Markdown as text, and HTML for rich editors."""
        html = None if self.message.is_own else parser().render(self.message.text)
        clipboard.copy(self.message.text, html=html)


class _ActionBar(QWidget):
    """Small buttons and the quiet footer under a message.

    Signals:
        asked(str): what the user wants.
    """

    asked = Signal(str)

    def __init__(self, message: ShownMessage, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._row = QHBoxLayout(self)
        self._row.setContentsMargins(0, 0, 0, 0)
        self._row.setSpacing(theme.px(0.25))
        self._footer = QLabel()
        self._footer.setObjectName("quiet")
        self._footer.setMinimumWidth(1)
        self._buttons: list[QWidget] = []
        self.set_message(message)
        self.setFixedHeight(theme.px(3))
        self.show()

    def set_message(self, message: ShownMessage) -> None:
        while self._row.count():
            item = self._row.takeAt(0)
            widget = item.widget() if item is not None else None
            if widget is not None and widget is not self._footer:
                widget.deleteLater()
        if message.is_own:
            self._row.addStretch()
        if message.num_versions > 1:
            self._add("‹", "previous", "Previous version")
            label = QLabel(f"{message.version}/{message.num_versions}")
            label.setObjectName("quiet")
            self._row.addWidget(label)
            self._add("›", "next", "Next version")
        if not message.is_streaming:
            self._add("Copy", "copy", "Copy this message")
            if message.is_own:
                self._add("Edit", "edit", "Edit as a new branch")
            else:
                self._add("Again", "regenerate", "Write another version")
                self._add("Prompt", "prompt", "See exactly what the model was given")
        self._footer.setText(message.footer)
        self._row.addWidget(self._footer)
        if not message.is_own:
            self._row.addStretch()

    def _add(self, text: str, what: str, hint: str) -> None:
        button = QToolButton()
        button.setText(text)
        button.setToolTip(hint)
        button.setAccessibleName(hint)
        button.clicked.connect(lambda: self.asked.emit(what))
        self._row.addWidget(button)

    def place(self, x: int, y: int, width: int, *, align_right: bool) -> None:
        wanted = max(width, self.sizeHint().width()) if align_right else width
        left = x + width - wanted if align_right else x
        self.setGeometry(left, y, wanted, self.height())
