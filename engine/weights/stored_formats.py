"""How published checkpoints of each kind store their matrices: names, bytes and kernel layout.

``w4a16``: compressed-tensors, int4 in groups of 128 inputs with float16 scales for the linears of
all layers; embeddings and head int8 in the same manner; ``in_a``, ``in_b`` and the MTP module bf16.
``fp8``: e4m3 in blocks of 128 x 128 with bf16 scales for all linears, those of the MTP layer too;
head, embeddings, ``in_a``, ``in_b`` and ``mtp.fc`` bf16.
``nvfp4-mixed``: compressed-tensors; MLPs NVFP4 but for the last eighth of the layers, which is fp8
with a scale for each output like attention, DeltaNet and the head; MTP module and the rest bf16.
``q4_k_m``, ``q6_k``: GGUF, with llama.cpp's choice of a type for each tensor (see ``_q4_k_m``).
``bf16``: everything as trained.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import torch

from hearth.kernels import ggml_blocks, packing, packing_gguf
from hearth.kernels.packing import WeightFormat

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.engine.model.config import ModelConfig

GROUP = 128
GATES = ("in_a", "in_b")  # of Gated DeltaNet: in full precision in all published files
SHAPE_BYTES = 16  # compressed-tensors' ``weight_shape``, int64 [2]
GLOBAL_BYTES = 8  # NVFP4's ``weight_global_scale`` and ``input_global_scale``, float32 each
FP8_BLOCK = 128
NVFP4_GROUP = 16
ATTENTION = ("q", "k", "v", "o", "in_qkv", "in_z", "out")


@dataclass(frozen=True, slots=True)
class StoredFormat:
    """A way of storing a matrix [N, K]. ``name``: as people know it. ``form``: in kernel layout.

    code_mask: the bits that codes use of their place.
    num_bytes: of N, K, in the file.
    """

    name: str
    form: WeightFormat
    num_bytes: Callable[[int, int], int]
    code_mask: int = 0

    def __post_init__(self) -> None:
        assert self.code_mask < 1 << self.form.bits, "codes fit their place"


def _float(dtype: torch.dtype, name: str) -> StoredFormat:
    form = WeightFormat(bits=dtype.itemsize * 8, group=1, float_dtype=dtype)
    return StoredFormat(name, form, lambda n, k: n * k * dtype.itemsize)


def _integer(bits: int) -> StoredFormat:
    """compressed-tensors pack-quantized: codes in rows of 32-bit words, float16 scales."""
    form = WeightFormat(bits=bits, bias=1 << (bits - 1), group=GROUP)

    def num_bytes(n: int, k: int) -> int:
        return n * math.ceil(k * bits / 32) * 4 + n * (k // GROUP) * 2 + SHAPE_BYTES

    return StoredFormat(f"int{bits} g{GROUP}", form, num_bytes, (1 << bits) - 1)


def _fp8(name: str, num_scales: Callable[[int, int], int]) -> StoredFormat:
    """bf16 scales of the usual magnitudes are float16 values too. Codes lack the highest exponents,
    NaN among them, so that no weight is far above the others."""
    form = WeightFormat(bits=8, group=FP8_BLOCK, minifloat="e4m3")
    return StoredFormat(name, form, lambda n, k: n * k + 2 * num_scales(n, k), 0xBF)


def _nvfp4() -> StoredFormat:
    """A scale in kernel layout is the group's over the global one, which no float16 holds."""
    form = WeightFormat(bits=4, group=NVFP4_GROUP, half_scales=False, minifloat="e2m1")
    return StoredFormat(
        "NVFP4", form, lambda n, k: n * k // 2 + n * k // NVFP4_GROUP + GLOBAL_BYTES, 0xF
    )


def _num_blocks(n: int, k: int) -> int:
    return math.ceil(n / FP8_BLOCK) * math.ceil(k / FP8_BLOCK)


BF16, F32 = _float(torch.bfloat16, "BF16"), _float(torch.float32, "F32")
INT4, INT8 = _integer(4), _integer(8)
FP8_BLOCKS, FP8_CHANNELS = _fp8("fp8 128x128", _num_blocks), _fp8("fp8 channel", lambda n, _k: n)
NVFP4 = _nvfp4()
K_QUANT_BITS = {ggml_blocks.Q4_K: 4, ggml_blocks.Q5_K: 5, ggml_blocks.Q6_K: 6}


@cache
def _k_quant(ggml_type: int) -> StoredFormat:
    """The kernel layout is the one that a sample of random blocks gets, whatever it is."""
    layout = ggml_blocks.LAYOUTS[ggml_type]
    generator = torch.Generator().manual_seed(0)
    sample = torch.randint(
        0, 256, (packing.UNIT, layout.num_bytes), dtype=torch.uint8, generator=generator
    )
    form = packing_gguf.pack_gguf(sample, ggml_type).format
    code_mask = (1 << K_QUANT_BITS[ggml_type]) - 1

    def num_bytes(n: int, k: int) -> int:
        assert k % layout.elements == 0, "rows are whole blocks"
        return n * k // layout.elements * layout.num_bytes

    return StoredFormat(layout.name, form, num_bytes, code_mask)


# -------------------------------------------------------------------------------------- checkpoints


def _w4a16(name: str, config: ModelConfig) -> StoredFormat:
    if name in ("token_embd", "output"):
        return INT8
    return BF16 if name.startswith("mtp.") or _inner(name) in GATES else INT4


def _fp8_blocks(name: str, config: ModelConfig) -> StoredFormat:
    is_wide = name in ("token_embd", "output", "mtp.fc") or _inner(name) in GATES
    return BF16 if is_wide else FP8_BLOCKS


def _nvfp4_mixed(name: str, config: ModelConfig) -> StoredFormat:
    inner = _inner(name)
    if name == "token_embd" or name.startswith("mtp.") or inner in GATES:
        return BF16
    if name == "output" or inner in ATTENTION:
        return FP8_CHANNELS
    is_late = _layer_of(name, config) >= config.num_hidden_layers * 7 // 8
    return FP8_CHANNELS if is_late else NVFP4


def _q6_k(name: str, config: ModelConfig) -> StoredFormat:
    return F32 if _inner(name) in GATES else _k_quant(ggml_blocks.Q6_K)


def _q4_k_m(name: str, config: ModelConfig) -> StoredFormat:
    """llama.cpp's mix: the head Q6_K (a tied embedding is one), fused qkv Q5_K, v and down Q6_K in
    the first and last eighth of the layers and in every third between, the rest Q4_K.

    llama.cpp counts v by itself; here its layer decides as it does for down, which moves less than
    a thousandth of the bytes.
    """
    inner = _inner(name)
    if inner in GATES:
        return F32
    if name == "output" or (name == "token_embd" and config.tie_word_embeddings):
        return _k_quant(ggml_blocks.Q6_K)
    if inner == "in_qkv":
        return _k_quant(ggml_blocks.Q5_K)
    if inner in ("v", "down") and _has_more_bits(_layer_of(name, config), config):
        return _k_quant(ggml_blocks.Q6_K)
    return _k_quant(ggml_blocks.Q4_K)


def _has_more_bits(layer: int, config: ModelConfig) -> bool:
    count = config.num_hidden_layers + config.num_mtp_layers
    eighth = count // 8
    return layer < eighth or layer >= 7 * count // 8 or (layer - eighth) % 3 == 2


def _layer_of(name: str, config: ModelConfig) -> int:
    """GGUF counts the MTP layer behind the others."""
    if name.startswith("mtp."):
        return config.num_hidden_layers
    return int(name.split(".")[1])


def _inner(name: str) -> str:
    return name.rsplit(".", 1)[-1]


MATRICES: dict[str, Callable[[str, ModelConfig], StoredFormat]] = {
    "w4a16": _w4a16,
    "fp8": _fp8_blocks,
    "nvfp4-mixed": _nvfp4_mixed,
    "bf16": lambda _name, _config: BF16,
    "q4_k_m": _q4_k_m,
    "q6_k": _q6_k,
}
GGUF_FORMATS = ("q4_k_m", "q6_k")


def stored_format(
    checkpoint: str, name: str, shape: tuple[int, ...], config: ModelConfig
) -> StoredFormat:
    """What a checkpoint of this kind stores the engine's tensor ``name`` as. Vectors and the taps
    of the convolution are F32 in GGUF and BF16 elsewhere."""
    if len(shape) == 1 or _inner(name) == "conv":
        return F32 if checkpoint in GGUF_FORMATS else BF16
    return MATRICES[checkpoint](name, config)
