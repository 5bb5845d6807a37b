"""A profile: the folders of one user's Hearth, and the one running instance that may use them."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

import platformdirs

from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable

RAISE = b"raise\n"
SOCKET_TIMEOUT_S = 2.0
MAX_SOCKET_PATH_BYTES = 100  # the system's limit is 104 to 108


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
        return paths_below(Path(home).expanduser())
    data = platformdirs.user_data_path("hearth", appauthor=False)
    cache = platformdirs.user_cache_path("hearth", appauthor=False)
    return Paths(data, cache, data / "models", data / "logs")


def paths_below(root: Path) -> Paths:
    return Paths(root, root / "cache", root / "models", root / "logs")


class Profile:
    """Owns the folders while the program runs; a context manager.

    A temporary profile keeps the real one's models (they are large and hold nothing private) and
    is removed at the end.
    """

    def __init__(self, paths: Paths, temporary_root: Path | None = None) -> None:
        self.paths = paths
        self._temporary_root = temporary_root
        self._lock: IO[str] | None = None
        self._server: socket.socket | None = None
        self._create_folders()

    @classmethod
    def open(cls, *, temporary: bool = False) -> Profile:
        """Raises MachineError when the folders cannot be made."""
        if not temporary:
            return cls(default_paths())
        root = Path(tempfile.mkdtemp(prefix="hearth-profile-"))
        below = paths_below(root)
        return cls(Paths(below.data, below.cache, default_paths().models, below.logs), root)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create_folders(self) -> None:
        for folder in (self.paths.data, self.paths.cache, self.paths.models, self.paths.logs):
            try:
                folder.mkdir(parents=True, exist_ok=True, mode=0o700)
                if not os.access(folder, os.W_OK):
                    raise PermissionError(13, "it is read-only")
            except OSError as error:
                raise MachineError(
                    f"Hearth cannot use the folder {folder}: {error.strerror}.",
                    action="Set HEARTH_HOME to a folder you may write to, or use --temp-profile.",
                ) from error

    # ----------------------------------------------------------------------- one running instance

    def claim(self) -> bool:
        """Become the one instance that uses this profile; False when another one runs. The
        system gives the lock back when the process ends, however it ends."""
        try:
            lock = (self.paths.data / "lock").open("a+", encoding="utf-8")
        except OSError as error:
            raise MachineError(
                f"Hearth cannot use the folder {self.paths.data}: {error.strerror}.",
                action="Set HEARTH_HOME to a folder you may write to, or use --temp-profile.",
            ) from error
        if not _try_lock(lock):
            lock.close()
            return False
        self._lock = lock
        return True

    def listen(self, on_raise: Callable[[], None]) -> None:
        """Call ``on_raise``, on another thread, whenever a second start asks for the window."""
        address = self._socket_path()
        if address is None:
            return
        Path(address).unlink(missing_ok=True)
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(address)
        Path(address).chmod(0o600)
        server.listen(4)
        self._server = server
        threading.Thread(
            target=_serve, args=(server, on_raise), name="hearth-raise", daemon=True
        ).start()

    def ask_to_raise(self) -> bool:
        """Ask the running instance to show its window; False when it does not listen."""
        address = self._socket_path()
        if address is None:
            return False
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(SOCKET_TIMEOUT_S)
                client.connect(address)
                client.sendall(RAISE)
        except OSError:
            return False
        return True

    def _socket_path(self) -> str | None:
        """None where the system has no local sockets, or the path is too long for one."""
        path = str(self.paths.data / "raise.socket")
        fits = len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES
        return path if hasattr(socket, "AF_UNIX") and fits else None

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None
        if self._temporary_root is not None:
            shutil.rmtree(self._temporary_root, ignore_errors=True)


def _serve(server: socket.socket, on_raise: Callable[[], None]) -> None:
    while True:
        try:
            client, _ = server.accept()
        except OSError:  # closed
            return
        with client:
            client.settimeout(SOCKET_TIMEOUT_S)
            try:
                asked = client.recv(len(RAISE))
            except OSError:
                continue
            if asked == RAISE:
                on_raise()


def _try_lock(file: IO[str]) -> bool:
    """An exclusive lock of the operating system, without waiting."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
