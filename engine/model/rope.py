"""Rotary tables: cos and sin per position, with the published ways of stretching them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from hearth.engine.model.config import ModelConfig, RopeScaling


def rope_tables(
    config: ModelConfig, context_length: int, divisors: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """cos and sin, float32 [context_length, head_dim / 2].

    Angles are float32 products as in the reference implementation (transformers), which the greedy
    oracle follows token for token. ``divisors`` [head_dim / 2] come with some GGUF files.
    """
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.int64).float() / config.head_dim
    frequencies = 1.0 / (config.rope_theta**exponents)
    temperature = 1.0
    if divisors is not None:
        frequencies = frequencies / divisors
    elif config.rope_scaling is not None:
        frequencies, temperature = _scaled(frequencies, config, config.rope_scaling)
    angles = torch.arange(context_length).float().unsqueeze(1) * frequencies
    return (angles.cos() * temperature).contiguous(), (angles.sin() * temperature).contiguous()


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
    size, base = config.head_dim, config.rope_theta

    def dimension(rotations: float) -> float:
        return size * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(dimension(scaling.beta_fast)), 0)
    high = min(math.ceil(dimension(scaling.beta_slow)), size - 1)
    places = torch.arange(size // 2).float()
    keep = 1.0 - ((places - low) / max(high - low, 0.001)).clamp(0.0, 1.0)
    return frequencies / scaling.factor * (1 - keep) + frequencies * keep
