"""Settings as the window uses them: the dialog, the zoom, the theme in force."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, Signal
from PySide6.QtWidgets import QApplication, QWidget

from hearth.ui import theme
from hearth.ui.dialogs import SettingsDialog
from hearth.ui.guard import attempt

if TYPE_CHECKING:
    from pathlib import Path

    from hearth.app.settings import Settings, SettingsFile


class Preferences(QObject):
    """Owns the theme in force.

    Signals:
        theme_changed(): ``theme`` is another one.
        edited(): the dialog has changed settings.
        trouble(str): the settings could not be saved.
    """

    theme_changed = Signal()
    edited = Signal()
    trouble = Signal(str)

    def __init__(self, settings_file: SettingsFile, window: QWidget) -> None:
        super().__init__(window)
        self._window = window
        self._file = settings_file
        self.theme = self._chosen()

    def _chosen(self) -> theme.Theme:
        look = self._file.values.appearance
        return theme.choose(look.theme, look.zoom_percent)

    def edit(self) -> None:
        dialog = SettingsDialog(self._file.values, self.theme, self._window)
        if dialog.exec():
            dialog.apply_to(self._file.values)
            self.save()
            self.apply()
            self.edited.emit()

    @property
    def settings(self) -> Settings:
        return self._file.values

    def zoom(self, step_percent: int) -> None:
        """A step of 0 goes back to 100 %."""
        look = self._file.values.appearance
        wanted = 100 if step_percent == 0 else look.zoom_percent + step_percent
        look.zoom_percent = min(max(wanted, 75), 300)
        self.save()
        self.apply()

    def remember_model(self, path: Path) -> None:
        """The model that is opened at the next start."""
        self._file.values.model.path = str(path)
        self.save()

    def save(self) -> None:
        attempt(self._file.save, self.trouble.emit)

    def apply(self) -> None:
        """Colours and sizes of the settings, for the whole program."""
        app = QApplication.instance()
        assert isinstance(app, QApplication), "the window belongs to an application"
        self.theme = self._chosen()
        theme.apply(app, self.theme)
        self.theme_changed.emit()

    def system_changed(self) -> None:
        """The system switched between light and dark."""
        if self._file.values.appearance.theme == "auto":
            self.apply()
