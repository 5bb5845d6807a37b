"""One message as a widget: text panes, code panes, chips, a footer with what can be done."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QRect, QUrl, Signal
from PySide6.QtGui import QColor, QPainter, QPaintEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QToolButton, QWidget

from hearth.ui import clipboard
from hearth.ui.chat_view.blocks import BlockStream, defines_references, parse, parser
from hearth.ui.chat_view.panes import CodePane, TextPane

if TYPE_CHECKING:
    from markdown_it.token import Token

    from hearth.ui.chat_view.model import ShownMessage
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
    """

    asked = Signal(str, str)
    link_clicked = Signal(QUrl)
    height_changed = Signal()

    def __init__(self, message: ShownMessage, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self.message = message
        self._panes: list[TextPane | CodePane] = []
        self._stream = BlockStream()
        self._source = ""
        self._bubble = QRect()
        self._placed_for = (0, 0, 0)
        self._bottoms: list[int] = []  # of the panes that do not change any more
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
                self._text_pane().add_plain(message.text[:SHOWN_CHARS])
        else:
            self._append(message.text, final=not message.is_streaming)

    # ------------------------------------------------------------------------------------- content

    def append(self, text: str) -> None:
        """More of a streaming reply."""
        self._append(text, final=False)
        self.height_changed.emit()

    def finish(self, message: ShownMessage) -> None:
        """The reply is whole: the tail becomes blocks, the footer appears."""
        rest = message.text[len(self._source) :] if message.text.startswith(self._source) else None
        self.message = message
        if rest is None or defines_references(message.text):
            self._rebuild(message.text)
        else:
            self._append(rest, final=True)
        for text in message.errors[len(self._errors) :]:
            self._errors.append(self._error(text))
        self._bar.set_message(message)
        self.height_changed.emit()

    def _rebuild(self, text: str) -> None:
        for pane in self._panes:
            pane.deleteLater()
        self._panes, self._stream, self._source = [], BlockStream(), ""
        self._bottoms.clear()
        self._append(text, final=True)

    def _append(self, text: str, *, final: bool) -> None:
        self._source += text
        committed = self._stream.push(text)
        if final:
            committed.append(self._stream.finish())
        for source in committed:
            self._commit(source)
        if not final and self._stream.tail.strip("\n"):
            self._text_pane().set_tail(self._stream.tail.strip("\n"))

    def _commit(self, source: str) -> None:
        """Final blocks: code gets a pane of its own, everything between flows."""
        flowing: list[Token] = []
        for token in parse(source):
            if token.level == 0 and token.type in ("fence", "code_block"):
                self._flow(flowing)
                flowing = []
                self._code_pane(token)
            else:
                flowing.append(token)
        self._flow(flowing)

    def _flow(self, tokens: list[Token]) -> None:
        last = self._panes[-1] if self._panes else None
        if tokens:
            self._text_pane().add_tokens(tokens)
        elif isinstance(last, TextPane):
            last.drop_tail()

    def _text_pane(self) -> TextPane:
        """The pane at the end when it is text, else a new one."""
        last = self._panes[-1] if self._panes else None
        if isinstance(last, TextPane):
            return last
        pane = TextPane(self._theme, self)
        pane.anchorClicked.connect(self.link_clicked)
        pane.show()
        self._panes.append(pane)
        return pane

    def _code_pane(self, token: Token) -> None:
        last = self._panes[-1] if self._panes else None
        if isinstance(last, TextPane):
            last.drop_tail()
            if last.document().isEmpty():
                self._panes.pop().deleteLater()
        language = token.info.split()[0] if token.info.split() else ""
        pane = CodePane(token.content.rstrip("\n"), language, self._theme, self)
        pane.show()
        self._panes.append(pane)

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
        self._bottoms.clear()
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
        y = self._layout_panes(left, y, inner)
        for label in self._errors:
            height = label.heightForWidth(inner)
            label.setGeometry(left, y + px(0.5), inner, height)
            y += height + px(0.5)
        y += pad
        self._bubble = QRect(left - pad, top, inner + 2 * pad, y - top)
        self._bar.place(left - pad, y + px(0.4), inner + 2 * pad, align_right=self.message.is_own)
        return y + px(0.4) + self._bar.height() + px(1.5)

    def _layout_panes(self, left: int, top: int, width: int) -> int:
        """Place the panes below ``top``; returns where they end. Only the last one changes while
        text arrives: the others stay where they were placed for the same place and width."""
        if (left, top, width) != self._placed_for:
            self._placed_for = (left, top, width)
            self._bottoms.clear()
        y = self._bottoms[-1] if self._bottoms else top
        for place in range(len(self._bottoms), len(self._panes)):
            pane = self._panes[place]
            y += self._theme.px(1.2) if place else 0
            height = pane.height_for(width)
            pane.setGeometry(left, y, width, height)
            y += height
            if place < len(self._panes) - 1:
                self._bottoms.append(y)
        return y

    def _inner_width(self, width: int) -> int:
        """As narrow as the text allows, at most a share of the column."""
        widest = int(width * BUBBLE_SHARE)
        natural = self._theme.px(6)
        for pane in self._panes:
            if isinstance(pane, TextPane):
                natural = max(natural, pane.natural_width(widest))
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
        """The whole message: Markdown source as text, and HTML for rich editors."""
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
