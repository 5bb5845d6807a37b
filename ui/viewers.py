"""Small questions and closer looks: the exact prompt of a reply, plain text, keys, files, links."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QFileDialog, QInputDialog, QMessageBox, QWidget

from hearth.app import history
from hearth.ui import actions
from hearth.ui.dialogs import TextDialog, prompt_text

if TYPE_CHECKING:
    from PySide6.QtCore import QUrl

    from hearth.app.conversation import Conversations
    from hearth.ui.theme import Theme

SAFE_SCHEMES = ("http", "https", "mailto")
SYSTEM_PROMPT_HINT = (
    "What the model is told before the conversation (empty: the model's own default)"
)


def show_prompt(
    conversations: Conversations, message_id: str, theme: Theme, parent: QWidget
) -> str | None:
    """The ids that were run for a reply, and their texts; a sentence when they are not known."""
    path = history.spoken(conversations.store.path(message_id))
    fingerprint = path[-1].model_fingerprint or ""
    ids = history.prompt_ids(path, fingerprint)
    model = conversations.model
    if ids is None or model is None or model.fingerprint != history.model_of(fingerprint):
        return "The exact prompt of this answer is not known to the open model."
    intro = f"{len(ids):,} tokens, exactly what the model was given before this answer."
    text = prompt_text(conversations.token_texts(ids))
    TextDialog("Prompt", intro, text, theme, parent).show()
    return None


def show_answer(text: str, theme: Theme, parent: QWidget) -> None:
    TextDialog("Answer", "The last answer as plain text.", text, theme, parent).show()


def show_keys(theme: Theme, parent: QWidget) -> None:
    TextDialog("Keys", "All commands and their keys.", actions.help_text(), theme, parent).show()


def ask_for_system_prompt(current: str, parent: QWidget) -> str | None:
    """The new text, or None when the user left it as it was."""
    text, ok = QInputDialog.getMultiLineText(parent, "System prompt", SYSTEM_PROMPT_HINT, current)
    return text if ok and text != current else None


def ask_for_model_file(parent: QWidget) -> Path | None:
    name, _ = QFileDialog.getOpenFileName(parent, "Open a model", "", "Models (*.gguf);;All (*)")
    return Path(name) if name else None


def ask_for_model_folder(parent: QWidget) -> Path | None:
    name = QFileDialog.getExistingDirectory(parent, "Open a model folder")
    return Path(name) if name else None


def open_link(url: QUrl, parent: QWidget) -> str | None:
    """Links never open by themselves, and only addresses that a browser or mail takes; a sentence
    when the address is of another kind."""
    shown = url.toDisplayString()
    if url.scheme() not in SAFE_SCHEMES:
        return f"Hearth does not open links of this kind: {shown}"
    question = f"Open this address in your browser?\n\n{shown}"
    answer = QMessageBox.question(parent, "Open link", question)
    if answer == QMessageBox.StandardButton.Yes:
        QDesktopServices.openUrl(url)
    return None
