"""Synthetic weights: bytes of the published formats, layout of the packer, sensible values."""

from __future__ import annotations

import math
from pathlib import Path

import gguf
import pytest
import torch
from live_tensors import LiveTensors

from hearth.engine.bench.session import Session
from hearth.engine.errors import UserError
from hearth.engine.protocol import FinishReason, Prompt
from hearth.engine.text.prompt import load_text
from hearth.engine.weights import stored_formats
from hearth.engine.weights.checks import check_tensors
from hearth.engine.weights.model_files import open_model
from hearth.engine.weights.random_weights import NOISE_WORDS
from hearth.engine.weights.shapes import FORMATS, SHAPES, is_synthetic, synthetic_path
from hearth.engine.weights.synthetic import open_synthetic
from hearth.kernels import ggml_blocks, packing, packing_gguf

VECTORS = ("norm", "decay", "dt_bias", "conv")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("checkpoint", FORMATS)
def test_every_shape_and_format_opens_without_making_a_weight(shape: str, checkpoint: str) -> None:
    with LiveTensors() as live:
        files = open_synthetic(shape, checkpoint)
        assert files.weight_bytes > 0
    check_tensors(files)
    assert live.peak_bytes < 2 << 20


def test_sizes_of_the_27b_shape() -> None:
    """The counts of the published checkpoint, by hand."""
    files = open_synthetic("qwen3.8-27b", "bf16")
    parameters = {name: math.prod(entry.shape) for name, entry in files.tensors.items()}
    assert len(files.tensors) == 851 + 15
    assert parameters["output"] == parameters["token_embd"] == 248320 * 5120
    mtp = sum(count for name, count in parameters.items() if name.startswith("mtp."))
    assert mtp == pytest.approx(424.7e6, rel=1e-4)
    assert files.num_parameters - mtp == pytest.approx(26.9e9, rel=1e-3)
    assert files.weight_bytes == 2 * files.num_parameters


def w4a16_matrix(n: int, k: int, bits: int) -> int:
    """weight_packed int32 [N, K bits / 32], weight_scale float16 [N, K / 128], weight_shape."""
    return n * (k * bits // 32) * 4 + n * (k // 128) * 2 + 2 * 8


@pytest.mark.parametrize(
    ("checkpoint", "name", "num_bytes"),
    [
        ("w4a16", "layers.3.q", w4a16_matrix(12288, 5120, 4)),
        ("w4a16", "layers.0.down", w4a16_matrix(5120, 17408, 4)),
        ("w4a16", "output", w4a16_matrix(248320, 5120, 8)),
        ("w4a16", "layers.0.in_a", 48 * 5120 * 2),
        ("w4a16", "mtp.layers.0.gate", 17408 * 5120 * 2),
        ("w4a16", "mtp.fc", 5120 * 10240 * 2),
        ("w4a16", "layers.0.conv", 10240 * 4 * 2),
        ("bf16", "layers.0.in_qkv", 10240 * 5120 * 2),
        ("fp8", "layers.0.in_qkv", 10240 * 5120 + 2 * 80 * 40),
        ("fp8", "layers.3.k", 1024 * 5120 + 2 * 8 * 40),
        ("fp8", "layers.0.down", 5120 * 17408 + 2 * 40 * 136),
        ("fp8", "mtp.layers.0.gate", 17408 * 5120 + 2 * 136 * 40),
        ("fp8", "mtp.fc", 5120 * 10240 * 2),
        ("fp8", "output", 248320 * 5120 * 2),
        ("fp8", "layers.0.in_b", 48 * 5120 * 2),
        ("nvfp4-mixed", "layers.55.gate", 17408 * 5120 // 2 + 17408 * 320 + 2 * 4),
        ("nvfp4-mixed", "layers.56.gate", 17408 * 5120 + 17408 * 2),
        ("nvfp4-mixed", "layers.0.out", 5120 * 6144 + 5120 * 2),
        ("nvfp4-mixed", "output", 248320 * 5120 + 248320 * 2),
        ("nvfp4-mixed", "token_embd", 248320 * 5120 * 2),
        ("nvfp4-mixed", "mtp.layers.0.gate", 17408 * 5120 * 2),
        ("q4_k_m", "layers.3.q", 12288 * 5120 // 256 * 144),
        ("q4_k_m", "layers.0.in_qkv", 10240 * 5120 // 256 * 176),
        ("q4_k_m", "output", 248320 * 5120 // 256 * 210),
        ("q4_k_m", "token_embd", 248320 * 5120 // 256 * 144),
        ("q4_k_m", "layers.0.in_a", 48 * 5120 * 4),
        ("q4_k_m", "layers.0.attn_norm", 5120 * 4),
        ("q4_k_m", "layers.0.down", 5120 * 17408 // 256 * 210),
        ("q4_k_m", "layers.8.down", 5120 * 17408 // 256 * 144),
        ("q4_k_m", "layers.10.down", 5120 * 17408 // 256 * 210),
        ("q6_k", "layers.8.down", 5120 * 17408 // 256 * 210),
    ],
)
def test_bytes_are_those_of_the_published_format(
    checkpoint: str, name: str, num_bytes: int
) -> None:
    assert open_synthetic("qwen3.8-27b", checkpoint).tensors[name].num_bytes == num_bytes


def test_gguf_bytes_are_those_of_the_gguf_library() -> None:
    for entry in open_synthetic("qwen3.5-0.8b", "q4_k_m").tensors.values():
        elements, num_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[entry.format]]
        assert entry.num_bytes == math.prod(entry.shape) // elements * num_bytes, entry.name


def test_a_decode_step_of_the_27b_shape_reads_what_the_budget_says() -> None:
    """All but the embedding table, of which one row is read, and the MTP module: 13.9 GB."""
    tensors = open_synthetic("qwen3.8-27b", "w4a16").tensors
    read = [e.num_bytes for n, e in tensors.items() if n != "token_embd" and "mtp" not in n]
    assert sum(read) == pytest.approx(13.9e9, rel=2e-3)


def test_a_tied_embedding_is_stored_as_the_head_is() -> None:
    assert open_synthetic("qwen3.5-0.8b", "q4_k_m").tensors["token_embd"].format == "Q6_K"


@pytest.mark.parametrize("checkpoint", FORMATS)
def test_matrices_are_packed_as_the_packer_does_it_with_sensible_values(checkpoint: str) -> None:
    files = open_synthetic("tiny", checkpoint)
    seen = set()
    for name, entry in files.tensors.items():
        inner = name.rsplit(".", 1)[-1]
        if inner.endswith(VECTORS) or (inner, entry.format) in seen:
            continue
        seen.add((inner, entry.format))
        packed = entry.packed()
        assert packed.data.numel() == padded_bytes(packed), name
        values = entry.values()
        assert values.shape == entry.shape == packed.shape
        assert torch.equal(values, packing.dequantise(packed))
        assert torch.isfinite(values).all(), name
        if values.numel() > 4096:
            assert 0.7 < values.var() * values.shape[1] < 1.4, name
            assert abs(values.mean()) < 0.03 * values.std(), name
            assert abs(values.mean(dim=1)).max() < 0.5 * values.std(), name


def padded_bytes(packed: packing.PackedLinear) -> int:
    return packed.num_units * packing.TILES_PER_UNIT * packed.tile_bytes


@pytest.mark.parametrize("ggml_type", [ggml_blocks.Q4_K, ggml_blocks.Q5_K, ggml_blocks.Q6_K])
def test_k_quants_have_the_layout_of_real_blocks(ggml_type: int) -> None:
    layout = ggml_blocks.LAYOUTS[ggml_type]
    raw = torch.randint(0, 256, (300, 2 * layout.num_bytes), dtype=torch.uint8)
    real = packing_gguf.pack_gguf(raw, ggml_type)
    entry = next(
        e for e in open_synthetic("tiny", "q4_k_m").tensors.values() if e.format == layout.name
    )
    assert entry.packed().format == real.format


@pytest.mark.parametrize("checkpoint", FORMATS)
def test_no_matrix_exists_in_float_while_it_is_packed(checkpoint: str) -> None:
    entry = open_synthetic("qwen3.5-0.8b", checkpoint).tensors["layers.0.gate"]
    open_synthetic("tiny", checkpoint).tensors["layers.0.gate"].packed()  # the noise is drawn once
    with LiveTensors() as live:
        num_bytes = entry.packed().num_bytes
    assert live.peak_bytes <= num_bytes + 8 * NOISE_WORDS + (1 << 10)
    floats = math.prod(entry.shape) if entry.format == "BF16" else 0
    assert live.largest_float <= max(floats, math.prod(entry.shape) // 8)


def test_weights_depend_on_seed_and_name_alone() -> None:
    first, same = open_synthetic("tiny", "w4a16"), open_synthetic("tiny", "w4a16")
    other = open_synthetic("tiny", "w4a16", seed=1)
    names = ("layers.0.gate", "layers.0.decay", "layers.0.attn_norm", "output")
    for name in names:
        assert torch.equal(first.tensors[name].values(), same.tensors[name].values())
        assert not torch.equal(first.tensors[name].values(), other.tensors[name].values())
    up, gate = (first.tensors[f"layers.0.{n}"].packed().data for n in ("up", "gate"))
    assert not torch.equal(up, gate)
    prints = {files.fingerprint for files in (first, other, open_synthetic("tiny", "bf16"))}
    assert len(prints) == 3
    assert first.fingerprint == same.fingerprint


def test_vectors_are_in_the_range_of_trained_ones() -> None:
    tensors = open_synthetic("qwen3.5-0.8b", "w4a16").tensors
    norm = tensors["output_norm"].values()
    assert norm.mean() == pytest.approx(1.0, abs=0.01)
    assert (norm - 1).abs().max() < 0.3
    decay, dt_bias = tensors["layers.0.decay"].values(), tensors["layers.0.dt_bias"].values()
    assert (decay >= -16.0).all()
    assert (decay <= -0.5).all()
    steps = torch.nn.functional.softplus(dt_bias)
    assert (steps > 0.9e-3).all()
    assert (steps < 0.11).all()
    conv = tensors["layers.0.conv"].values()
    assert conv.shape == (6144, 4)
    assert conv.std() == pytest.approx(0.5, rel=0.05)


def test_every_byte_is_a_token_and_control_tokens_end_a_turn() -> None:
    text = load_text(open_synthetic("tiny-dense", "bf16").text)
    said = "Größe ½ 日本 \n\t\x00"
    ids = text.vocabulary.encode(said)
    assert len(ids) == len(said.encode())
    assert text.vocabulary.decode(ids) == said
    assert text.vocabulary.control_id("<|im_end|>") in text.vocabulary.end_ids
    assert text.vocabulary.size <= SHAPES["tiny-dense"].vocab_size


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("synthetic:qwen9-1t:w4a16", "shape 'qwen9-1t'"),
        ("synthetic:tiny:q2", "format 'q2'"),
        ("synthetic:tiny", "format ''"),
        ("synthetic:", "shape ''"),
    ],
)
def test_an_unknown_name_is_one_sentence(name: str, sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as caught:
        open_model(Path(name))
    assert caught.value.action is not None
    assert "tiny" in caught.value.action or "w4a16" in caught.value.action


def test_the_list_of_formats_is_the_list_of_what_can_be_made() -> None:
    assert set(FORMATS) == set(stored_formats.MATRICES)
    assert not is_synthetic(Path("models/synthetic:tiny"))


@pytest.mark.parametrize(
    ("shape", "checkpoint"),
    [("tiny-dense", "w4a16"), ("tiny", "q4_k_m"), ("tiny", "fp8"), ("tiny", "nvfp4-mixed")],
)
def test_a_synthetic_model_answers(shape: str, checkpoint: str) -> None:
    with Session(synthetic_path(shape, checkpoint), num_threads=2) as session:
        assert session.info.name == f"{shape} {checkpoint} (synthetic)"
        request = session.request(
            Prompt(raw_ids=tuple(range(40, 70))), max_tokens=24, ignore_end=True
        )
        outcome = session.run(request)
    assert outcome.reason is FinishReason.LENGTH
    assert len(outcome.token_ids) == 24
    assert max(outcome.token_ids) < 261, "padding rows are never drawn"
    assert len(set(outcome.token_ids)) > 3
