"""Starts the window: shows it first, then builds the engine and opens the model."""

from __future__ import annotations

import logging
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QTimer, QtMsgType, Signal, qInstallMessageHandler
from PySide6.QtWidgets import QApplication, QMessageBox

from hearth.app.chats.store import ChatStore
from hearth.app.conversation import Conversations
from hearth.app.models.catalogue import STARTER
from hearth.app.models.fetch import fetch
from hearth.app.models.plans import Plans
from hearth.app.models.registry import ModelRegistry
from hearth.app.settings import SettingsFile
from hearth.engine.errors import HearthError
from hearth.ui import clipboard, theme
from hearth.ui.engine_host import LateEngine
from hearth.ui.jobs import Job
from hearth.ui.main_window import MainWindow
from hearth.ui.model_dialog import ModelDialog

if TYPE_CHECKING:
    from types import TracebackType

    from hearth.app.profile import Profile
    from hearth.app.settings import Settings

log = logging.getLogger(__name__)

SWITCH_INTERVAL_S = 0.001  # halves the p99 delay of the window beside a busy Python thread
INDEX_SLICE_S, INDEX_EVERY_MS = 0.005, 200
HOUSEKEEPING_MS = 3000  # after the start, when the window is idle


class _Raise(QObject):
    """Signals:
    asked(): another start wants this window in front (comes from a thread of the profile).
    """

    asked = Signal()


class Program:
    """Owns the parts of a running window."""

    def __init__(self, profile: Profile, app: QApplication, *, safe_mode: bool) -> None:
        self._profile = profile
        self._safe_mode = safe_mode
        self._settings = SettingsFile(profile.paths.settings_file)
        look = self._settings.values.appearance
        theme.apply(app, theme.choose(look.theme, look.zoom_percent))
        self._engine = LateEngine(profile.paths, self._settings.values)
        self._store = ChatStore(profile.paths.chats)
        self._conversations = Conversations(self._store, self._engine, self._settings.values)
        self.window = MainWindow(self._conversations, self._settings, self.get_starter)
        self._registry = ModelRegistry(profile.paths.models)
        self.window.models_asked.connect(self._show_models)
        self._download: Job | None = None
        self._raise = _Raise()
        self._raise.asked.connect(self.window.show_in_front)
        profile.listen(self._raise.asked.emit)

    @property
    def conversations(self) -> Conversations:
        return self._conversations

    @property
    def settings(self) -> Settings:
        return self._settings.values

    def start(self) -> None:
        """Show the window, then load what takes seconds."""
        self.window.show()
        QTimer.singleShot(0, self._open_first_model)
        QTimer.singleShot(HOUSEKEEPING_MS, self._keep_house)

    def _open_first_model(self) -> None:
        self._engine.start()
        path = self._registry.default(self._settings.values.model.path)
        if path is None or self._safe_mode:
            self.window.show_no_model()
        else:
            self.window.open_model(path)

    def _keep_house(self) -> None:
        try:
            self._store.purge()
            self._store.back_up_daily()
            self._index_later()
        except HearthError as error:
            self.window.say(error.sentence)

    def _index_later(self) -> None:
        """Bring the search index up to date in short pieces, so that no frame waits for it."""
        if not self._store.index(limit_s=INDEX_SLICE_S):
            QTimer.singleShot(INDEX_EVERY_MS, self._index_later)

    def _show_models(self) -> None:
        """The models at hand and what they need; opening one is the window's business."""
        models = {str(model.path): model.name for model in self._registry.models()}
        open_model = self._conversations.model
        current = open_model.path if open_model is not None else ""
        if open_model is not None:
            models.setdefault(current, open_model.name)
        plans = Plans(self._settings.values.wide_weights)
        dialog = ModelDialog(models, current, plans.plan, self.window.theme, self.window)
        dialog.open_asked.connect(lambda path: self.window.open_model(path, remember=True))
        dialog.open()

    def get_starter(self) -> None:
        """Download the starter model beside the window; then open it."""
        if self._download is not None:
            return
        folder = self._profile.paths.models
        self._download = Job(
            lambda progress, is_cancelled: fetch(STARTER, folder, progress, is_cancelled)
        )
        self._download.progressed.connect(self.window.starter_progress)
        self._download.succeeded.connect(self._starter_arrived)
        self._download.failed.connect(self._starter_failed)
        self._download.start()

    def _starter_arrived(self, path: object) -> None:
        self._download = None
        assert isinstance(path, Path), "the download gives the file's path"
        self.window.open_model(path, remember=True)

    def _starter_failed(self, sentence: str) -> None:
        self._download = None
        self.window.show_no_model()
        self.window.say(sentence)

    def close(self) -> None:
        if self._download is not None:
            self._download.cancel()


def run(profile: Profile, *, safe_mode: bool = False) -> int:
    """Open the window and stay until it is closed; the exit code."""
    if not profile.claim():
        raised = profile.ask_to_raise()
        where = "It is in front now." if raised else "Close it first, or use --temp-profile."
        sys.stderr.write(f"Hearth is already running with this profile. {where}\n")
        return 0 if raised else 1
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    qInstallMessageHandler(_qt_message)
    app = QApplication.instance() or QApplication(["hearth"])
    assert isinstance(app, QApplication), "there is one application"
    app.setApplicationName("Hearth")
    app.setDesktopFileName("hearth")
    sys.excepthook = _on_bug
    program = Program(profile, app, safe_mode=safe_mode)
    program.start()
    try:
        return app.exec()
    finally:
        program.close()
        clipboard.release()


def _on_bug(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """The second guard of the program: a bug in the window is logged and said, and the window
    stays. The log never holds chat text."""
    if issubclass(kind, KeyboardInterrupt):
        QApplication.quit()
        return
    log.error("bug: %s", "".join(traceback.format_exception(kind, error, trace)))
    box = QMessageBox()
    box.setWindowTitle("Hearth")
    box.setText("Something went wrong in the window. Your chats are saved; you can go on.")
    box.setDetailedText("".join(traceback.format_exception_only(kind, error)))
    box.exec()


def _qt_message(kind: QtMsgType, context: object, text: str) -> None:
    levels = {
        QtMsgType.QtDebugMsg: logging.DEBUG,
        QtMsgType.QtInfoMsg: logging.INFO,
        QtMsgType.QtWarningMsg: logging.WARNING,
    }
    logging.getLogger("qt").log(levels.get(kind, logging.ERROR), "%s", text)
