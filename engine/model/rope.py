"""Rotary tables: cos and sin per position, with the published ways of stretching them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

from hearth.kernels.kv import RopeTables

if TYPE_CHECKING:
    from hearth.engine.model.config import ModelConfig, RopeScaling


def rope_tables(
    config: ModelConfig, context_length: int, divisors: torch.Tensor | None = None
) -> RopeTables:
    """cos and sin, float32 [context_length, rope_dim / 2], and each frequency's axis.

    Angles are float32 products as in the reference implementation (transformers), which the greedy
    oracle follows token for token. ``divisors`` [rope_dim / 2] come with some GGUF files.
    """
    size = config.rope_dim
    exponents = torch.arange(0, size, 2, dtype=torch.int64).float() / size
    frequencies = 1.0 / (config.rope_theta**exponents)
    temperature = 1.0
    if divisors is not None:
        frequencies = frequencies / divisors
    elif config.rope_scaling is not None:
        frequencies, temperature = _scaled(frequencies, config, config.rope_scaling)
    angles = torch.arange(context_length).float().unsqueeze(1) * frequencies
    cos, sin = angles.cos() * temperature, angles.sin() * temperature
    return RopeTables(cos.contiguous(), sin.contiguous(), mrope_axes(config))


def mrope_axes(config: ModelConfig) -> torch.Tensor:
    """int32 [rope_dim / 2]: 0 time, 1 height, 2 width. The axes take turns (Qwen3-VL's interleaved
    layout): height at 1, 4, 7, … and width at 2, 5, 8, …, as many as the section gives them."""
    axes = torch.zeros(config.rope_dim // 2, dtype=torch.int32)
    if config.mrope_section is not None:
        for axis, count in enumerate(config.mrope_section[1:], start=1):
            axes[axis : 3 * count : 3] = axis
    return axes


def _scaled(
    frequencies: torch.Tensor, config: ModelConfig, scaling: RopeScaling
) -> tuple[torch.Tensor, float]:
    if scaling.kind == "linear":
        return frequencies / scaling.factor, 1.0
    if scaling.kind == "llama3":
        return _llama3(frequencies, config, scaling), 1.0
    return _yarn(frequencies, config, scaling), 0.1 * math.log(scaling.factor) + 1.0


def _llama3(frequencies: torch.Tensor, config: ModelConfig, scaling: RopeScaling) -> torch.Tensor:
    """Long wavelengths divided by the factor, short ones kept, a ramp between (Llama 3.1)."""
    original = scaling.original_max_position_embeddings or config.max_position_embeddings
    wavelengths = 2 * math.pi / frequencies
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    ramp = ((original / wavelengths - low) / (high - low)).clamp(0.0, 1.0)
    return (1 - ramp) * frequencies / scaling.factor + ramp * frequencies


def _yarn(frequencies: torch.Tensor, config: ModelConfig, scaling: RopeScaling) -> torch.Tensor:
    """Interpolation for slow dimensions, none for fast ones (Peng et al., 2023)."""
    original = scaling.original_max_position_embeddings or config.max_position_embeddings
    size, base = config.rope_dim, config.rope_theta

    def dimension(rotations: float) -> float:
        return size * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(dimension(scaling.beta_fast)), 0)
    high = min(math.ceil(dimension(scaling.beta_slow)), size - 1)
    places = torch.arange(size // 2).float()
    keep = 1.0 - ((places - low) / max(high - low, 0.001)).clamp(0.0, 1.0)
    return frequencies / scaling.factor * (1 - keep) + frequencies * keep
