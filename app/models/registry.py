"""Which models are at hand: files in the models folder, and paths that were imported."""

from __future__ import annotations

import contextlib
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hearth.app.chats.failures import guard
from hearth.app.chats.files import time_stamp, unused_name, write_whole
from hearth.app.models.catalogue import CATALOGUE, STARTER
from hearth.engine.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True)
class InstalledModel:
    """``is_own``: the file lies in Hearth's folder and goes away with ``remove``."""

    name: str
    path: Path
    num_bytes: int
    is_own: bool


class ModelRegistry:
    """The models folder and ``imported.json`` in it. Imported files stay where they are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._list_file = folder / "imported.json"

    def models(self) -> list[InstalledModel]:
        """Own files first; imported ones as long as they exist."""
        own = [InstalledModel(_name(p), p, _size(p), is_own=True) for p in self._own_files()]
        imported = [
            InstalledModel(name, Path(path), _size(Path(path)), is_own=False)
            for name, path in self._imported().items()
            if Path(path).exists()
        ]
        return own + imported

    def _own_files(self) -> Iterator[Path]:
        yield from sorted(self.folder.glob("*.gguf"))

    def missing(self) -> list[tuple[str, Path]]:
        """Imported models whose files are not there now (a drive that is not connected)."""
        entries = ((name, Path(path)) for name, path in self._imported().items())
        return [(name, path) for name, path in entries if not path.exists()]

    def _imported(self) -> dict[str, str]:
        try:
            entries = json.loads(self._list_file.read_text("utf-8"))
        except FileNotFoundError:
            return {}
        except (OSError, ValueError):
            entries = None
        if not isinstance(entries, dict):
            self._set_aside()
            return {}
        return {str(name): str(path) for name, path in entries.items()}

    def _set_aside(self) -> None:
        """Keep a damaged list beside the new one; the models themselves are untouched."""
        aside = unused_name(self._list_file.with_name(f"imported.json.corrupt-{time_stamp()}"))
        with contextlib.suppress(OSError):
            self._list_file.replace(aside)

    def add(self, path: Path) -> InstalledModel:
        """Remember a model file or folder by where it is; the caller has inspected it. A name that
        another model has already gets a number."""
        path = path.expanduser().resolve()
        for model in self.models():
            if model.path.resolve() == path:
                return model
        entries = self._imported()
        taken = {model.name for model in self.models()} | set(entries)
        name = _name(path)
        for number in itertools.count(2):
            if name not in taken or entries.get(name) == str(path):
                break
            name = f"{_name(path)}-{number}"
        entries[name] = str(path)
        self._save(entries)
        return InstalledModel(name, path, _size(path), is_own=False)

    def remove(self, name: str) -> InstalledModel:
        """Delete an own file, or forget an imported path. Raises UserError for an unknown name."""
        entries = self._imported()
        known = [
            *self.models(),
            *(InstalledModel(n, p, 0, is_own=False) for n, p in self.missing()),
        ]
        found = next((model for model in known if _answers_to(model, name)), None)
        if found is None:
            raise _unknown(name)
        if found.is_own:
            with guard(found.path):
                found.path.unlink(missing_ok=True)
        else:
            del entries[found.name]
            self._save(entries)
        return found

    def find(self, name: str) -> InstalledModel:
        """By name, catalogue key, or path of a file. Raises UserError."""
        for model in self.models():
            if _answers_to(model, name):
                return model
        path = Path(name).expanduser()
        if path.exists():
            return InstalledModel(_name(path), path, _size(path), is_own=False)
        raise _unknown(name)

    def default(self, preferred: str) -> Path | None:
        """The preferred path when it exists, else the starter, else any; None without a model."""
        if preferred and Path(preferred).exists():
            return Path(preferred)
        starter = self.folder / STARTER.file_name
        if starter.exists():
            return starter
        models = self.models()
        return models[0].path if models else None

    def _save(self, entries: dict[str, str]) -> None:
        text = json.dumps(entries, indent=2, ensure_ascii=True)
        with guard(self._list_file):
            write_whole(self._list_file, text.encode())


def _name(path: Path) -> str:
    """Without ``.gguf``; other dots belong to the name ("Qwen2.5-0.5B")."""
    return path.stem if path.suffix.lower() == ".gguf" else path.name


def _answers_to(model: InstalledModel, name: str) -> bool:
    wanted = _name(Path(CATALOGUE[name].file_name)) if name in CATALOGUE else name
    return wanted in (model.name, model.path.name, str(model.path))


def _unknown(name: str) -> UserError:
    return UserError(
        f"There is no model {name}.",
        action="See 'hearth models list', or run 'hearth models pull starter'.",
    )


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            return sum(file.stat().st_size for file in path.glob("*.safetensors"))
        return path.stat().st_size
    except OSError:
        return 0
