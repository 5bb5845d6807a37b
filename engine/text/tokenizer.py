"""Text to token ids and back, exact to the byte.

``encode`` is for what people write: no control token is ever recognised in it. The literal parts of
a chat template are cut at control tokens by ``control_id`` (engine/text/prompt.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from hearth.engine.errors import UserError
from hearth.engine.text.data import FolderText, GgufText

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from hearth.engine.text.data import TextData

CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
MAX_TOKENS = 1 << 24  # as many as a model may have embeddings
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|"
_QWEN2 = (
    _WORDS + r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN35 = (
    _WORDS + r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_LLAMA = _QWEN2.replace(r"|\p{N}|", r"|\p{N}{1,3}|")
# Regex families of GGUF's tokenizer.ggml.pre; None means GPT-2's own pattern.
PRE_PATTERNS: dict[str, str | None] = {
    "default": None,
    "gpt-2": None,
    "smollm": None,
    "qwen2": _QWEN2,
    "qwen35": _QWEN35,
    "llama-bpe": _LLAMA,
    "llama3": _LLAMA,
}
NFC_FAMILIES = ("qwen2", "qwen35")
# Ends of a turn that files sometimes fail to name; used when the vocabulary has them as control.
KNOWN_ENDS = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end_of_text|>", "<|end|>", "</s>")


class Vocabulary:
    """Encoder and decoder of one model. Immutable after construction; thread-safe.

    ``plain`` knows no added tokens. ``added``: id to text of those that are matched as a whole.
    ``token_ids``: every id that stands for something. Raises UserError for an absurd id.
    """

    def __init__(
        self,
        plain: Tokenizer,
        added: Mapping[int, str],
        token_ids: Iterable[int],
        end_ids: Iterable[int],
        bos_id: int | None,
    ) -> None:
        self._plain = plain
        self._added = {token_id: text for token_id, text in added.items() if text}
        self._ids = {text: token_id for token_id, text in self._added.items()}
        self.control_ids = frozenset(self._added)
        self.bos_id = bos_id
        known = {self._ids[text] for text in KNOWN_ENDS if text in self._ids}
        self.end_ids = frozenset(end_ids) | known
        is_used = _is_used(token_ids)
        self.size = len(is_used)  # the highest id and one more
        self.unused_ids = np.flatnonzero(~is_used)
        self._bytes = _ByteAlphabet()
        self._vocabulary_bytes: dict[int, bytes] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of ordinary text. Raises UserError for text that no encoding can hold."""
        # A batch of one: only this call lets other threads run (5 MB: 4.5 s of standstill before).
        batch = self._plain.encode_batch_fast([_encodable(text)], add_special_tokens=False)
        return list(batch[0].ids)

    def control_id(self, text: str) -> int | None:
        """The id of a token that is matched as a whole; None when ``text`` is no such token."""
        return self._ids.get(text)

    def drawable(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Logits [size] of a row [rows of the embedding matrix]: without the padding behind the
        tokens, and never of an id between them that stands for nothing. A view where it can be."""
        valid = logits[: self.size]
        if len(self.unused_ids):
            valid = valid.copy()
            valid[self.unused_ids] = -np.inf
        return valid

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; control tokens give their name."""
        known = self._vocabulary_bytes.get(token_id)
        if known is None:
            name = self._added.get(token_id)
            spelt = self._plain.id_to_token(token_id) or ""
            known = self._bytes.decode(spelt) if name is None else name.encode()
            self._vocabulary_bytes[token_id] = known
        return known

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, control tokens left out; invalid UTF-8 becomes U+FFFD."""
        raw = b"".join(self.token_bytes(i) for i in ids if i not in self.control_ids)
        return raw.decode("utf-8", errors="replace")


def _is_used(token_ids: Iterable[int]) -> NDArray[np.bool_]:
    ids = list(token_ids)
    size = max(ids, default=-1) + 1
    if not 0 < size <= MAX_TOKENS or min(ids) < 0:
        raise UserError(
            "The tokenizer numbers its tokens in a way that cannot be.",
            action="Download the model's tokenizer files again.",
        )
    is_used = np.zeros(size, dtype=np.bool_)
    is_used[ids] = True
    return is_used


class _ByteAlphabet:
    """GPT-2's byte-level alphabet: printable bytes stand for themselves, others for U+0100 on."""

    def __init__(self) -> None:
        printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
        rest = [byte for byte in range(256) if byte not in printable]
        self._byte_of = {chr(byte): byte for byte in printable}
        self._byte_of |= {chr(256 + place): byte for place, byte in enumerate(rest)}

    def decode(self, text: str) -> bytes:
        """Bytes of a token spelt in the alphabet; characters outside it are taken as UTF-8."""
        if all(char in self._byte_of for char in text):
            return bytes(self._byte_of[char] for char in text)
        return text.encode("utf-8", errors="surrogatepass")


def _is_text(text: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in text)


def _encodable(text: str) -> str:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UserError(
            f"The text holds half a surrogate pair at character {error.start}, which is no text.",
            action="Remove that character; the message itself is kept as it is.",
        ) from error
    return text


def load_vocabulary(data: TextData) -> Vocabulary:
    """Raises UserError when the tokenizer is of a kind that Hearth does not have."""
    return _from_gguf(data) if isinstance(data, GgufText) else _from_folder(data)


# -------------------------------------------------------------------------------------------- GGUF


def _from_gguf(data: GgufText) -> Vocabulary:
    if data.model != "gpt2":
        raise UserError(
            f"The model's tokenizer is of kind {data.model}, which Hearth cannot use yet.",
            action="Choose a model with a byte-level BPE tokenizer (llama 3, Qwen, SmolLM).",
        )
    if data.pre not in PRE_PATTERNS:
        raise UserError(f"The model's tokenizer splits text as {data.pre}, which Hearth lacks.")
    vocabulary = {token: index for index, token in enumerate(data.tokens)}
    kinds = list(enumerate(data.token_types))
    added = {i: data.tokens[i] for i, kind in kinds if kind in (CONTROL, USER_DEFINED)}
    for index, token in added.items():
        if vocabulary[token] != index:
            raise UserError(f"The tokenizer names {token} twice; the file is damaged.")
    # Rows of the matrix that no token needs are listed as [PAD...].
    used = (index for index, kind in kinds if kind != UNUSED)
    bos = data.bos_id if data.add_bos else None
    return Vocabulary(_bpe(data, vocabulary), added, used, data.end_ids, bos)


def _bpe(data: GgufText, vocabulary: dict[str, int]) -> Tokenizer:
    if any(" " not in merge for merge in data.merges):
        raise UserError("The tokenizer's merges are damaged.", action="Download the model again.")
    merges = [(left, right) for left, _, right in (m.partition(" ") for m in data.merges)]
    try:
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, fuse_unk=False))
    except Exception as error:  # the library raises plain Exception for bad merges
        raise UserError(
            f"The tokenizer's merges are damaged: {error}.", action="Download the model again."
        ) from error
    if data.pre in NFC_FAMILIES:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(_splitters(data.pre))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _splitters(pre: str) -> list[Any]:
    pattern = PRE_PATTERNS[pre]
    if pattern is not None:
        return [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    steps: list[Any] = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    if pre == "smollm":
        steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
    return steps


# ------------------------------------------------------------------------------------------ folder


def _from_folder(data: FolderText) -> Vocabulary:
    try:
        description = json.loads(data.tokenizer_json.read_text("utf-8"))
        added = {int(item["id"]): item["content"] for item in description["added_tokens"]}
        "".join(added.values()).encode()  # half a surrogate pair is no text
        plain = Tokenizer.from_str(json.dumps(description | {"added_tokens": []}))
    except Exception as error:  # the library raises plain Exception for bad files
        raise UserError(
            f"{data.tokenizer_json.name} cannot be read: {error}.",
            action="Download the model's tokenizer files again.",
        ) from error
    plain.post_processor = None
    added |= _further_tokens(plain, added, data.extra_tokens)
    ids = {*plain.get_vocab().values(), *added}
    return Vocabulary(plain, added, ids, data.end_ids, data.bos_id)


def _further_tokens(
    plain: Tokenizer, added: Mapping[int, str], extra: Iterable[tuple[int, str]]
) -> dict[int, str]:
    """What only tokenizer_config.json names. Where it contradicts tokenizer.json, that counts."""
    texts = set(added.values())
    return {
        token_id: text
        for token_id, text in extra
        if text and _is_text(text)
        if token_id not in added and text not in texts
        if plain.id_to_token(token_id) in (None, text)
        if plain.token_to_id(text) in (None, token_id)
    }
