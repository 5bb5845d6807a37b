"""Token ids to text while they arrive: only whole characters leave."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hearth.engine.text.tokenizer import Vocabulary


class Detokeniser:
    """One reply's text. Owned by its request; joined output equals ``Vocabulary.decode``."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, ids: Iterable[int]) -> str:
        """The characters that ``ids`` complete; control tokens are not shown."""
        control = self._vocabulary.control_ids
        raw = b"".join(self._vocabulary.token_bytes(i) for i in ids if i not in control)
        return self._decoder.decode(raw)

    def flush(self) -> str:
        """What is left at the end: U+FFFD for an incomplete character, or nothing."""
        return self._decoder.decode(b"", final=True)
