"""The switch for thinking: what the settings say, for the model that is open."""

from __future__ import annotations

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

if TYPE_CHECKING:
    from hearth.app.settings import ThinkingChoice
    from hearth.engine.protocol import ModelInfo
    from hearth.ui.composer import Composer
    from hearth.ui.preferences import Preferences


class ThinkingSwitch(QObject):
    """Between the composer's button and the settings. There is none for a model without a choice;
    "auto" shows what the model does by itself."""

    def __init__(self, composer: Composer, preferences: Preferences) -> None:
        super().__init__(composer)
        self._composer = composer
        self._preferences = preferences
        self._model: ModelInfo | None = None
        composer.think_asked.connect(self._choose)
        preferences.edited.connect(self.refresh)

    @property
    def _choice(self) -> ThinkingChoice:
        return self._preferences.settings.thinking

    def show_model(self, model: ModelInfo | None) -> None:
        self._model = model
        self.refresh()

    def refresh(self) -> None:
        self._composer.set_thinking(is_on=self._is_on())

    def _is_on(self) -> bool | None:
        """None without a choice."""
        if self._model is None or not self._model.can_think:
            return None
        if self._choice.mode == "auto" and self._choice.effort == "auto":
            return self._model.thinks_by_default
        return self._choice.mode != "off"

    def _choose(self, is_on: bool) -> None:
        self._choice.mode = "on" if is_on else "off"
        self._preferences.save()
        self.refresh()

    def toggle(self) -> None:
        """By key or menu. Says so when the model has no choice."""
        is_on = self._is_on()
        if is_on is None:
            self._preferences.trouble.emit("The open model has no switch for thinking.")
        else:
            self._choose(not is_on)
