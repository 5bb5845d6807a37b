"""Writes Markdown tokens into a QTextDocument: our own spacing, colours and directions."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import (
    QFont,
    QTextBlockFormat,
    QTextCharFormat,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextFrameFormat,
    QTextLength,
    QTextList,
    QTextListFormat,
    QTextTableFormat,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

    from hearth.ui.theme import Theme

HEADING_SCALES = {"h1": 1.45, "h2": 1.28, "h3": 1.14, "h4": 1.05, "h5": 1.0, "h6": 1.0}
LINE_HEIGHT_PERCENT = 132.0
BULLETS = (
    QTextListFormat.Style.ListDisc,
    QTextListFormat.Style.ListCircle,
    QTextListFormat.Style.ListSquare,
)


def direction_of(text: str) -> Qt.LayoutDirection:
    """By the first strong character; left to right when there is none."""
    for char in text:
        kind = unicodedata.bidirectional(char)
        if kind == "L":
            return Qt.LayoutDirection.LeftToRight
        if kind in ("R", "AL"):
            return Qt.LayoutDirection.RightToLeft
    return Qt.LayoutDirection.LeftToRight


@dataclass(slots=True)
class _OpenList:
    """A list at one depth; ``items`` once its first item has been written."""

    format: QTextListFormat
    items: QTextList | None = None


class DocumentBuilder:
    """Appends blocks to one document. Not reused across documents."""

    def __init__(self, document: QTextDocument, theme: Theme) -> None:
        self._document = document
        self._theme = theme
        self._cursor = QTextCursor(document)
        self._is_first = document.isEmpty()
        self._char = self._plain_char()
        self._lists: list[_OpenList] = []
        self._quote_depth = 0
        self._fresh_item = False

    def add(self, tokens: Sequence[Token]) -> None:
        """Write top-level tokens behind what is there."""
        self._cursor.movePosition(QTextCursor.MoveOperation.End)
        self._cursor.beginEditBlock()
        place = 0
        while place < len(tokens):
            if tokens[place].type == "table_open":
                place = self._table(tokens, place)
            else:
                self._token(tokens[place])
                place += 1
        self._cursor.endEditBlock()

    def add_plain(self, text: str) -> None:
        """Lines of text as they are, one paragraph each, in their own directions."""
        self._cursor.movePosition(QTextCursor.MoveOperation.End)
        self._cursor.beginEditBlock()
        for line in text.split("\n"):
            self._begin_block(margin_steps=0.0, sample=line)
            self._cursor.insertText(line, self._plain_char())
        self._cursor.endEditBlock()

    # -------------------------------------------------------------------------------------- formats

    def _plain_char(self) -> QTextCharFormat:
        result = QTextCharFormat()
        result.setFont(self._theme.font())
        result.setForeground(self._theme.colour("text"))
        return result

    def _code_char(self) -> QTextCharFormat:
        result = QTextCharFormat(self._char)
        font = self._theme.font(mono=True)
        font.setWeight(self._char.font().weight())
        result.setFont(font)
        result.setBackground(self._theme.colour("code_header"))
        return result

    def _begin_block(self, *, margin_steps: float, sample: str) -> None:
        block = QTextBlockFormat()
        block.setLineHeight(
            LINE_HEIGHT_PERCENT, QTextBlockFormat.LineHeightTypes.ProportionalHeight.value
        )
        block.setTopMargin(0 if self._is_first else self._theme.px(margin_steps))
        block.setLayoutDirection(direction_of(sample))
        if self._quote_depth:
            block.setLeftMargin(self._theme.px(2) * self._quote_depth)
        if self._is_first:
            self._cursor.setBlockFormat(block)
            self._is_first = False
        else:
            self._cursor.insertBlock(block)
        self._cursor.setBlockCharFormat(self._plain_char())

    # --------------------------------------------------------------------------------------- blocks

    def _token(self, token: Token) -> None:
        match token.type:
            case "heading_open":
                self._char = self._plain_char()
                scale = HEADING_SCALES.get(token.tag, 1.0)
                self._char.setFont(self._theme.font(scale=scale, bold=True))
            case "heading_close":
                self._char = self._plain_char()
            case "bullet_list_open":
                self._open_list(BULLETS[len(self._lists) % len(BULLETS)], 1)
            case "ordered_list_open":
                start = token.attrGet("start")
                self._open_list(QTextListFormat.Style.ListDecimal, int(start or 1))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
            case "list_item_open":
                self._fresh_item = True
            case "blockquote_open":
                self._quote_depth += 1
                self._char.setForeground(self._theme.colour("quiet_text"))
            case "blockquote_close":
                self._quote_depth -= 1
                self._char = self._plain_char()
            case "inline":
                self._paragraph(token)
            case "fence" | "code_block":
                self._preformatted(token.content)
            case "hr":
                self._rule()
            case _:
                pass

    def _open_list(self, style: QTextListFormat.Style, start: int) -> None:
        result = QTextListFormat()
        result.setStyle(style)
        result.setIndent(len(self._lists) + 1)
        if style is QTextListFormat.Style.ListDecimal:
            result.setStart(start)
        self._lists.append(_OpenList(result))

    def _paragraph(self, token: Token) -> None:
        in_list = bool(self._lists)
        if in_list and self._fresh_item:
            self._list_item(token.content)
        else:
            self._begin_block(margin_steps=0.6 if in_list else 1.1, sample=token.content)
            if in_list:
                block = self._cursor.blockFormat()
                block.setIndent(len(self._lists))
                self._cursor.setBlockFormat(block)
        self._fresh_item = False
        for child in token.children or []:
            self._inline(child)

    def _list_item(self, sample: str) -> None:
        """A new item: into the list that is open at this depth, or the first of a new one."""
        current = self._lists[-1]
        self._begin_block(margin_steps=0.35, sample=sample)
        if current.items is None:
            current.items = self._cursor.createList(current.format)
        else:
            current.items.add(self._cursor.block())

    def _preformatted(self, content: str) -> None:
        """Code inside a list or a quote; at the top level code has a widget of its own."""
        self._begin_block(margin_steps=0.6, sample="")
        form = QTextCharFormat()
        form.setFont(self._theme.font(mono=True))
        form.setForeground(self._theme.colour("text"))
        form.setBackground(self._theme.colour("code_ground"))
        self._cursor.insertText(content.rstrip("\n").replace("\n", "\u2028"), form)

    def _rule(self) -> None:
        self._begin_block(margin_steps=1.0, sample="")
        block = self._cursor.blockFormat()
        block.setProperty(
            QTextFormat.Property.BlockTrailingHorizontalRulerWidth,
            QTextLength(QTextLength.Type.PercentageLength, 100),
        )
        self._cursor.setBlockFormat(block)

    def _table(self, tokens: Sequence[Token], place: int) -> int:
        """Write a table from ``tokens[place]`` on; returns the place behind it."""
        rows: list[list[Token]] = []
        while tokens[place].type != "table_close":
            if tokens[place].type == "tr_open":
                rows.append([])
            elif tokens[place].type == "inline":
                rows[-1].append(tokens[place])
            place += 1
        columns = max((len(row) for row in rows), default=0)
        if columns:
            self._write_table(rows, columns)
        return place + 1

    def _write_table(self, rows: list[list[Token]], columns: int) -> None:
        form = QTextTableFormat()
        form.setCellPadding(self._theme.px(0.75))
        form.setCellSpacing(0)
        form.setBorder(1)
        form.setBorderBrush(self._theme.colour("border"))
        form.setBorderStyle(QTextFrameFormat.BorderStyle.BorderStyle_Solid)
        form.setBorderCollapse(True)
        form.setTopMargin(0 if self._is_first else self._theme.px(1.1))
        form.setHeaderRowCount(1)
        table = self._cursor.insertTable(len(rows), columns, form)
        for r, row in enumerate(rows):
            for c, cell in enumerate(row):
                self._cursor = table.cellAt(r, c).firstCursorPosition()
                if r == 0:
                    self._char.setFont(self._theme.font(bold=True))
                for child in cell.children or []:
                    self._inline(child)
                self._char = self._plain_char()
        self._cursor = QTextCursor(self._document)
        self._cursor.movePosition(QTextCursor.MoveOperation.End)
        self._is_first = False

    # --------------------------------------------------------------------------------------- inline

    def _inline(self, token: Token) -> None:
        match token.type:
            case "text" | "html_inline":
                self._cursor.insertText(token.content, self._char)
            case "code_inline":
                self._cursor.insertText(token.content, self._code_char())
            case "softbreak":
                self._cursor.insertText(" ", self._char)
            case "hardbreak":
                self._cursor.insertText("\u2028", self._char)
            case "strong_open" | "strong_close":
                weight = QFont.Weight.Bold if token.nesting > 0 else QFont.Weight.Normal
                self._char.setFontWeight(weight)
            case "em_open" | "em_close":
                self._char.setFontItalic(token.nesting > 0)
            case "s_open" | "s_close":
                self._char.setFontStrikeOut(token.nesting > 0)
            case "link_open":
                self._char.setAnchor(True)
                self._char.setAnchorHref(str(token.attrGet("href") or ""))
                self._char.setForeground(self._theme.colour("accent"))
                self._char.setFontUnderline(True)
            case "link_close":
                self._char.setAnchor(False)
                self._char.setAnchorHref("")
                self._char.setForeground(self._theme.colour("text"))
                self._char.setFontUnderline(False)
            case "image":  # never fetched: its description stands for it
                self._cursor.insertText(f"[{token.content}]", self._char)
            case _:
                pass
