"""Putting several forms of a text on the clipboard, and leaving it in a state that outlives us."""

from __future__ import annotations

import shiboken6
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
    _Ours.data = data


class _Ours:
    """What this program put on the clipboard last; Qt deletes it when something else is put."""

    data: QMimeData | None = None


def release() -> None:
    """Before the program ends: keep the plain text, in an object of Qt's own.

    Qt destroys the clipboard's content after Python has gone; an object made by Python would then
    be destroyed through an interpreter that is no more (a crash at exit, PySide6 6.11.3).
    """
    if _Ours.data is not None and shiboken6.isValid(_Ours.data):
        QGuiApplication.clipboard().setText(_Ours.data.text())
    _Ours.data = None
