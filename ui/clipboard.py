"""Putting several forms of a text on the clipboard, and leaving it in a state that outlives us."""

from __future__ import annotations

from PySide6.QtCore import QMimeData
from PySide6.QtGui import QGuiApplication


def copy(text: str, *, html: str | None = None) -> None:
    """Markdown source as plain text and as Markdown; HTML for rich editors when given."""
    data = QMimeData()
    data.setText(text)
    data.setData("text/markdown", text.encode("utf-8", "replace"))
    if html is not None:
        data.setHtml(html)
    QGuiApplication.clipboard().setMimeData(data)


def release() -> None:
    """Before the program ends: keep the plain text, in an object of Qt's own.

    Qt destroys the clipboard's content after Python has gone; an object made by Python would then
    be destroyed through an interpreter that is no more (a crash at exit, PySide6 6.11.3).
    """
    clipboard = QGuiApplication.clipboard()
    if clipboard.ownsClipboard():
        clipboard.setText(clipboard.text())
