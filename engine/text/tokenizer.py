"""Text to token ids and back, exact to the byte.

``encode`` is for what people write: no control token is ever recognised in it. The literal parts of
a chat template are cut at control tokens by ``control_id`` (engine/text/prompt.py).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from hearth.engine.errors import UserError
from hearth.engine.text.data import FolderText, GgufText

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from hearth.engine.text.data import TextData

CONTROL, USER_DEFINED, UNUSED = 3, 4, 5
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
    """Encoders and decoder of one model. Immutable after construction; thread-safe."""

    def __init__(
        self,
        plain: Tokenizer,
        control: Tokenizer,
        control_ids: Iterable[int],
        end_ids: Iterable[int],
        bos_id: int | None,
    ) -> None:
        self._plain = plain
        self._control = control
        self.control_ids = frozenset(control_ids)
        self.bos_id = bos_id
        named = (control.token_to_id(text) for text in KNOWN_ENDS)
        known = {i for i in named if i is not None and i in self.control_ids}
        self.end_ids = frozenset(end_ids) | known
        self.size = control.get_vocab_size(with_added_tokens=True)
        self._bytes = _ByteAlphabet()
        self._vocabulary_bytes: dict[int, bytes] = {}

    def encode(self, text: str) -> list[int]:
        """Ids of ordinary text. Raises UserError for text that no encoding can hold."""
        # A batch of one: only this call lets other threads run (5 MB: 4.5 s of standstill before).
        batch = self._plain.encode_batch_fast([_encodable(text)], add_special_tokens=False)
        return list(batch[0].ids)

    def control_id(self, text: str) -> int | None:
        """The id of a token that is matched as a whole; None when ``text`` is no such token."""
        found = self._control.token_to_id(text)
        return found if found in self.control_ids else None

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token stands for; control tokens give their name."""
        known = self._vocabulary_bytes.get(token_id)
        if known is None:
            text = self._control.id_to_token(token_id) or ""
            is_control = token_id in self.control_ids
            known = text.encode() if is_control else self._bytes.decode(text)
            self._vocabulary_bytes[token_id] = known
        return known

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids, control tokens left out; invalid UTF-8 becomes U+FFFD."""
        raw = b"".join(self.token_bytes(i) for i in ids if i not in self.control_ids)
        return raw.decode("utf-8", errors="replace")


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
    special = {
        index: token
        for index, (token, kind) in enumerate(zip(data.tokens, data.token_types, strict=True))
        if kind in (CONTROL, USER_DEFINED)
    }
    plain, control = (_bpe(data) for _ in range(2))
    control.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in special.values()]
    )
    for index, token in special.items():
        if control.token_to_id(token) != index:
            raise UserError(f"The tokenizer names {token} twice; the file is damaged.")
    bos = data.bos_id if data.add_bos else None
    return Vocabulary(plain, control, special, data.end_ids, bos)


def _bpe(data: GgufText) -> Tokenizer:
    vocabulary = {token: index for index, token in enumerate(data.tokens)}
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
        control = Tokenizer.from_file(str(data.tokenizer_json))
        description = json.loads(data.tokenizer_json.read_text("utf-8"))
        added = {int(item["id"]): str(item["content"]) for item in description["added_tokens"]}
        plain = Tokenizer.from_str(json.dumps(description | {"added_tokens": []}))
    except Exception as error:  # the library raises plain Exception for bad files
        raise UserError(
            f"{data.tokenizer_json.name} cannot be read: {error}.",
            action="Download the model's tokenizer files again.",
        ) from error
    missing = [text for _, text in data.extra_tokens if control.token_to_id(text) is None]
    control.add_special_tokens([AddedToken(text, special=True) for text in missing])
    added |= {i: text for i, text in data.extra_tokens if control.token_to_id(text) == i}
    plain.post_processor = control.post_processor = None
    return Vocabulary(plain, control, added, data.end_ids, data.bos_id)
