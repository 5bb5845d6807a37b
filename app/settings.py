"""Settings in one TOML file: checked, with defaults, and never a reason not to start.

No environment variable changes a setting; HEARTH_HOME (profile.py) only says where the file is.
"""

from __future__ import annotations

import errno
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Literal

import tomlkit
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from tomlkit.exceptions import TOMLKitError

from hearth.app.chats.failures import guard
from hearth.app.chats.files import make_private_folder, time_stamp, unused_name, write_whole

if TYPE_CHECKING:
    from pathlib import Path


class _Section(BaseModel):
    model_config = ConfigDict(validate_assignment=True, allow_inf_nan=False)


class Appearance(_Section):
    theme: Literal["auto", "light", "dark"] = "auto"
    zoom_percent: int = Field(default=100, ge=75, le=300)


class ModelChoice(_Section):
    path: str = ""  # the model that is opened at start; empty: the starter model
    context_length: int | None = Field(default=None, ge=128)


class WideWeights(_Section):
    """Matrices that a checkpoint leaves in 16 bits: kept, or narrowed while the model is opened.
    "auto" is what the device gains from; on the CPU that is "keep"."""

    head: Literal["auto", "keep", "int8", "int4"] = "auto"
    embedding: Literal["auto", "keep", "int8", "int4"] = "auto"
    mtp: Literal["auto", "keep", "int8", "int4"] = "auto"

    def keep_all(self) -> None:
        self.head = self.embedding = self.mtp = "keep"


class Sampling(_Section):
    """Defaults of ``engine.protocol.SamplingParams``. The starter model is small: a little warmth
    and a repetition penalty keep it from circling."""

    temperature: float = Field(default=0.6, ge=0.0, le=5.0)
    top_k: int = Field(default=40, ge=0)
    top_p: float = Field(default=0.95, gt=0.0, le=1.0)
    min_p: float = Field(default=0.05, ge=0.0, lt=1.0)
    repetition_penalty: float = Field(default=1.1, gt=0.0, le=3.0)
    seed: int | None = None  # None: another one for every reply
    max_tokens: int = Field(default=1024, ge=0)  # 0: no limit


class ThinkingChoice(_Section):
    """For models that can think before they answer. "auto" is what the model's template does by
    itself; a template refuses an effort that it does not know."""

    mode: Literal["auto", "on", "off"] = "auto"
    effort: Literal["auto", "low", "medium", "high", "xhigh"] = "auto"
    max_tokens: int = Field(default=8192, ge=0)  # besides those of the answer; 0: no limit


class Speed(_Section):
    drafting: Literal["auto", "off", "lookup", "mtp"] = "auto"
    recurrent_state: Literal["float32", "float16"] = "float32"  # float16 rounds at every token
    threads: int | None = Field(default=None, ge=1)
    cache_gigabytes: float = Field(default=20.0, ge=0.0)


class Window(_Section):
    """Where the window was. The position is None until it has been moved once."""

    x: int | None = None
    y: int | None = None
    width: int = Field(default=1100, ge=200, le=32767)
    height: int = Field(default=780, ge=200, le=32767)
    is_maximized: bool = False
    list_width: int = Field(default=280, ge=0, le=32767)


class Settings(_Section):
    appearance: Appearance = Field(default_factory=Appearance)
    model: ModelChoice = Field(default_factory=ModelChoice)
    wide_weights: WideWeights = Field(default_factory=WideWeights)
    sampling: Sampling = Field(default_factory=Sampling)
    thinking: ThinkingChoice = Field(default_factory=ThinkingChoice)
    speed: Speed = Field(default_factory=Speed)
    window: Window = Field(default_factory=Window)


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
            # A path may hold bytes that are no UTF-8; surrogateescape brings them back.
            return tomlkit.parse(self._path.read_text("utf-8", errors="surrogateescape"))
        except FileNotFoundError:
            return tomlkit.document()
        except (TOMLKitError, ValueError, OSError) as error:
            self._set_aside(error)
            return tomlkit.document()

    def _set_aside(self, error: Exception) -> None:
        name = f"{self._path.name}.corrupt-{time_stamp()}"
        aside = unused_name(self._path.with_name(name))
        try:
            self._path.replace(aside)
            kept = f"the old file is kept as {aside.name}"
        except OSError as failure:
            if failure.errno == errno.ENOENT:
                return
            kept = f"the old file {self._path.name} could not be moved"
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
            self._update(name, section, set(type(getattr(self.values, name)).model_fields))
        data = tomlkit.dumps(self._document).encode("utf-8", "surrogateescape")
        with guard(self._path):
            make_private_folder(self._path.parent)
            write_whole(self._path, data)

    def _update(self, name: str, section: dict[str, object], known: set[str]) -> None:
        """Change only the values that differ, so that comments and layout stay."""
        table = self._document.get(name)
        if not isinstance(table, MutableMapping):
            self._document[name] = table = tomlkit.table()
        for key in known & set(table) - set(section):
            del table[key]
        for key, value in section.items():
            if key not in table or table[key] != value:
                table[key] = value


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
