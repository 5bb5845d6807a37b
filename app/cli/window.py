"""``hearth`` without a command: the window, or a chat in the terminal where there is no screen."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from hearth.app.profile import Profile


def reason_for_no_window() -> str | None:
    """One sentence why no window can be opened, or None."""
    if find_spec("PySide6") is None:
        return "Qt is not installed, so there is no window."
    headless = not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    chosen = os.environ.get("QT_QPA_PLATFORM")
    if sys.platform.startswith("linux") and headless and not chosen:
        return "There is no display, so there is no window."
    return None


def open_window(profile: Profile, options: argparse.Namespace) -> int:
    reason = reason_for_no_window()
    if reason is not None:
        print(f"{reason} Starting 'hearth chat' instead.", file=sys.stderr)
        from hearth.app.cli import chat, chat_options

        return chat.run_chat(profile, chat_options.defaults(options))
    from importlib import import_module

    # By name: the application does not know the window; the window knows the application.
    window = import_module("hearth.ui.app")
    return int(window.run(profile, safe_mode=options.safe_mode))
