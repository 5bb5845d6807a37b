"""Vocabularies with padding, gaps and contradictions: nothing that is no token is ever drawn."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from hearth.engine.errors import UserError
from hearth.engine.protocol import SamplingParams
from hearth.engine.sampling import draw, probabilities
from hearth.engine.text.data import FolderText, GgufText
from hearth.engine.text.tokenizer import Vocabulary, load_vocabulary

if TYPE_CHECKING:
    from pathlib import Path

NORMAL, CONTROL, USER_DEFINED, UNUSED = 1, 3, 4, 5
LETTERS = ("a", "b", "c", "e", "Ģ", "é", "Ã", "©", "ab")
GGUF = GgufText(
    model="gpt2",
    pre="qwen35",
    tokens=(*LETTERS, "<|im_end|>", "<think>", "[PAD11]", "[PAD12]"),
    token_types=(*[NORMAL] * len(LETTERS), CONTROL, USER_DEFINED, UNUSED, UNUSED),
    merges=("a b",),
    bos_id=None,
    end_ids=(),
    add_bos=False,
    chat_template=None,
)
SETTINGS = [
    SamplingParams(),
    SamplingParams(temperature=1.0),
    SamplingParams(temperature=1e3, top_k=12),
    SamplingParams(temperature=2.0, top_p=0.9),
    SamplingParams(temperature=2.0, min_p=0.1),
]


def in_the_middle() -> GgufText:
    """A vocabulary whose last token stands behind unused rows."""
    tokens = (*GGUF.tokens, "<|audio_pad|>")
    return replace(GGUF, tokens=tokens, token_types=(*GGUF.token_types, CONTROL))


@pytest.mark.parametrize("params", SETTINGS)
@pytest.mark.parametrize("data", [GGUF, in_the_middle()], ids=["behind", "between"])
def test_unused_rows_are_never_drawn(params: SamplingParams, data: GgufText) -> None:
    words = load_vocabulary(data)
    row = np.zeros(16, dtype=np.float32)  # two more rows than tokens
    row[11:13] = row[14:] = 50.0
    before = row.copy()
    logits = words.drawable(row)
    drawn = {draw(logits, replace(params, seed=seed), 3) for seed in range(200)}
    assert drawn <= set(range(11)) | {13}
    assert probabilities(logits, params)[11:13].sum() == 0.0
    np.testing.assert_array_equal(row, before)


def test_without_gaps_the_row_is_not_copied() -> None:
    row = np.zeros(16, dtype=np.float32)
    assert np.shares_memory(load_vocabulary(GGUF).drawable(row), row)


def test_sizes() -> None:
    assert load_vocabulary(GGUF).size == 11
    words = load_vocabulary(in_the_middle())
    assert (words.size, words.unused_ids.tolist()) == (14, [11, 12])
    assert words.control_ids == {9, 10, 13}


def test_control_and_user_defined_tokens_are_matched_as_a_whole_only_in_frames() -> None:
    words = load_vocabulary(GGUF)
    assert (words.control_id("<think>"), words.control_id("<|im_end|>")) == (10, 9)
    assert (words.control_id("a"), words.control_id("[PAD11]"), words.control_id("")) == (
        None, None, None,
    )  # fmt: skip
    assert words.encode("ab<think>") == [8]  # this vocabulary has no letters for the rest
    assert words.end_ids == {9}


def test_the_family_composes_characters() -> None:
    """é is the bytes C3 A9, spelt Ã and © in the byte alphabet."""
    assert load_vocabulary(GGUF).encode("e\u0301") == [6, 7]
    assert load_vocabulary(GGUF).encode("\u00e9") == [6, 7]
    assert load_vocabulary(replace(GGUF, pre="gpt-2")).encode("e\u0301")[0] == 3


@pytest.mark.parametrize("name", ["<think>", "a"])
def test_a_name_for_two_tokens_is_refused(name: str) -> None:
    tokens, types = (name, *GGUF.tokens[1:9], name), (CONTROL, *[NORMAL] * 8, NORMAL)
    with pytest.raises(UserError, match="twice"):
        load_vocabulary(replace(GGUF, tokens=tokens, token_types=types, merges=()))


def test_only_padding_is_no_vocabulary() -> None:
    with pytest.raises(UserError, match="numbers its tokens"):
        load_vocabulary(replace(GGUF, tokens=("x",), token_types=(UNUSED,), merges=()))


# ------------------------------------------------------------------------------------------ folder


def folder(
    path: Path, added: list[tuple[int, str]], extra: tuple[tuple[int, str], ...] = ()
) -> Vocabulary:
    vocab = {token: index for index, token in enumerate(LETTERS)}
    description: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [{"id": i, "content": text, "special": True} for i, text in added],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True},
        "model": {"type": "BPE", "vocab": vocab, "merges": [["a", "b"]]},
    }
    file = path / "tokenizer.json"
    file.write_text(json.dumps(description))
    return load_vocabulary(FolderText(file, extra, None, (), None))


def test_tokens_of_the_second_file_are_matched(tmp_path: Path) -> None:
    words = folder(tmp_path, [(9, "<|im_end|>")], ((9, "<|im_end|>"), (10, "<x>"), (11, "<y>")))
    assert (words.control_id("<x>"), words.control_id("<y>")) == (10, 11)
    assert (words.size, words.token_bytes(11)) == (12, b"<y>")


def test_gaps_between_tokens_are_never_drawn(tmp_path: Path) -> None:
    words = folder(tmp_path, [(9, "<|im_end|>")], ((14, "<x>"),))
    assert words.control_id("<x>") == 14
    assert (words.size, words.unused_ids.tolist()) == (15, [10, 11, 12, 13])


def test_where_the_files_contradict_each_other_the_first_counts(tmp_path: Path) -> None:
    extra = ((9, "<other>"), (10, "<|im_end|>"), (1, "<b>"), (12, "a"), (0, "a"), (11, ""))
    words = folder(tmp_path, [(9, "<|im_end|>")], (*extra, (13, "\ud800")))
    assert words.control_ids == {9, 0}
    assert (words.control_id("<|im_end|>"), words.control_id("a")) == (9, 0)
    assert words.token_bytes(1) == b"b"


@pytest.mark.parametrize(
    "added", [[(-1, "x")], [(1 << 24, "x")], [(10**30, "x")], [(9, "\ud800")], [(9, 7)]]
)
def test_impossible_added_tokens_are_a_sentence(tmp_path: Path, added: list[Any]) -> None:
    with pytest.raises(UserError, match=r"numbers its tokens|cannot be read"):
        folder(tmp_path, added)


def test_an_absurd_id_in_the_second_file_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="numbers its tokens"):
        folder(tmp_path, [], ((999_999_999, "<x>"),))
