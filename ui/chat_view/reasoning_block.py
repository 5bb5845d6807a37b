"""What the model thought before its answer: one quiet line, which opens to the whole text."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt, QUrl, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent
from PySide6.QtWidgets import QToolButton, QWidget

from hearth.ui.chat_view.column import TextColumn

if TYPE_CHECKING:
    from hearth.ui.theme import Theme

HEADER_STEPS, INDENT_STEPS = 3.2, 2.0


class ReasoningBlock(QWidget):
    """A header and, while it is open, the text. Nothing is laid out as long as it is closed.

    Signals:
        toggled(bool): the user opened or closed it.
        link_clicked(QUrl)
        height_changed(): the content needs another height.
    """

    toggled = Signal(bool)
    link_clicked = Signal(QUrl)
    height_changed = Signal()

    def __init__(self, theme: Theme, parent: QWidget) -> None:
        super().__init__(parent)
        self._theme = theme
        self._text = ""
        self._seconds = 0.0
        self._is_thinking = True
        quiet = replace(theme.colours, text=theme.colours.quiet_text)
        self.column = TextColumn(self, replace(theme, colours=quiet), self.link_clicked.emit)
        self.header = _Header(self)
        self.header.toggled.connect(self._toggle)
        self._name()
        self.show()

    @property
    def is_open(self) -> bool:
        return self.header.isChecked()

    # ------------------------------------------------------------------------------------- content

    def append(self, text: str) -> None:
        self._text += text
        if self.is_open:
            self.column.append(text, final=False)

    def show_time(self, seconds: float, *, is_thinking: bool) -> None:
        if (int(seconds), is_thinking) != (int(self._seconds), self._is_thinking):
            self._seconds, self._is_thinking = seconds, is_thinking
            self._name()

    def finish(self, text: str, seconds: float) -> None:
        """The whole reasoning, which is final now."""
        self.show_time(seconds, is_thinking=False)
        rest = text.removeprefix(self._text) if text.startswith(self._text) else None
        self._text = text
        if not self.is_open:
            return
        if rest is None:
            self.column.clear()
        self.column.append(text if rest is None else rest, final=True)

    def set_open(self, *, is_open: bool) -> None:
        """Open or close it as the user does."""
        self.header.setChecked(is_open)

    def _toggle(self, is_open: bool) -> None:
        if is_open:
            self.column.append(self._text, final=not self._is_thinking)
        else:
            self.column.clear()
        self._name()
        self.toggled.emit(is_open)

    def _name(self) -> None:
        words = thinking_words(self._seconds, is_thinking=self._is_thinking)
        self.header.setText(f"{'▾' if self.is_open else '▸'}  {words}")
        self.header.resize(self.header.sizeHint().width(), self._theme.px(HEADER_STEPS))
        what = "Hide" if self.is_open else "Show"
        # The running seconds would be read aloud again and again.
        said = "Thinking" if self._is_thinking else words
        self.header.setAccessibleName(f"{said}. {what} the reasoning")

    # -------------------------------------------------------------------------------------- layout

    def relayout(self) -> None:
        """A pane wants another height although no text came (Show all)."""
        self.column.forget_places()
        self.height_changed.emit()

    def layout_for(self, width: int) -> int:
        """Place everything for ``width``; returns the height."""
        px = self._theme.px
        top = px(HEADER_STEPS)
        if not self.is_open:
            return top
        indent = px(INDENT_STEPS)
        return self.column.place(indent, top + px(0.5), width - indent) + px(1)

    def paintEvent(self, event: QPaintEvent) -> None:
        """A line beside the text says that it is not the answer."""
        if self.is_open:
            px = self._theme.px
            painter = QPainter(self)
            top = px(HEADER_STEPS) + px(0.5)
            height = self.height() - top - px(1)
            painter.fillRect(px(0.9), top, px(0.25), height, self._theme.colour("border"))
            painter.end()


class _Header(QToolButton):
    """The line that opens the block; Space and Enter do it too."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("reasoning")
        self.setCheckable(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.click()
        else:
            super().keyPressEvent(event)


def thinking_words(seconds: float, *, is_thinking: bool) -> str:
    """How long it thinks or thought: "Thinking … 12 s", "Thought for 2 min 5 s"."""
    minutes, rest = divmod(int(seconds), 60)
    time = f"{minutes} min {rest} s" if minutes else f"{rest} s"
    if is_thinking:
        return f"Thinking … {time}"
    return f"Thought for {time}" if seconds >= 1.0 else "Thought briefly"
