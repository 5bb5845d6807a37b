"""Everything the user can do by menu or key, in one table; menus and Help are read from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from PySide6.QtGui import QAction, QKeySequence

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from PySide6.QtWidgets import QMainWindow


@dataclass(frozen=True, slots=True)
class ActionEntry:
    """``key`` in Qt's notation; ``menu`` groups."""

    id: str
    text: str
    menu: str
    key: str = ""


ACTIONS = (
    ActionEntry("new_chat", "New chat", "Chat", "Ctrl+N"),
    ActionEntry("search", "Search all chats", "Chat", "Ctrl+Shift+F"),
    ActionEntry("regenerate", "Write the answer again", "Chat", "Ctrl+R"),
    ActionEntry("edit_last", "Edit my last message", "Chat", "Ctrl+E"),
    ActionEntry("previous_version", "Previous version", "Chat", "Alt+Left"),
    ActionEntry("next_version", "Next version", "Chat", "Alt+Right"),
    ActionEntry("stop", "Stop", "Chat", "Esc"),
    ActionEntry("copy_answer", "Copy the last answer", "Chat", "Ctrl+Shift+C"),
    ActionEntry("think", "Thinking on or off", "Chat", "Ctrl+T"),
    ActionEntry("show_reasoning", "Show or hide the last reasoning", "Chat", "Ctrl+Shift+T"),
    ActionEntry("accessible_view", "Last answer as plain text …", "Chat", "Ctrl+Shift+A"),
    ActionEntry("system_prompt", "System prompt of this chat …", "Chat", "Ctrl+Shift+P"),
    ActionEntry("delete_chat", "Delete this chat", "Chat"),
    ActionEntry("quit", "Quit", "Chat", "Ctrl+Q"),
    ActionEntry("open_model", "Open a model file …", "Model", "Ctrl+O"),
    ActionEntry("open_model_folder", "Open a model folder …", "Model"),
    ActionEntry("models", "Models and memory …", "Model", "Ctrl+Shift+M"),
    ActionEntry("get_starter", "Get the starter model", "Model"),
    ActionEntry("zoom_in", "Larger", "View", "Ctrl++"),
    ActionEntry("zoom_out", "Smaller", "View", "Ctrl+-"),
    ActionEntry("zoom_reset", "Normal size", "View", "Ctrl+0"),
    ActionEntry("jump_to_latest", "Jump to latest", "View", "Ctrl+End"),
    ActionEntry("focus_composer", "To the message field", "View", "Ctrl+L"),
    ActionEntry("settings", "Settings …", "View", "Ctrl+,"),
    ActionEntry("keys", "Keys …", "Help", "F1"),
)


def install(window: QMainWindow, handlers: Mapping[str, Callable[[], None]]) -> dict[str, QAction]:
    """Menus and shortcuts for every entry; each one has a handler."""
    missing = {entry.id for entry in ACTIONS} - set(handlers)
    assert not missing, f"actions without a handler: {missing}"
    bar = window.menuBar()
    menus = {name: bar.addMenu(name) for name in dict.fromkeys(e.menu for e in ACTIONS)}
    made: dict[str, QAction] = {}
    for entry in ACTIONS:
        action = QAction(entry.text, window)
        if entry.key:
            action.setShortcut(QKeySequence(entry.key))
        action.triggered.connect(lambda _=False, run=handlers[entry.id]: run())
        menus[entry.menu].addAction(action)
        made[entry.id] = action
    return made


def help_text() -> str:
    """The keys as a table of text."""
    return "\n".join(f"{entry.key or '—':<16}{entry.text}" for entry in ACTIONS)
