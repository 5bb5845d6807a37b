"""Folders that are damaged, lying or of another kind are refused in a sentence, quickly."""

from __future__ import annotations

import json
import os
import random
import struct
from typing import TYPE_CHECKING, Any

import pytest
import tiny_models as tiny
import torch
from safetensors.torch import save_file

from hearth.engine.errors import HearthError
from hearth.engine.weights.checks import check_vocabulary
from hearth.engine.weights.model_files import open_model
from hearth.engine.weights.safetensors_file import open_safetensors

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


def container(header: bytes, data: bytes = b"", length: int | None = None) -> bytes:
    return struct.pack("<Q", len(header) if length is None else length) + header + data


def described(*offsets: int, dtype: object = "F32", shape: object = (2,)) -> bytes:
    entry = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
    return json.dumps({"model.norm.weight": entry}).encode()


ROOM = bytes(64)
PAIR = '{"dtype":"F32","shape":[2],"data_offsets":'
TWO = '{"a":' + PAIR + '[0,8]},"%s":' + PAIR + "[%s]}}"
HOSTILE_CONTAINERS = {
    "longer than the file": [
        container(b"{}", length=2**60),
        container(b"{}", length=2**64 - 1),
        container(b"{}", length=3),
        container(b"", length=100_000_000),
    ],
    "ends too early": [b"\1\0\0"],
    "it is empty": [b""],
    "not JSON": [
        container(b"[" * 500_000),
        container(b'{"a":' * 500_000),
        container(b"{"),
        container(b"\xff\xfe"),
        container(b"{} x"),
        container(b'{"a":' + b"9" * 5000 + b"}"),
        container(b""),
    ],
    "not a JSON object": [container(b"[]"), container(b"3"), container(b'"a"')],
    "absurdly large": [
        container(b"[" + b"[]," * 3_000_000 + b"[]]"),
        container(b"[" + b"0," * 3_000_000 + b"0]"),
    ],
    "occurs twice": [
        container((TWO % ("a", "8,16")).encode(), ROOM),
        container(b'{"a":{"dtype":"F32","dtype":"F32"}}'),
    ],
    "holds NaN": [container(b'{"a": NaN}')],
    "overlaps": [container((TWO % ("b", "4,12")).encode(), ROOM)],
    "not described": [container(b'{"a": 3}')],
    "unknown type": [
        container(described(0, 8, dtype="F99"), ROOM),
        container(described(0, 8, dtype=None), ROOM),
        container(described(0, 8, dtype=["F32"]), ROOM),
    ],
    "no sensible shape": [
        container(described(0, 8, shape=[-2]), ROOM),
        container(described(0, 8, shape=[True, 2]), ROOM),
        container(described(0, 8, shape=[2.0]), ROOM),
        container(described(0, 8, shape=[1] * 9), ROOM),
        container(described(0, 8, shape={"a": 1}), ROOM),
        container(described(0), ROOM),
        container(described(0, 8, 16), ROOM),
        container(described(-8, 0), ROOM),
    ],
    "does not fit": [
        container(described(0, 12), ROOM),
        container(described(8, 0), ROOM),
        container(described(60, 68), ROOM),
        container(described(2**62, 2**62 + 8), ROOM),
        container(described(0, 0, shape=[2**40, 2**40]), ROOM),
        container(described(0, 1, dtype="F4", shape=[3]), ROOM),
    ],
    "is empty": [container(described(0, 0, shape=[0, 2**62]), ROOM)],
}


@pytest.mark.parametrize(
    ("reason", "data"),
    [(reason, data) for reason, cases in HOSTILE_CONTAINERS.items() for data in cases],
    ids=[f"{r} {n}" for r, cases in HOSTILE_CONTAINERS.items() for n in range(len(cases))],
)
def test_hostile_container(tmp_path: Path, refusal: Refusal, reason: str, data: bytes) -> None:
    folder = tiny.write_folder(tmp_path / "m")
    (folder / "model.safetensors").write_bytes(data)
    sentence = refusal(folder)
    assert reason in sentence
    assert "model.safetensors" in sentence


def test_every_truncation_is_refused(tmp_path: Path) -> None:
    folder = tiny.write_folder(tmp_path / "m")
    file = folder / "model.safetensors"
    whole = file.read_bytes()
    header_end = 8 + int.from_bytes(whole[:8], "little")
    for length in [*range(header_end + 1), *range(header_end, len(whole), 4099), len(whole) - 1]:
        file.write_bytes(whole[:length])
        with pytest.raises(HearthError):
            open_safetensors(file)


def test_altered_bytes_open_or_are_refused(tmp_path: Path) -> None:
    folder = tiny.write_folder(tmp_path / "m")
    files = [folder / "model.safetensors", folder / "config.json"]
    contents = {file: file.read_bytes() for file in files}
    ends = {files[0]: 8 + int.from_bytes(contents[files[0]][:8], "little")}
    chance = random.Random(7)
    num_refused = 0
    for _ in range(800):
        file = chance.choice(files)
        altered = bytearray(contents[file])
        altered[chance.randrange(ends.get(file, len(altered)))] = chance.choice(
            b'\x00\xff"{}[]9,-n'
        )
        file.write_bytes(altered)
        num_refused += is_refused(folder)
        file.write_bytes(contents[file])
    assert num_refused > 200


YARN = {"type": "yarn", "factor": 2.0}
CHANGED_CONFIGS: list[tuple[str, dict[str, Any]]] = [
    ("architecture gemma3", {"model_type": "gemma3"}),
    ("architecture None", {"model_type": None}),
    ("architecture ['llama']", {"model_type": ["llama"]}),
    ("quantised as bitsandbytes", {"quantization_config": {"quant_method": "bitsandbytes"}}),
    ("quantised as awq gemv", {"quantization_config": {"quant_method": "awq", "version": "gemv"}}),
    ("quantised as something unknown", {"quantization_config": {"bits": 4}}),
    ("quantised as sparse", {"compression_config": {"quant_method": "sparse"}}),
    ("no sensible number", {"hidden_size": -64}),
    ("no sensible number", {"hidden_size": 2**40}),
    ("no sensible number", {"num_hidden_layers": "2"}),
    ("no sensible number", {"num_attention_heads": 0}),
    ("no sensible number", {"vocab_size": None}),
    ("impossible", {"num_hidden_layers": 2**31 - 1}),
    ("impossible", {"num_key_value_heads": 3}),
    ("impossible", {"head_dim": 15}),
    ("impossible", {"rms_norm_eps": 2.0}),
    ("impossible", {"rope_theta": 0}),
    ("no number", {"rope_theta": "high"}),
    ("no sensible number", {"rope_theta": 10**400}),
    ("neither true nor false", {"tie_word_embeddings": "yes"}),
    ("no JSON object", {"rope_scaling": "linear"}),
    ("rope scaling dynamic", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}),
    ("rope scaling longrope", {"rope_parameters": {"rope_type": "longrope"}}),
    ("factor is missing", {"rope_scaling": {"type": "linear"}}),
    ("impossible", {"rope_scaling": {"type": "linear", "factor": -1.0}}),
    ("impossible", {"rope_scaling": {"type": "llama3", "factor": 8.0}}),
    ("no number", {"rope_scaling": YARN | {"beta_fast": "x"}}),
    ("attention_factor 3", {"rope_scaling": YARN | {"attention_factor": 3}}),
    ("temperature", {"rope_scaling": YARN | {"mscale_all_dim": 1.0}}),
    ("sliding-window", {"use_sliding_window": True}),
    ("sliding-window", {"layer_types": ["full_attention", "sliding_attention"]}),
    ("attention biases", {"attention_bias": True}),
    ("MLP biases", {"mlp_bias": True}),
    ("partly rotated", {"partial_rotary_factor": 0.5}),
    ("SiLU", {"hidden_act": "gelu"}),
    ("by kind of layer", {"rope_parameters": {"full_attention": {"rope_type": "default"}}}),
    ("needs (64, 64)", {"num_key_value_heads": 4}),
    ("token_embd with shape (32, 64)", {"vocab_size": 64}),
    ("lacks the tensor output", {"tie_word_embeddings": False}),
    ("lacks the tensor layers.2", {"num_hidden_layers": 3}),
    ("does not know", {"num_hidden_layers": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "changes"), CHANGED_CONFIGS)
def test_config_that_cannot_be_run(
    tmp_path: Path, refusal: Refusal, reason: str, changes: dict[str, Any]
) -> None:
    folder = tiny.write_folder(tmp_path / "m", tensors=tiny.weights("llama"))
    (folder / "config.json").write_text(json.dumps(tiny.hf_config(**changes)))
    assert reason in refusal(folder)


@pytest.mark.parametrize(
    ("reason", "data"),
    [
        ("not JSON", b"\x89PNG"),
        ("not JSON", b""),
        ("not JSON", b"[" * 100_000),
        ("not a JSON object", b"[1]"),
        ("holds Infinity", b'{"a": Infinity}'),
        ("too large", b" " * (17 << 20)),
        ("absurdly large", b"[" + b"[]," * 600_000 + b"[]]"),
    ],
)
def test_config_that_is_no_json(tmp_path: Path, refusal: Refusal, reason: str, data: bytes) -> None:
    folder = tiny.write_folder(tmp_path / "m")
    (folder / "config.json").write_bytes(data)
    sentence = refusal(folder)
    assert reason in sentence
    assert "config.json" in sentence


def test_unknown_tensors_and_types_are_refused(tmp_path: Path, refusal: Refusal) -> None:
    cases = {
        "o_proj.bias": ("model.layers.0.self_attn.o_proj.bias", torch.zeros(64)),
        "qweight": ("model.layers.0.mlp.up_proj.qweight", torch.zeros(8, 8, dtype=torch.int32)),
        "as I8": ("model.norm.weight", torch.zeros(64, dtype=torch.int8)),
        "as F8_E4M3": ("model.norm.weight", torch.zeros(64, dtype=torch.float8_e4m3fn)),
        "shape ()": ("model.norm.weight", torch.tensor(1.0)),
    }
    for reason, (name, value) in cases.items():
        folder = tiny.write_folder(tmp_path / "m")
        save_file(tiny.weights("llama") | {name: value}, folder / "model.safetensors")
        assert reason in refusal(folder)


def test_missing_files_are_named(tmp_path: Path, refusal: Refusal) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "has no file config.json" in refusal(empty)
    (empty / "config.json").mkdir()
    assert "has no file config.json" in refusal(empty)
    folder = tiny.write_folder(tmp_path / "m")
    (folder / "tokenizer.json").unlink()
    assert "tokenizer.json" in refusal(folder)
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x02")
    assert "no safetensors" in refusal(folder)
    (folder / "model.safetensors").mkdir()
    assert "is not a file" in refusal(folder)


def test_other_folders_are_recognised(tmp_path: Path, refusal: Refusal) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "adapter_config.json").write_text("{}")
    assert "adapter" in refusal(folder)
    (folder / "m.gguf").write_bytes(b"GGUF")
    assert "folder of GGUF files" in refusal(folder)
    quantised = tiny.write_folder(tmp_path / "m")
    (quantised / "hf_quant_config.json").write_text('{"quant_method": "hqq"}')
    assert "quantised as hqq" in refusal(quantised)


@pytest.mark.parametrize(
    "name", ["../other.safetensors", "/etc/passwd", "a\\b.safetensors", "x.bin", ".."]
)
def test_an_index_cannot_lead_elsewhere(tmp_path: Path, refusal: Refusal, name: str) -> None:
    folder = tiny.write_folder(tmp_path / "m")
    save_file(tiny.weights("llama"), tmp_path / "other.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": name}}))
    assert "no safetensors file" in refusal(folder)


def test_broken_indexes(tmp_path: Path, refusal: Refusal) -> None:
    folder = tiny.write_folder(tmp_path / "m")
    index = folder / "model.safetensors.index.json"
    index.write_text("{}")
    assert "maps no weights" in refusal(folder)
    index.write_text(json.dumps({"weight_map": {"a": "none.safetensors"}}))
    assert "none.safetensors does not exist" in refusal(folder)
    index.write_text(json.dumps({"weight_map": {str(n): f"{n}.safetensors" for n in range(2000)}}))
    assert "2000 parts" in refusal(folder)


def test_a_tensor_in_two_files(tmp_path: Path, refusal: Refusal) -> None:
    folder = tiny.write_folder(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    save_file({"norm.weight": torch.ones(64)}, folder / "b.safetensors")
    assert "occurs twice" in refusal(folder)


def test_damaged_text_files(tmp_path: Path, refusal: Refusal) -> None:
    folder = tiny.write_folder(tmp_path / "m")
    (folder / "chat_template.jinja").write_bytes(b"\xff")
    assert "not UTF-8" in refusal(folder)
    (folder / "chat_template.jinja").unlink()
    (folder / "tokenizer_config.json").write_text("[")
    assert "tokenizer_config.json" in refusal(folder)


def test_links_that_lead_nowhere(tmp_path: Path, refusal: Refusal) -> None:
    folder = tiny.write_folder(tmp_path / "m")
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("config.json")
    assert "config.json" in refusal(folder)
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert "does not exist" in refusal(loop)


def test_no_permission(tmp_path: Path, refusal: Refusal) -> None:
    folder = tiny.write_folder(tmp_path / "m")
    folder.chmod(0)
    as_root = os.geteuid() == 0
    if as_root:
        tmp_path.chmod(0o755)
        os.seteuid(65534)
    try:
        assert "could not be read: Permission denied" in refusal(folder)
    finally:
        if as_root:
            os.seteuid(0)
        folder.chmod(0o700)


def test_one_file_of_a_folder(tmp_path: Path, refusal: Refusal) -> None:
    folder = tiny.write_folder(tmp_path / "m")
    assert "not a whole model" in refusal(folder / "model.safetensors")
    assert "not a whole model" in refusal(folder / "config.json")


def test_a_tokenizer_with_more_tokens_than_embeddings(tmp_path: Path) -> None:
    """Their ids would read beside the matrix."""
    files = open_model(tiny.write_folder(tmp_path / "m"))
    check_vocabulary(files, tiny.ROWS)
    with pytest.raises(HearthError, match=f"{tiny.ROWS + 1} tokens for {tiny.ROWS} embeddings"):
        check_vocabulary(files, tiny.ROWS + 1)
