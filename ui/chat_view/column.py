"""Markdown as a column of panes, laid out while it arrives: an answer or its reasoning."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.ui.chat_view.blocks import BlockStream, parse
from hearth.ui.chat_view.panes import CodePane, TextPane

if TYPE_CHECKING:
    from collections.abc import Callable

    from markdown_it.token import Token
    from PySide6.QtCore import QUrl
    from PySide6.QtWidgets import QWidget

    from hearth.ui.theme import Theme


class TextColumn:
    """Panes that are children of ``parent``, which says where they stand. Qt's main thread.

    Attributes:
        panes: from top to bottom.
        source: all text so far.
    """

    def __init__(self, parent: QWidget, theme: Theme, on_link: Callable[[QUrl], None]) -> None:
        self._parent = parent
        self._theme = theme
        self._on_link = on_link
        self._stream = BlockStream()
        self._placed_for = (0, 0, 0)
        self._bottoms: list[int] = []  # of the panes that do not change any more
        self.panes: list[TextPane | CodePane] = []
        self.source = ""

    # ------------------------------------------------------------------------------------- content

    def clear(self) -> None:
        for pane in self.panes:
            pane.hide()
            pane.deleteLater()
        self.panes, self._stream, self.source = [], BlockStream(), ""
        self._bottoms.clear()

    def append(self, text: str, *, final: bool) -> None:
        self.source += text
        committed = self._stream.push(text)
        if final:
            committed.append(self._stream.finish())
        for source in committed:
            self._commit(source)
        if not final and self._stream.tail.strip("\n"):
            self._text_pane().set_tail(self._stream.tail.strip("\n"))

    def add_plain(self, text: str) -> None:
        """Text as it is, without Markdown."""
        self._text_pane().add_plain(text)

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
        last = self.panes[-1] if self.panes else None
        if tokens:
            self._text_pane().add_tokens(tokens)
        elif isinstance(last, TextPane):
            last.drop_tail()

    def _text_pane(self) -> TextPane:
        """The pane at the end when it is text, else a new one."""
        last = self.panes[-1] if self.panes else None
        if isinstance(last, TextPane):
            return last
        pane = TextPane(self._theme, self._parent)
        pane.anchorClicked.connect(self._on_link)
        pane.show()
        self.panes.append(pane)
        return pane

    def _code_pane(self, token: Token) -> None:
        last = self.panes[-1] if self.panes else None
        if isinstance(last, TextPane):
            last.drop_tail()
            if last.document().isEmpty():
                self.panes.pop().deleteLater()
        language = token.info.split()[0] if token.info.split() else ""
        pane = CodePane(token.content.rstrip("\n"), language, self._theme, self._parent)
        pane.show()
        self.panes.append(pane)

    # -------------------------------------------------------------------------------------- layout

    def forget_places(self) -> None:
        """A pane wants another height although no text came."""
        self._bottoms.clear()

    def place(self, left: int, top: int, width: int) -> int:
        """Place the panes below ``top``; returns where they end. Only the last one changes while
        text arrives: the others stay where they were placed for the same place and width."""
        if (left, top, width) != self._placed_for:
            self._placed_for = (left, top, width)
            self._bottoms.clear()
        y = self._bottoms[-1] if self._bottoms else top
        for place in range(len(self._bottoms), len(self.panes)):
            pane = self.panes[place]
            y += self._theme.px(1.2) if place else 0
            height = pane.height_for(width)
            pane.setGeometry(left, y, width, height)
            y += height
            if place < len(self.panes) - 1:
                self._bottoms.append(y)
        return y

    def natural_width(self, widest: int) -> int:
        """The width that flowing text would like, at most ``widest``."""
        texts = [pane for pane in self.panes if isinstance(pane, TextPane)]
        return max((pane.natural_width(widest) for pane in texts), default=0)
