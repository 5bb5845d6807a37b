"""Which models are at hand: files in the models folder, and paths that were imported."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hearth.app.models.catalogue import CATALOGUE, STARTER
from hearth.engine.errors import MachineError, UserError

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
        own = [InstalledModel(p.stem, p, _size(p), is_own=True) for p in self._own_files()]
        imported = [
            InstalledModel(name, Path(path), _size(Path(path)), is_own=False)
            for name, path in self._imported().items()
            if Path(path).exists()
        ]
        return own + imported

    def _own_files(self) -> Iterator[Path]:
        yield from sorted(self.folder.glob("*.gguf"))

    def _imported(self) -> dict[str, str]:
        try:
            entries = json.loads(self._list_file.read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        if not isinstance(entries, dict):
            return {}
        return {str(name): str(path) for name, path in entries.items()}

    def add(self, path: Path) -> InstalledModel:
        """Remember a model file or folder by where it is; the caller has inspected it."""
        path = path.expanduser().resolve()
        entries = self._imported()
        name = path.stem if path.is_file() else path.name
        entries[name] = str(path)
        self._save(entries)
        return InstalledModel(name, path, _size(path), is_own=False)

    def remove(self, name: str) -> InstalledModel:
        """Delete an own file, or forget an imported path. Raises UserError for an unknown name."""
        found = self.find(name)
        if found.is_own:
            found.path.unlink()
        else:
            entries = self._imported()
            entries.pop(found.name, None)
            self._save(entries)
        return found

    def find(self, name: str) -> InstalledModel:
        """By name, catalogue key, or path of a file. Raises UserError."""
        wanted = CATALOGUE[name].file_name.removesuffix(".gguf") if name in CATALOGUE else name
        for model in self.models():
            if wanted in (model.name, model.path.name, str(model.path)):
                return model
        path = Path(name).expanduser()
        if path.exists():
            return InstalledModel(path.stem, path, _size(path), is_own=False)
        raise UserError(
            f"There is no model {name}.",
            action="See 'hearth models list', or run 'hearth models pull starter'.",
        )

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
        temporary = self._list_file.with_name(f"{self._list_file.name}.tmp{os.getpid()}")
        try:
            temporary.write_text(json.dumps(entries, indent=2, ensure_ascii=False), "utf-8")
            temporary.chmod(0o600)
            temporary.replace(self._list_file)
        except OSError as error:
            raise MachineError(
                f"The list of models could not be saved: {error.strerror}."
            ) from error


def _size(path: Path) -> int:
    try:
        if path.is_dir():
            return sum(file.stat().st_size for file in path.glob("*.safetensors"))
        return path.stat().st_size
    except OSError:
        return 0
