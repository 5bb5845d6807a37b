"""Downloads with resume: what is on the disk is whole and checked, or it is a ``.part``.

A resumed download needs no If-Range: the size and the hash are known beforehand, and a ``.part``
that turns out to be the beginning of something else is thrown away and fetched once more.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import urllib.error
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING

from hearth.app.chats.failures import guard
from hearth.app.models.web import NETWORK_ERRORS, OFFLINE_ACTION
from hearth.engine.errors import CancelledError, MachineError

if TYPE_CHECKING:
    import http.client
    from collections.abc import Callable
    from pathlib import Path

    from hearth.app.models.web import Web

CHUNK_BYTES = 1 << 18
SPARE_BYTES = 64 << 20  # left free on the disk


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file by address, size and hash."""

    url: str
    num_bytes: int
    sha256: str


def never() -> bool:
    return False


class Download:
    """One download into ``target``; ``run`` may be called again after any failure and goes on where
    it was. ``on_progress`` gets (bytes done, bytes in all)."""

    def __init__(
        self,
        wanted: Wanted,
        target: Path,
        web: Web,
        on_progress: Callable[[int, int], None],
        is_cancelled: Callable[[], bool] = never,
    ) -> None:
        self._wanted = wanted
        self._target = target
        self._web = web
        self._part = part_of(target)
        self._on_progress = on_progress
        self._is_cancelled = is_cancelled

    def run(self) -> None:
        """Raises MachineError (network, disk, wrong content) or CancelledError."""
        with guard(self._part):
            for _ in range(2):
                self._fetch()
                if self._sha256() == self._wanted.sha256:
                    self._part.replace(self._target)
                    return
                self._part.unlink()  # damaged on the way: once more from the start
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
        check_space(self._part.parent, self._wanted.num_bytes - have)
        try:
            self._receive_or_restart(have)
        except urllib.error.HTTPError as error:
            error.close()
            raise MachineError(
                f"The server answered {error.code} for {self._target.name}.", action=OFFLINE_ACTION
            ) from error
        except NETWORK_ERRORS as error:
            reason = getattr(error, "reason", error)
            raise MachineError(
                f"{self._target.name} could not be downloaded ({reason}).", action=OFFLINE_ACTION
            ) from error

    def _receive_or_restart(self, have: int) -> None:
        try:
            self._receive(have)
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
                raise
            error.close()
            self._part.unlink()  # not a beginning of what the server has
            self._receive(0)

    def _receive(self, have: int) -> None:
        # A server that compressed on the way would give other bytes than the hash is of.
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        with self._web.open(self._wanted.url, headers) as answer:
            if answer.status not in (HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT):
                raise urllib.error.URLError(f"the server answered {answer.status}")
            is_partial = answer.status == HTTPStatus.PARTIAL_CONTENT
            if is_partial and _starts_at(answer.headers) != have:
                raise urllib.error.URLError("the server sent another part than was asked for")
            self._append(answer, have if is_partial else 0)

    def _append(self, answer: http.client.HTTPResponse, done: int) -> None:
        with self._part.open("ab" if done else "wb") as file:
            while chunk := answer.read(CHUNK_BYTES):
                if self._is_cancelled():
                    raise CancelledError("The download was stopped; what has arrived is kept.")
                file.write(chunk)
                done += len(chunk)
                if done > self._wanted.num_bytes:
                    return  # too much: the hash will say so, and the disk is not filled
                self._on_progress(done, self._wanted.num_bytes)
        if done < self._wanted.num_bytes:
            raise urllib.error.URLError("the connection ended too early")

    def _sha256(self) -> str:
        with self._part.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()


def part_of(target: Path) -> Path:
    return target.with_name(target.name + ".part")


def check_space(folder: Path, num_bytes: int) -> None:
    """Raises MachineError when ``num_bytes`` would fill the disk."""
    free = shutil.disk_usage(folder).free
    if free < num_bytes + SPARE_BYTES:
        raise MachineError(
            f"{num_bytes / 1e6:,.0f} MB are needed and {free / 1e6:,.0f} MB are free.",
            action="Free some disk space and try again.",
        )


def _starts_at(headers: http.client.HTTPMessage) -> int | None:
    """Where a partial answer begins."""
    place = headers.get("Content-Range", "")
    with contextlib.suppress(ValueError, IndexError):
        return int(place.split(" ")[1].split("-")[0])
    return None
