"""The pieces a message is made of: flowing text, and code with a header."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QMimeData, QObject, QRunnable, Qt, QThreadPool, QUrl, Signal
from PySide6.QtGui import (
    QFontMetricsF,
    QGuiApplication,
    QSyntaxHighlighter,
    QTextCharFormat,
    QTextCursor,
    QWheelEvent,
)
from PySide6.QtWidgets import (
    QFrame,
    QHBoxLayout,
    QLabel,
    QPlainTextEdit,
    QTextBrowser,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from hearth.ui.chat_view.builder import DocumentBuilder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it.token import Token

    from hearth.ui.theme import Theme

MAX_COLOURED_CHARS = 200_000
MAX_CODE_LINES = 400


class TextPane(QTextBrowser):
    """Flowing text that is as high as its content. Loads nothing, opens nothing by itself.

    Signals:
        anchorClicked(QUrl): a link was clicked; the window asks before opening it.
    """

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._tail_start: int | None = None
        self._tail = ""
        self.setOpenLinks(False)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.document().setDocumentMargin(0)
        self.document().setUndoRedoEnabled(False)
        self.viewport().setAutoFillBackground(False)

    def loadResource(self, kind: int, name: QUrl | str) -> Any:
        """Nothing is ever loaded for the model's output."""
        return None

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()  # the conversation scrolls, not the message

    def createMimeDataFromSelection(self) -> QMimeData:
        """Rich text for editors, and the same as plain text and Markdown."""
        selected = QTextCursor(self.textCursor())
        data = super().createMimeDataFromSelection()
        text = selected.selection().toPlainText()
        data.setText(text)
        data.setData("text/markdown", text.encode("utf-8", "replace"))
        return data

    def height_for(self, width: int) -> int:
        document = self.document()
        if document.textWidth() != width:
            document.setTextWidth(width)
        return int(document.size().height() + 0.999)

    def natural_width(self, widest: int) -> int:
        """The width that the text would like, at most ``widest``."""
        self.document().setTextWidth(widest)
        return min(int(self.document().idealWidth() + 1.999), widest)

    def add_tokens(self, tokens: Sequence[Token]) -> None:
        """Append final blocks; a tail, if there is one, is replaced by them."""
        self.drop_tail()
        DocumentBuilder(self.document(), self._theme).add(tokens)

    def add_plain(self, text: str) -> None:
        DocumentBuilder(self.document(), self._theme).add_plain(text)

    def set_tail(self, text: str) -> None:
        """Show unfinished text, as it is; only what is new is written."""
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        if self._tail_start is None:
            self._begin_tail(cursor)
        if text.startswith(self._tail):
            cursor.insertText(text[len(self._tail) :], self._tail_format(text))
        else:
            assert self._tail_start is not None, "a tail has begun"
            cursor.setPosition(self._tail_start, QTextCursor.MoveMode.KeepAnchor)
            cursor.insertText(text, self._tail_format(text))
        self._tail = text

    def _begin_tail(self, cursor: QTextCursor) -> None:
        self._before_tail = cursor.position()
        builder = DocumentBuilder(self.document(), self._theme)
        builder.add_plain("")
        cursor.movePosition(QTextCursor.MoveOperation.End)
        self._tail_start = cursor.position()
        self._tail = ""

    def drop_tail(self) -> None:
        if self._tail_start is None:
            return
        cursor = QTextCursor(self.document())
        cursor.movePosition(QTextCursor.MoveOperation.End)
        cursor.setPosition(self._before_tail, QTextCursor.MoveMode.KeepAnchor)
        cursor.removeSelectedText()
        self._tail_start, self._tail = None, ""

    def _tail_format(self, text: str) -> QTextCharFormat:
        """An open code fence is monospaced at once."""
        form = QTextCharFormat()
        form.setFont(self._theme.font(mono=text.lstrip().startswith(("```", "~~~"))))
        form.setForeground(self._theme.colour("text"))
        return form


class CodePane(QFrame):
    """A code block: language, Copy, its own horizontal scrolling; coloured by a worker."""

    def __init__(
        self, source: str, language: str, theme: Theme, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.setObjectName("codeBlock")
        self.source = source
        self._theme = theme
        self._is_whole = False
        self._editor = _CodeEditor(theme)
        self._header = self._make_header(language)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(1, 1, 1, 1)
        layout.setSpacing(0)
        layout.addWidget(self._header)
        layout.addWidget(self._editor)
        self._show(source)
        lines = source.count("\n") + 1
        self.setAccessibleName(f"Code, {language or 'no language'}, {lines} lines")
        if language and len(source) <= MAX_COLOURED_CHARS:
            self._editor.colour(source, language)

    def _make_header(self, language: str) -> QWidget:
        header = QWidget()
        header.setObjectName("codeHeader")
        row = QHBoxLayout(header)
        px = self._theme.px
        row.setContentsMargins(px(1.5), px(0.4), px(0.6), px(0.4))
        row.addWidget(QLabel(language or "text"))
        row.addStretch()
        self._expand = QToolButton()
        self._expand.setText("Show all")
        self._expand.clicked.connect(self._show_all)
        self._expand.hide()
        row.addWidget(self._expand)
        copy = QToolButton()
        copy.setText("Copy")
        copy.setAccessibleName("Copy code")
        copy.clicked.connect(lambda: QGuiApplication.clipboard().setText(self.source))
        row.addWidget(copy)
        return header

    def _show(self, source: str) -> None:
        lines = source.split("\n")
        cut = len(lines) > MAX_CODE_LINES and not self._is_whole
        self._editor.setPlainText("\n".join(lines[:MAX_CODE_LINES]) if cut else source)
        self._expand.setVisible(cut)

    def _show_all(self) -> None:
        self._is_whole = True
        self._show(self.source)
        self.updateGeometry()
        parent = self.parentWidget()
        if parent is not None and hasattr(parent, "relayout"):
            parent.relayout()

    def height_for(self, width: int) -> int:
        return self._header.sizeHint().height() + self._editor.content_height() + 2


class _CodeEditor(QPlainTextEdit):
    """Read-only, unwrapped, as high as its lines."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._highlighter: _Highlighter | None = None
        self.setReadOnly(True)
        self.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.setFont(theme.font(mono=True))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setLayoutDirection(Qt.LayoutDirection.LeftToRight)
        self.document().setDocumentMargin(theme.px(1.25))

    def content_height(self) -> int:
        line = QFontMetricsF(self.font()).lineSpacing()
        text = self.blockCount() * line + 2 * self.document().documentMargin()
        widest = self.document().size().width()
        bar = self.horizontalScrollBar().sizeHint().height() if widest > self.width() else 0
        return int(text + line * 0.4) + bar  # fallback fonts may be a little higher

    def wheelEvent(self, event: QWheelEvent) -> None:
        if abs(event.angleDelta().x()) > abs(event.angleDelta().y()):
            super().wheelEvent(event)
        else:
            event.ignore()

    def colour(self, source: str, language: str) -> None:
        job = _ColourJob(source, language)
        job.signals.done.connect(self._coloured)
        QThreadPool.globalInstance().start(job)

    def _coloured(self, spans: list[tuple[int, int, int, str]]) -> None:
        self._highlighter = _Highlighter(self, self._theme, spans)


class _ColourSignals(QObject):
    """Signals:
    done(list): (line, column, length, role) of every coloured span.
    """

    done = Signal(list)


class _ColourJob(QRunnable):
    """Runs Pygments on a worker thread."""

    def __init__(self, source: str, language: str) -> None:
        super().__init__()
        self.signals = _ColourSignals()
        self._source = source
        self._language = language

    def run(self) -> None:
        spans = colour_spans(self._source, self._language)
        try:
            self.signals.done.emit(spans)
        except RuntimeError:
            return  # the window was closed meanwhile


def colour_spans(source: str, language: str) -> list[tuple[int, int, int, str]]:
    """(line, column, length, role) of source text; empty for an unknown language."""
    from pygments.lexers import get_lexer_by_name
    from pygments.token import Comment, Keyword, Name, Number, String
    from pygments.util import ClassNotFound

    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return []
    roles = (
        (Comment, "comment"),
        (Keyword, "keyword"),
        (String, "string"),
        (Number, "number"),
        (Name.Function, "name"),
        (Name.Class, "name"),
        (Name.Builtin, "name"),
    )
    spans: list[tuple[int, int, int, str]] = []
    line = column = 0
    for kind, text in lexer.get_tokens(source):
        role = next((name for parent, name in roles if kind in parent), None)
        for index, piece in enumerate(text.split("\n")):
            if index:
                line, column = line + 1, 0
            if role is not None and piece:
                spans.append((line, column, len(piece), role))
            column += len(piece)
    return spans


class _Highlighter(QSyntaxHighlighter):
    """Applies spans that were computed elsewhere."""

    def __init__(
        self, editor: QPlainTextEdit, theme: Theme, spans: list[tuple[int, int, int, str]]
    ) -> None:
        self._by_line: dict[int, list[tuple[int, int, str]]] = {}
        for line, column, length, role in spans:
            self._by_line.setdefault(line, []).append((column, length, role))
        self._theme = theme
        super().__init__(editor.document())

    def highlightBlock(self, text: str) -> None:
        for column, length, role in self._by_line.get(self.currentBlock().blockNumber(), []):
            form = QTextCharFormat()
            form.setForeground(self._theme.colour(role))
            self.setFormat(column, length, form)
