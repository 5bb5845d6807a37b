"""What the text side needs from a model's files, however they store it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class GgufText:
    """Tokenizer data of GGUF metadata. ``token_types``: 1 normal, 2 unknown, 3 control, 4 user
    defined, 5 unused, 6 byte; normal tokens are spelt in the byte-level alphabet."""

    model: str
    pre: str
    tokens: tuple[str, ...]
    token_types: tuple[int, ...]
    merges: tuple[str, ...]
    bos_id: int | None
    end_ids: tuple[int, ...]
    add_bos: bool
    chat_template: str | None


@dataclass(frozen=True, slots=True)
class FolderText:
    """A folder's ``tokenizer.json`` and what its configuration files say beside it."""

    tokenizer_json: Path
    extra_tokens: tuple[tuple[int, str], ...]  # only in tokenizer_config.json
    bos_id: int | None
    end_ids: tuple[int, ...]
    chat_template: str | None


TextData = GgufText | FolderText
