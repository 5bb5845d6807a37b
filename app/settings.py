"""Settings in one TOML file: checked, with defaults, and never a reason not to start."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Literal

import tomlkit
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tomlkit.exceptions import TOMLKitError

from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from pathlib import Path


class _Section(BaseModel):
    model_config = ConfigDict(validate_assignment=True)


class Appearance(_Section):
    theme: Literal["auto", "light", "dark"] = "auto"
    zoom_percent: int = Field(100, ge=75, le=300)


class ModelChoice(_Section):
    path: str = ""  # the model that is opened at start; empty: the starter model
    context_length: int | None = Field(None, ge=128)


class Sampling(_Section):
    """Defaults of ``engine.protocol.SamplingParams``. The starter model is small: a little warmth
    and a repetition penalty keep it from circling."""

    temperature: float = Field(0.6, ge=0.0, le=5.0)
    top_k: int = Field(40, ge=0)
    top_p: float = Field(0.95, gt=0.0, le=1.0)
    min_p: float = Field(0.05, ge=0.0, lt=1.0)
    repetition_penalty: float = Field(1.1, gt=0.0, le=3.0)
    seed: int | None = None  # None: another one for every reply
    max_tokens: int | None = Field(1024, ge=1)


class Speed(_Section):
    drafting: Literal["auto", "off", "lookup"] = "auto"
    threads: int | None = Field(None, ge=1)
    cache_gigabytes: float = Field(20.0, ge=0.0)


class Settings(_Section):
    appearance: Appearance = Field(default_factory=Appearance)
    model: ModelChoice = Field(default_factory=ModelChoice)
    sampling: Sampling = Field(default_factory=Sampling)
    speed: Speed = Field(default_factory=Speed)


class SettingsFile:
    """``settings.toml`` of a profile. Keys that this version does not know are kept, and comments.

    Attributes:
        values: the settings in force.
        notices: sentences about what could not be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.notices: list[str] = []
        self._document = self._read()
        self.values = self._validated()

    def _read(self) -> tomlkit.TOMLDocument:
        try:
            return tomlkit.parse(self._path.read_text("utf-8"))
        except FileNotFoundError:
            return tomlkit.document()
        except (TOMLKitError, UnicodeDecodeError, OSError) as error:
            self._set_aside(error)
            return tomlkit.document()

    def _set_aside(self, error: Exception) -> None:
        stamp = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
        aside = self._path.with_name(f"{self._path.name}.corrupt-{stamp}")
        try:
            self._path.replace(aside)
            kept = f"the old file is kept as {aside.name}"
        except OSError:
            kept = "the old file could not be moved"
        self.notices.append(f"The settings could not be read ({error}); defaults are used, {kept}.")

    def _validated(self) -> Settings:
        """Defaults for every value that is impossible, one sentence for each."""
        raw = self._document.unwrap()
        for _ in range(100):  # each turn removes one impossible value
            try:
                return Settings.model_validate(raw)
            except ValidationError as error:
                place = [str(step) for step in error.errors()[0]["loc"]]
                self.notices.append(f"The setting {'.'.join(place)} is impossible; default used.")
                _remove(raw, place)
        return Settings()

    def save(self) -> None:
        """Write atomically, 0600. Raises MachineError when the disk refuses."""
        for name, section in self.values.model_dump(exclude_none=True).items():
            table = self._document.setdefault(name, tomlkit.table())
            for key in set(table) & set(type(getattr(self.values, name)).model_fields):
                if key not in section:
                    table.remove(key)
            table.update(section)
        temporary = self._path.with_name(f"{self._path.name}.tmp{os.getpid()}")
        try:
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(tomlkit.dumps(self._document))
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(self._path)
        except OSError as error:
            raise MachineError(
                f"The settings could not be saved: {error.strerror}.",
                action="Check the disk; the settings stay as they are until you quit.",
            ) from error


def _remove(raw: dict[str, object], place: list[str]) -> None:
    """Drop the value at ``place``, or the nearest table above it that exists."""
    table: object = raw
    for step in place[:-1]:
        below = table.get(step) if isinstance(table, dict) else None
        if not isinstance(below, dict):
            place = place[: place.index(step) + 1]
            break
        table = below
    assert isinstance(table, dict), "settings are tables"
    table.pop(place[-1], None)
