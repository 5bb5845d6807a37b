"""One running instance per profile, and how a second start asks the first for its window.

The lock is the operating system's: it vanishes with the process that held it, however that ended.
The request goes over a local socket; where there is none (Windows) or its path would be too long,
over a loopback port whose number and token are in a file that only the owner can read.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import threading
from typing import IO, TYPE_CHECKING

from hearth.app.chats.failures import guard
from hearth.app.chats.files import make_private_file, write_whole
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

RAISE = b"raise\n"
TIMEOUT_S = 2.0
MAX_SOCKET_PATH_BYTES = 100  # the system's limit is 104 to 108
_HELD = frozenset({errno.EAGAIN, errno.EACCES, errno.EWOULDBLOCK, errno.EDEADLK})


def take_lock(path: Path) -> IO[str] | None:
    """The open lock file, to be kept open; None when another process holds it."""
    with guard(path):
        make_private_file(path)
        file = path.open("r+", encoding="utf-8")
        try:
            _lock(file)
        except OSError as error:
            file.close()
            if error.errno in _HELD:
                return None
            raise MachineError(
                f"The folder {path.parent} does not support locks: {error.strerror}.",
                action="Choose a folder on a local disk with HEARTH_HOME.",
            ) from error
    return file


def _lock(file: IO[str]) -> None:
    if os.name == "nt":
        import msvcrt

        msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
    else:
        import fcntl

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)


class Doorbell:
    """Listens for second starts on a thread of its own until ``close``."""

    def __init__(self, folder: Path, on_raise: Callable[[], None]) -> None:
        self._folder = folder
        self._on_raise = on_raise
        self._closing = threading.Event()
        with guard(folder / "raise"):
            self._server, self._secret = _bind(folder)
            self._server.listen(4)
        self._thread = threading.Thread(target=self._serve, name="hearth-raise", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        ring(self._folder)  # wakes accept(); closing a socket does not do that everywhere
        self._thread.join(TIMEOUT_S)
        self._server.close()
        for name in ("raise.socket", "raise.port"):
            (self._folder / name).unlink(missing_ok=True)

    def _serve(self) -> None:
        while not self._closing.is_set():
            client, _ = self._server.accept()
            with client:
                client.settimeout(TIMEOUT_S)
                if _receive(client) == self._secret + RAISE and not self._closing.is_set():
                    self._on_raise()


def ring(folder: Path) -> bool:
    """Ask the instance that listens in ``folder`` for its window; False when none does."""
    try:
        client, secret = _connect(folder)
        with client:
            client.sendall(secret + RAISE)
    except (OSError, ValueError):
        return False
    return True


def _receive(client: socket.socket) -> bytes:
    received = b""
    try:
        while not received.endswith(b"\n") and len(received) < 100:
            piece = client.recv(100)
            if not piece:
                break
            received += piece
    except OSError:  # it hung up or says nothing: not one of ours
        return b""
    return received


def _bind(folder: Path) -> tuple[socket.socket, bytes]:
    """A bound socket and the secret that callers must show."""
    path = _socket_path(folder)
    if path is not None:
        path.unlink(missing_ok=True)  # left by a process that was killed; we hold the lock
        server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        server.bind(str(path))
        path.chmod(0o600)
        return server, b""
    server = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    server.bind(("127.0.0.1", 0))
    token = secrets.token_hex(16)
    port: int = server.getsockname()[1]
    write_whole(folder / "raise.port", f"{port} {token}".encode())
    return server, token.encode()


def _connect(folder: Path) -> tuple[socket.socket, bytes]:
    path = _socket_path(folder)
    if path is not None:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        address: str | tuple[str, int] = str(path)
        token = ""
    else:
        port, token = (folder / "raise.port").read_text("utf-8").split()
        client = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        address = ("127.0.0.1", int(port))
    client.settimeout(TIMEOUT_S)
    try:
        client.connect(address)
    except BaseException:
        client.close()
        raise
    return client, token.encode()


def _socket_path(folder: Path) -> Path | None:
    path = folder / "raise.socket"
    fits = len(os.fsencode(path)) <= MAX_SOCKET_PATH_BYTES
    return path if hasattr(socket, "AF_UNIX") and fits else None
