"""GGUF files that are damaged, lying or of another kind are refused in a sentence, quickly."""

from __future__ import annotations

import os
import random
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tiny_models as tiny

from hearth.engine.errors import HearthError, MachineError
from hearth.engine.weights.model_files import open_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Refusal = Callable[[Path], str]


def is_refused(path: Path) -> bool:
    try:
        open_model(path)
    except HearthError:
        return True
    return False


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str | bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def tensor(name: str, dims: tuple[int, ...], kind: int, byte_offset: int) -> bytes:
    numbers = struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, byte_offset)
    return text(name) + numbers


def header(
    entries: list[bytes], tensors: list[bytes], *, version: int = 3, data: bytes = b""
) -> bytes:
    start = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(entries))
    whole = start + b"".join(entries) + b"".join(tensors)
    return whole + b"\0" * (-len(whole) % 32) + data


def array(kind: int, count: int, data: bytes = b"") -> bytes:
    return struct.pack("<IQ", kind, count) + data


STRING, ARRAY, U8, U32, F32 = 8, 9, 0, 4, 6
ROOM = b"\0" * 4096
HOSTILE_HEADERS = {
    "its counts are absurd": [
        b"GGUF" + struct.pack("<IQQ", 3, 2**63, 0) + ROOM,
        b"GGUF" + struct.pack("<IQQ", 3, 0, 2**64 - 1) + ROOM,
    ],
    "absurdly long": [
        header([entry("a", STRING, struct.pack("<Q", 2**63))], []) + ROOM,
        header([struct.pack("<Q", 2**64 - 1)], []) + ROOM,
        header([entry("k" * 2000, U8, b"\0")], []),
        header([entry("a", ARRAY, array(U8, 3_000_000))], []) + bytes(3_000_000),
    ],
    "ends too early": [
        header([entry("a", STRING, struct.pack("<Q", 2**20))], []) + ROOM,
        header([entry("a", ARRAY, array(12, 600, ROOM))], []),
        b"GGUF",
        b"GGUF" + struct.pack("<I", 3),
    ],
    "longer than the file": [
        header([entry("a", ARRAY, array(U8, 2**63))], []) + ROOM,
        header([entry("a", ARRAY, array(STRING, 2**40))], []) + ROOM,
    ],
    "unknown kind": [
        header([entry("a", 13, ROOM)], []),
        header([entry("a", ARRAY, array(ARRAY, 1, array(ARRAY, 1)))], []) + ROOM,
        header([entry("a", ARRAY, array(99, 1))], []) + ROOM,
    ],
    "not UTF-8": [header([entry(b"\xff\xfe", U8, b"\0")], [])],
    "twice": [
        header([entry("a", U8, b"\0"), entry("a", U8, b"\1")], []),
        header([], [tensor("t", (8,), 0, 0), tensor("t", (8,), 0, 32)], data=ROOM),
    ],
    "alignment": [
        header([entry("general.alignment", U32, struct.pack("<I", value))], [])
        for value in (0, 3, 4, 48, 2**31)
    ]
    + [header([entry("general.alignment", F32, struct.pack("<f", 32.0))], [])],
    "dimensions": [
        header([], [tensor("t", (), 0, 0)], data=ROOM),
        header([], [tensor("t", (1,) * 5, 0, 0)], data=ROOM),
        header([], [text("t") + struct.pack("<I", 2**32 - 1)], data=ROOM),
    ],
    "is empty": [header([], [tensor("t", (0, 8), 0, 0)], data=ROOM)],
    "whole blocks": [
        header([], [tensor("t", (33,), 8, 0)], data=ROOM),
        header([], [tensor("t", (128, 2), 12, 0)], data=ROOM),
    ],
    "outside the file": [
        header([], [tensor("t", (2**62, 2**62), 0, 0)], data=ROOM),
        header([], [tensor("t", (2**32, 2**32), 0, 0)], data=ROOM),
        header([], [tensor("t", (8,), 0, 2**63)], data=ROOM),
        header([], [tensor("t", (1025,), 0, 0)], data=ROOM),
    ],
    "not aligned": [header([], [tensor("t", (8,), 0, 4)], data=ROOM)],
    "overlaps": [
        header([], [tensor("t", (16,), 0, 0), tensor("u", (16,), 0, 32)], data=ROOM),
        header([], [tensor("t", (8,), 0, 0), tensor("u", (8,), 0, 0)], data=ROOM),
    ],
    "big-endian": [header([], [], version=3 << 24), header([], [], version=2 << 24)],
    "version 4": [header([], [], version=4)],
    "version 1": [header([], [], version=1)],
    "IQ2_XXS": [header([], [tensor("t", (256,), 16, 0)], data=ROOM)],
    "IQ1_M": [header([], [tensor("t", (256,), 29, 0)], data=ROOM)],
    "type 77": [header([], [tensor("t", (256,), 77, 0)], data=ROOM)],
    "GGUF mark": [b"\x89PNG\r\n\x1a\n" + ROOM, b"x", b"#!/bin/sh\n", b"FUGG" + ROOM],
    "pickle": [b"PK\x03\x04" + ROOM, b"\x80\x02}q\x00" + ROOM],
    "it is empty": [b""],
    "general.architecture": [
        header([], []),
        header([entry("general.architecture", U8, b"\1")], []),
    ],
}


@pytest.mark.parametrize(
    ("reason", "data"),
    [(reason, data) for reason, cases in HOSTILE_HEADERS.items() for data in cases],
    ids=[f"{r} {n}" for r, cases in HOSTILE_HEADERS.items() for n in range(len(cases))],
)
def test_hostile_header(tmp_path: Path, refusal: Refusal, reason: str, data: bytes) -> None:
    path = tmp_path / "odd.gguf"
    path.write_bytes(data)
    sentence = refusal(path)
    assert reason in sentence
    assert "odd.gguf" in sentence


def test_many_small_items_are_bounded(tmp_path: Path, refusal: Refusal) -> None:
    """Two million empty texts cost 16 MB of file, and would cost far more as objects."""
    lists = [entry(f"k{n}", ARRAY, array(STRING, 2**18, bytes(2**21))) for n in range(9)]
    path = tmp_path / "many.gguf"
    path.write_bytes(header(lists, []))
    assert "absurdly long" in refusal(path)


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    whole = tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_parts()).read_bytes()
    path = tmp_path / "cut.gguf"
    data_start = whole.index(b"blk.1.ffn_down.weight") + 256  # the last described tensors
    lengths = [*range(data_start), *range(data_start, len(whole), 4099), len(whole) - 1]
    for length in lengths:
        path.write_bytes(whole[:length])
        with pytest.raises(HearthError):
            open_model(path)


def test_altered_bytes_open_or_are_refused(tmp_path: Path) -> None:
    """A damaged header never ends in a crash, whatever byte is hit."""
    whole = tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_parts()).read_bytes()
    end = whole.index(b"blk.1.ffn_down.weight") + 256
    chance = random.Random(7)
    path = tmp_path / "altered.gguf"
    num_refused = 0
    for _ in range(1500):
        altered = bytearray(whole)
        for _ in range(chance.choice((1, 1, 4))):
            altered[chance.randrange(end)] = chance.choice((0, 1, 127, 128, 255))
        path.write_bytes(altered)
        num_refused += is_refused(path)
    assert num_refused > 500


YARN = {"llama.rope.scaling.type": "yarn"}
CHANGED_KEYS: list[tuple[str, dict[str, Any]]] = [
    ("impossible", {"llama.attention.head_count_kv": 3}),
    ("impossible", {"llama.attention.head_count": 0}),
    ("impossible", {"llama.block_count": 2**31 - 1}),
    ("impossible", {"llama.attention.layer_norm_rms_epsilon": 0.0}),
    ("impossible", {"llama.rope.freq_base": -1.0}),
    ("impossible", {"llama.context_length": 0}),
    ("not finite", {"llama.attention.layer_norm_rms_epsilon": float("nan")}),
    ("not finite", {"llama.rope.freq_base": float("inf")}),
    ("no sensible number", {"llama.block_count": "two"}),
    ("no sensible number", {"llama.block_count": 2**32 - 1}),
    ("no sensible number", {"llama.attention.head_count": [4, 8]}),
    ("no sensible number", {"llama.embedding_length": True}),
    ("no number", {"llama.rope.freq_base": "high"}),
    ("needs (64, 64)", {"llama.attention.head_count_kv": 4}),
    ("needs (128, 64)", {"llama.feed_forward_length": 128}),
    ("lacks the tensor layers.2.attn_norm", {"llama.block_count": 3}),
    ("layers.1.", {"llama.block_count": 1}),
    ("experts", {"llama.expert_count": 8}),
    ("partly rotated", {"llama.rope.dimension_count": 8}),
    ("another size", {"llama.attention.value_length": 32}),
    ("rope scaling longrope", {"llama.rope.scaling.type": "longrope"}),
    ("rope scaling yarn", YARN | {"llama.rope.scaling.attn_factor": 2.0}),
    ("impossible", {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 0.0}),
    ("no text", {"general.name": 7}),
    ("neither true nor false", {"tokenizer.ggml.add_bos_token": 1}),
    ("no sensible number", {"tokenizer.ggml.eos_token_id": "end"}),
    ("renamed", {"split.count": 4}),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "changes"), CHANGED_KEYS)
def test_metadata_that_cannot_be(
    tmp_path: Path, refusal: Refusal, reason: str, changes: dict[str, Any]
) -> None:
    parts = tiny.gguf_parts()
    parts.metadata |= changes
    assert reason in refusal(tiny.write_gguf(tmp_path / "m.gguf", parts))


def test_unknown_architecture_is_named_with_what_is_supported(
    tmp_path: Path, refusal: Refusal
) -> None:
    parts = tiny.gguf_parts()
    parts.architecture = "gemma3"
    path = tiny.write_gguf(tmp_path / "m.gguf", parts)
    assert "architecture gemma3" in refusal(path)
    with pytest.raises(HearthError) as caught:
        open_model(path)
    assert "llama, qwen2, qwen3" in (caught.value.action or "")


@pytest.mark.parametrize(
    "name", ["blk.0.attn_q.bias", "blk.0.ffn_gate_inp.weight", "blk.00.attn_q.weight", "x\n\x1b[0m"]
)
def test_a_tensor_that_would_be_left_out_is_refused(
    tmp_path: Path, refusal: Refusal, name: str
) -> None:
    parts = tiny.gguf_parts()
    parts.tensors[name] = np.zeros(64, dtype=np.float32)
    assert "does not know" in refusal(tiny.write_gguf(tmp_path / "m.gguf", parts))


def test_missing_and_misshapen_tensors_are_named(tmp_path: Path, refusal: Refusal) -> None:
    missing, misshapen = tiny.gguf_parts(), tiny.gguf_parts()
    del missing.tensors["blk.1.ffn_up.weight"]
    misshapen.tensors["blk.0.attn_q.weight"] = np.zeros((16, 64), dtype=np.float32)
    assert "layers.1.up" in refusal(tiny.write_gguf(tmp_path / "a.gguf", missing))
    assert "(16, 64)" in refusal(tiny.write_gguf(tmp_path / "b.gguf", misshapen))
    del missing.tensors["token_embd.weight"]
    assert "token embeddings" in refusal(tiny.write_gguf(tmp_path / "c.gguf", missing))


def test_more_tokens_than_embeddings(tmp_path: Path, refusal: Refusal) -> None:
    parts = tiny.gguf_parts()
    parts.tensors["token_embd.weight"] = np.zeros((8, tiny.HIDDEN), dtype=np.float32)
    assert "32 tokens for 8" in refusal(tiny.write_gguf(tmp_path / "m.gguf", parts))


def test_impossible_rotary_factors(tmp_path: Path, refusal: Refusal) -> None:
    for number, factors in enumerate(([0.0] * 8, [float("nan")] * 8, [1.0] * 7)):
        parts = tiny.gguf_parts()
        parts.tensors["rope_freqs.weight"] = np.array(factors, dtype=np.float32)
        path = tiny.write_gguf(tmp_path / f"{number}.gguf", parts)
        assert "rotary factors" in refusal(path)


def test_split_with_a_part_missing_swapped_or_renamed(tmp_path: Path, refusal: Refusal) -> None:
    first, second = tiny.write_split(tmp_path, 2)
    whole = second.read_bytes()
    second.unlink()
    assert second.name in refusal(first)
    second.write_bytes(first.read_bytes())
    assert "another part" in refusal(first)
    second.write_bytes(whole)
    assert open_model(first).name == "Tiny"
    assert "cannot be" in refusal(tmp_path / "tiny-00003-of-00002.gguf")
    assert "99999 files" in refusal(tmp_path / "tiny-00003-of-99999.gguf")


def test_paths_that_are_no_readable_file(tmp_path: Path, refusal: Refusal) -> None:
    loop = tmp_path / "loop.gguf"
    loop.symlink_to(loop)
    assert "does not exist" in refusal(loop)
    assert "does not exist" in refusal(tmp_path / "none.gguf")
    pipe = tmp_path / "pipe.gguf"
    os.mkfifo(pipe)
    assert "is not a file" in refusal(pipe)
    assert "could not be read" in refusal(tmp_path / ("n" * 300))
    assert "does not exist" in refusal(tmp_path / "nul\0.gguf")


def test_no_permission(tmp_path: Path, refusal: Refusal) -> None:
    path = tiny.write_gguf(tmp_path / "m.gguf", tiny.gguf_parts())
    path.chmod(0)
    as_root = os.geteuid() == 0
    if as_root:
        tmp_path.chmod(0o755)
        os.seteuid(65534)
    try:
        assert "could not be read: Permission denied" in refusal(path)
        with pytest.raises(MachineError):
            open_model(path)
    finally:
        if as_root:
            os.seteuid(0)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.PT", "a.pth", "b.ckpt"])
def test_pickles_are_never_opened(tmp_path: Path, refusal: Refusal, name: str) -> None:
    (tmp_path / name).write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    assert "does not open those" in refusal(tmp_path / name)
