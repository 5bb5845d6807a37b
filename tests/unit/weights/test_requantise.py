"""Matrices narrowed at the opening: the error's bound, the policy, streaming, visibility."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import torch
from live_tensors import LiveTensors
from tiny_models import hf_config, write_folder

from hearth.app import compose
from hearth.app.settings import WideWeights
from hearth.engine.errors import UserError
from hearth.engine.weights.entries import TensorEntry
from hearth.engine.weights.model_files import open_model
from hearth.engine.weights.requantise import (
    KEEP,
    SLAB_BYTES,
    Requantise,
    RequantisedEntry,
    made_here,
    requantised,
    rounded,
)
from hearth.engine.weights.synthetic import open_synthetic
from hearth.kernels import ggml_blocks, packing
from hearth.kernels.linear import linear

if TYPE_CHECKING:
    from pathlib import Path

DTYPES = {
    torch.float32: ggml_blocks.F32,
    torch.float16: ggml_blocks.F16,
    torch.bfloat16: ggml_blocks.BF16,
}
BITS = {"int8": 8, "int4": 4}


def entry_of(values: torch.Tensor, row_order: torch.Tensor | None = None) -> TensorEntry:
    raw = values.contiguous().view(torch.uint8).view(values.shape[0], -1)
    return TensorEntry("output", tuple(values.shape), DTYPES[values.dtype], raw, row_order)


def random_matrix(rows: int, columns: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """Rows of very different magnitude, as embeddings have them, and one of zeros."""
    generator = torch.Generator().manual_seed(rows)
    values = torch.randn(rows, columns, generator=generator)
    values *= 10.0 ** torch.linspace(-7, 1, rows).unsqueeze(1)
    values[rows // 2] = 0.0
    return values.to(dtype)


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("columns", "group"), [(256, 128), (192, 64), (96, 32)])
def test_no_weight_moves_by_more_than_half_a_scale(
    kind: str, dtype: torch.dtype, columns: int, group: int
) -> None:
    values = random_matrix(100, columns, dtype)
    slab = rounded(values.float(), BITS[kind], group)
    error = (slab.values().double() - values.double()).abs().view(100, -1, group)
    assert (error <= slab.scales.double().unsqueeze(2) * (0.5 + 1e-4)).all()
    # The scale is what the formula says, up to the step of float16 above it.
    wanted = values.double().abs().view(100, -1, group).amax(2) / ((1 << (BITS[kind] - 1)) - 1)
    assert (slab.scales >= wanted * (1 - 1e-7)).all()
    assert (slab.scales <= wanted * (1 + 2**-10) + 2**-24).all()


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_relative_error_is_what_published_tools_report(kind: str) -> None:
    """Normal weights: int8 g128 0.6 %, int4 g128 11 % by the rule amax / qmax."""
    values = torch.randn(512, 1024, generator=torch.Generator().manual_seed(0))
    moved = rounded(values, BITS[kind], 128).values() - values
    assert moved.norm() / values.norm() < {"int8": 0.007, "int4": 0.13}[kind]


@pytest.mark.parametrize("kind", ["int8", "int4"])
@pytest.mark.parametrize("columns", [256, 192, 96])
def test_packed_values_and_products_agree(kind: str, columns: int) -> None:
    source = entry_of(random_matrix(100, columns))
    group = next(g for g in (128, 64, 32) if columns % g == 0)
    ours = RequantisedEntry(source, kind, group)  # type: ignore[arg-type]
    packed = ours.packed()
    assert packed.format.bits == BITS[kind]
    assert torch.equal(packing.dequantise(packed), ours.values())
    assert ours.num_bytes == 100 * (columns * BITS[kind] // 8 + columns // group * 2)
    x, out = torch.randn(3, columns), torch.empty(3, 100)
    linear(x, packed, out)
    expected = x.double() @ ours.values().double().T
    assert (out - expected).norm() <= 2e-6 * expected.norm()


def test_rows_keep_the_order_that_the_engine_wants() -> None:
    values = random_matrix(70, 64)
    order = torch.randperm(70, generator=torch.Generator().manual_seed(3))
    reordered = RequantisedEntry(entry_of(values, order), "int8", 64)
    assert torch.equal(
        reordered.values(), RequantisedEntry(entry_of(values), "int8", 64).values()[order]
    )


def test_slabs_change_nothing_and_bound_the_memory() -> None:
    values = torch.randn(6_000, 512, generator=torch.Generator().manual_seed(0)).bfloat16()
    ours = RequantisedEntry(entry_of(values), "int8", 128)
    with LiveTensors() as live:
        packed = ours.packed()
    largest_view = values.numel() * 2  # the mapped file, seen through its slices
    assert live.peak_bytes - largest_view <= packed.num_bytes + SLAB_BYTES
    whole = rounded(values.float(), 8, 128)
    form = packed.format
    assert torch.equal(packing.pack_slabs((6_000, 512), form, [whole]).data, packed.data)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
def test_weights_that_no_scale_reaches_are_refused(bad: float) -> None:
    values = torch.zeros(4, 64)
    values[2, 5] = bad
    with pytest.raises(UserError, match="no sensible numbers"):
        RequantisedEntry(entry_of(values), "int8", 64).packed()


# ------------------------------------------------------------------------------------------ policy


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    config = hf_config("qwen3", tie_word_embeddings=False)
    return write_folder(tmp_path / "tiny", config, dtype=torch.bfloat16)


@pytest.fixture
def tied(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "tied", hf_config("qwen3"), dtype=torch.bfloat16)


def test_only_what_the_policy_names_is_narrowed(folder: Path) -> None:
    files = open_model(folder)
    narrowed = requantised(files, Requantise(head="int8", embedding="int4"))
    formats = {
        name: entry.format
        for name, entry in narrowed.tensors.items()
        if entry is not files.tensors[name]
    }
    assert formats == {
        "output": "int8 g64 (made here)",
        "token_embd": "int4 g64 (made here)",
    }
    assert made_here(narrowed) in (
        "head int8 g64, embedding int4 g64 (made here)",
        "embedding int4 g64, head int8 g64 (made here)",
    )
    assert narrowed.weight_bytes < files.weight_bytes


def test_nothing_is_narrowed_by_default(folder: Path) -> None:
    files = open_model(folder)
    assert requantised(files, KEEP) is files
    assert made_here(files) is None
    assert compose.requantise_policy(WideWeights()) == KEEP, "the CPU keeps what was published"


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        (Requantise(head="int8"), "int8"),
        (Requantise(embedding="int4"), "int4"),
        (Requantise(head="int4", embedding="int8"), "int8"),
    ],
)
def test_a_tied_embedding_is_one_matrix(tied: Path, policy: Requantise, kind: str) -> None:
    narrowed = requantised(open_model(tied), policy)
    assert narrowed.tensors["token_embd"].format == f"{kind} g64 (made here)"
    assert made_here(narrowed) == f"embedding and head {kind} g64 (made here)"


def test_the_fingerprint_tells_what_was_narrowed(folder: Path) -> None:
    files = open_model(folder)
    policies = [Requantise(), Requantise("int8"), Requantise("int4"), Requantise(None, "int8")]
    assert len({requantised(files, policy).fingerprint for policy in policies}) == 4
    # A policy that finds nothing to narrow changes no bit and no name.
    assert requantised(files, Requantise(mtp="int8")).fingerprint == files.fingerprint


def test_narrow_and_odd_matrices_are_left_alone(folder: Path) -> None:
    blocks = torch.zeros(32, 34, dtype=torch.uint8)
    tensors = {
        "output": TensorEntry("output", (32, 32), ggml_blocks.Q8_0, blocks),
        "token_embd": entry_of(torch.zeros(32, 72)),  # no group of 32 divides 72
    }
    files = replace(open_model(folder), tensors=tensors)
    assert requantised(files, Requantise(head="int4", embedding="int8")) is files


def test_inspect_says_what_would_be_narrowed_and_what_was_refused(folder: Path) -> None:
    wished = WideWeights(head="int8", mtp="int4")
    narrowed = compose.open_headers(folder, wished).facts
    assert narrowed.requantised == "head int8 g64 (made here)"
    wished.keep_all()
    kept = compose.open_headers(folder, wished).facts
    assert kept.requantised is None
    assert kept.fingerprint == open_model(folder).fingerprint


def test_mtp_is_narrowed_as_a_whole() -> None:
    synthetic = open_synthetic("tiny", "bf16")
    stored = {
        name: entry_of(tensor.values()) if len(tensor.shape) == 2 else tensor
        for name, tensor in synthetic.tensors.items()
    }
    files = replace(synthetic, tensors=stored)
    narrowed = requantised(files, Requantise(mtp="int4"))
    changed = {name for name, tensor in narrowed.tensors.items() if tensor is not stored[name]}
    assert changed == {n for n, t in stored.items() if n.startswith("mtp.") and len(t.shape) == 2}
    assert "mtp.fc" in changed
    assert made_here(narrowed) == "MTP int4 g128 (made here)"
