"""Opens addresses the way the user's pip does: its index, its certificates, its credentials."""

from __future__ import annotations

import base64
import http.client
import os
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_INDEX = "https://pypi.org/simple"
TIMEOUT_S = 30.0
OFFLINE_ACTION = (
    "Check the network, or open a model file that you have ('hearth models import PATH', "
    "or Open model… in the window)."
)
# What may go wrong between here and a server; OSError beyond these is this machine's disk.
NETWORK_ERRORS = (
    urllib.error.URLError,
    http.client.HTTPException,
    ConnectionError,
    TimeoutError,
    ssl.SSLError,
)


@dataclass(frozen=True, slots=True)
class PipSettings:
    """What pip is configured with, as far as a download needs it."""

    index_url: str = DEFAULT_INDEX
    cert: str | None = None
    client_cert: str | None = None

    @property
    def index(self) -> str:
        """The index without credentials and without a slash at its end."""
        parts = urllib.parse.urlsplit(self.index_url)
        place = parts.netloc.rpartition("@")[2]
        return urllib.parse.urlunsplit(parts._replace(netloc=place)).rstrip("/")

    @property
    def authorization(self) -> str | None:
        """The header for the index's own host, when its address holds credentials."""
        parts = urllib.parse.urlsplit(self.index_url)
        if parts.username is None:
            return None
        name = urllib.parse.unquote(parts.username)
        password = urllib.parse.unquote(parts.password or "")
        return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


def pip_settings(environment: Mapping[str, str] = os.environ) -> PipSettings:
    """From pip's variables, then its files, then PyPI; an index that is no web address is not
    used."""
    files = _pip_files()

    def setting(name: str) -> str | None:
        from_files = files.get(f"install.{name}") or files.get(f"global.{name}")
        return environment.get(f"PIP_{name.upper().replace('-', '_')}") or from_files

    index = setting("index-url") or DEFAULT_INDEX
    if urllib.parse.urlsplit(index).scheme not in ("http", "https"):
        index = DEFAULT_INDEX
    return PipSettings(index, setting("cert"), setting("client-cert"))


def _pip_files() -> dict[str, str]:
    """What ``pip config list`` says; empty where pip is not installed."""
    if find_spec("pip") is None:
        return {}
    command = [sys.executable, "-m", "pip", "--no-input", "config", "list"]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    pairs = (line.partition("=") for line in answer.stdout.splitlines())
    return {key.strip(): value.strip().strip("'\"") for key, _, value in pairs}


class Web:
    """Opens http and https addresses; nothing else."""

    def __init__(self, settings: PipSettings | None = None) -> None:
        self.settings = settings if settings is not None else pip_settings()
        context = _context(self.settings)
        self._opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))

    def open(self, url: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        """The answer, to be closed by the caller. Raises one of NETWORK_ERRORS."""
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise urllib.error.URLError(f"{parts.scheme or 'no'} address")
        request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 - checked above
        authorization = self.settings.authorization
        if authorization and parts.netloc == urllib.parse.urlsplit(self.settings.index).netloc:
            # Unredirected: another host that the index sends us to never sees it.
            request.add_unredirected_header("Authorization", authorization)
        answer = self._opener.open(request, timeout=TIMEOUT_S)
        assert isinstance(answer, http.client.HTTPResponse), "only the web is opened"
        return answer


def _context(settings: PipSettings) -> ssl.SSLContext:
    context = ssl.create_default_context()
    try:
        if settings.cert:
            folder = os.path.isdir(settings.cert)  # noqa: PTH112 - may be either, as pip's
            context.load_verify_locations(
                cafile=None if folder else settings.cert, capath=settings.cert if folder else None
            )
        if settings.client_cert:
            context.load_cert_chain(settings.client_cert)
    except (OSError, ssl.SSLError) as error:
        raise MachineError(
            f"pip's certificate setting cannot be used: {error}.",
            action="Correct it with 'pip config'.",
        ) from error
    return context
