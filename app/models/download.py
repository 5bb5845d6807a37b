"""Downloads with resume: what is on the disk is whole and checked, or it is a ``.part``."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import shutil
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hearth.engine.errors import CancelledError, MachineError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CHUNK_BYTES = 1 << 18
TIMEOUT_S = 30.0
SPARE_BYTES = 64 << 20  # left free on the disk
OFFLINE_ACTION = (
    "Check the network, or open a model file that you have ('hearth models import PATH', "
    "or Open model… in the window)."
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file by address, size and hash."""

    url: str
    num_bytes: int
    sha256: str


class Download:
    """One download into ``target``; ``run`` may be called again after any failure and goes on where
    it was. ``on_progress`` gets (bytes done, bytes in all)."""

    def __init__(
        self,
        wanted: Wanted,
        target: Path,
        on_progress: Callable[[int, int], None],
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        self._wanted = wanted
        self._target = target
        self._part = target.with_name(target.name + ".part")
        self._on_progress = on_progress
        self._is_cancelled = is_cancelled

    def run(self) -> None:
        """Raises MachineError (network, disk, wrong content) or CancelledError."""
        for attempt in range(2):
            self._fetch()
            if self._sha256() == self._wanted.sha256:
                self._part.replace(self._target)
                return
            self._part.unlink(missing_ok=True)  # damaged on the way: once more from the start
            if attempt == 1:
                raise MachineError(
                    f"{self._target.name} arrived damaged twice.",
                    action="Try again later, or from another network.",
                )

    def _fetch(self) -> None:
        have = self._part.stat().st_size if self._part.exists() else 0
        if have > self._wanted.num_bytes:
            self._part.unlink()
            have = 0
        if have == self._wanted.num_bytes:
            return
        self._check_space(self._wanted.num_bytes - have)
        try:
            self._receive(have)
        except urllib.error.HTTPError as error:
            if error.code == 416:  # the part is not a beginning of what the server has
                self._part.unlink(missing_ok=True)
                self._receive(0)
                return
            raise MachineError(
                f"The server answered {error.code} for {self._target.name}.", action=OFFLINE_ACTION
            ) from error
        except (urllib.error.URLError, http.client.HTTPException, TimeoutError) as error:
            reason = getattr(error, "reason", error)
            raise MachineError(
                f"{self._target.name} could not be downloaded ({reason}).", action=OFFLINE_ACTION
            ) from error
        except OSError as error:
            raise MachineError(
                f"{self._target.name} could not be written: {error.strerror or error}.",
                action="Free some disk space and try again; what has arrived is kept.",
            ) from error

    def _check_space(self, num_bytes: int) -> None:
        free = shutil.disk_usage(self._target.parent).free
        if free < num_bytes + SPARE_BYTES:
            raise MachineError(
                f"{num_bytes / 1e6:,.0f} MB are needed and {free / 1e6:,.0f} MB are free.",
                action="Free some disk space and try again.",
            )

    def _receive(self, have: int) -> None:
        request = urllib.request.Request(self._wanted.url)  # noqa: S310 - https or tests
        if have:
            request.add_header("Range", f"bytes={have}-")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:  # noqa: S310
            resumed = answer.status == 206 and _starts_at(answer.headers, have)
            with self._part.open("ab" if resumed else "wb") as file:
                done = have if resumed else 0
                while chunk := answer.read(CHUNK_BYTES):
                    if self._is_cancelled():
                        raise CancelledError("The download was stopped; what has arrived is kept.")
                    file.write(chunk)
                    done += len(chunk)
                    self._on_progress(done, self._wanted.num_bytes)
        if done < self._wanted.num_bytes:
            raise urllib.error.URLError("the connection ended too early")

    def _sha256(self) -> str:
        digest = hashlib.sha256()
        with self._part.open("rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
        return digest.hexdigest()


def _starts_at(headers: http.client.HTTPMessage, byte_offset: int) -> bool:
    """Whether a partial answer begins where it was asked to."""
    place = headers.get("Content-Range", "")
    with contextlib.suppress(ValueError, IndexError):
        return int(place.split(" ")[1].split("-")[0]) == byte_offset
    return False
