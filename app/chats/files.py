"""Private files that are either wholly written or not there at all."""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600


def make_private_folder(folder: Path) -> None:
    """Create ``folder``; what already exists is closed to others only if it is open to them."""
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    if os.name == "posix" and folder.stat().st_mode & 0o077:
        with contextlib.suppress(PermissionError):  # a drive without permissions is used as it is
            folder.chmod(FOLDER_MODE)


def make_private_file(path: Path) -> None:
    """Create an empty file that only its owner may read, or keep the one that exists."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE))


def sync_folder(folder: Path) -> None:
    """Make a rename or a new name durable. Windows has no such call; NTFS journals names."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_whole(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``: temporary file, fsync, rename, fsync of the folder."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    sync_folder(path.parent)


def time_stamp() -> str:
    """A sortable UTC time for file names, unique enough together with the name."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime())


def unused_name(path: Path) -> Path:
    """``path`` itself or, when taken, the same name with a number."""
    candidate, number = path, 1
    while candidate.exists():
        number += 1
        candidate = path.with_name(f"{path.name}-{number}")
    return candidate
