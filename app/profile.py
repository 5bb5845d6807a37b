"""A profile: the folders of one user's Hearth, and the one running instance that may use them.

The environment variable HEARTH_HOME, when set, names the folder that holds all of it.
"""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import platformdirs

from hearth.app import instance
from hearth.app.chats.files import FOLDER_MODE, make_private_folder
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Paths:
    """Where things are. ``data``: chats, settings; ``cache`` may be deleted at any time."""

    data: Path
    cache: Path
    models: Path
    logs: Path

    @property
    def settings_file(self) -> Path:
        return self.data / "settings.toml"

    @property
    def chats(self) -> Path:
        return self.data / "chats"

    @property
    def prefix_cache(self) -> Path:
        return self.cache / "prefixes"


def default_paths() -> Paths:
    """The system's folders, or all below HEARTH_HOME when that is set."""
    home = os.environ.get("HEARTH_HOME")
    if home:
        return paths_below(Path(home).expanduser().absolute())
    data = platformdirs.user_data_path("hearth", appauthor=False)
    cache = platformdirs.user_cache_path("hearth", appauthor=False)
    return Paths(data, cache, data / "models", data / "logs")


def paths_below(root: Path) -> Paths:
    return Paths(root, root / "cache", root / "models", root / "logs")


class Profile:
    """Owns the folders while the program runs; a context manager, used by one thread.

    A temporary profile keeps the real one's models (they are large and hold nothing private) and
    is removed at the end.
    """

    def __init__(self, paths: Paths, temporary_root: Path | None = None) -> None:
        self.paths = paths
        self._temporary_root = temporary_root
        self._lock: IO[str] | None = None
        self._doorbell: instance.Doorbell | None = None
        for folder in (paths.data, paths.cache, paths.logs):
            _use(folder, is_private=True)
        # Models hold nothing private and may be shared; a foreign read-only folder is fine.
        if not paths.models.is_dir():
            _use(paths.models, is_private=False)

    @classmethod
    def open(cls, root: Path | None = None, *, temporary: bool = False) -> Profile:
        """The profile in ``root``, or the user's own, or a throw-away one.

        Raises MachineError with the way out when the folders cannot be used.
        """
        own = paths_below(root) if root is not None else default_paths()
        if not temporary:
            return cls(own)
        folder = Path(tempfile.mkdtemp(prefix="hearth-profile-"))
        below = paths_below(folder)
        # A temporary profile must also start where the real one cannot be written.
        models = own.models if own.models.is_dir() else below.models
        return cls(Paths(below.data, below.cache, models, below.logs), folder)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def claim(self) -> bool:
        """Become the one instance that uses this profile; False when another one runs."""
        if self._lock is None:
            self._lock = instance.take_lock(self.paths.data / "lock")
        return self._lock is not None

    def listen(self, on_raise: Callable[[], None]) -> None:
        """Call ``on_raise``, on another thread, whenever a second start asks for the window."""
        assert self._lock is not None, "only the instance that claimed the profile listens"
        self._doorbell = instance.Doorbell(self.paths.data, on_raise)

    def ask_to_raise(self) -> bool:
        """Ask the running instance to show its window; False when it does not listen."""
        return instance.ring(self.paths.data)

    def close(self) -> None:
        if self._doorbell is not None:
            self._doorbell.close()
            self._doorbell = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._temporary_root is not None:
            shutil.rmtree(self._temporary_root, ignore_errors=True)


def _use(folder: Path, *, is_private: bool) -> None:
    """Create the folder and find out now, not at the first message, that it cannot be used."""
    try:
        if is_private:
            make_private_folder(folder)
        else:
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
    except OSError as error:
        raise MachineError(
            f"Hearth cannot use the folder {folder}: {error.strerror}.",
            action="Set HEARTH_HOME to a folder you may write to, or use --temp-profile.",
        ) from error
