"""A DFlash drafter's weights, packed for the kernels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import torch

    from hearth.engine.draft.dflash_config import DflashConfig
    from hearth.engine.draft.dflash_files import DflashFiles
    from hearth.engine.weights.entries import WeightEntry
    from hearth.kernels.packing import PackedLinear


@dataclass(frozen=True, slots=True)
class ConvWeights:
    """base [2 sides, taps, H]; ``projection`` gives a row's coefficients of both sides."""

    base: torch.Tensor
    projection: PackedLinear


@dataclass(frozen=True, slots=True)
class DflashLayer:
    """One layer. Norm weights are plain: w, not 1 + w as in the target."""

    attn_norm: torch.Tensor
    q: PackedLinear
    k: PackedLinear
    v: PackedLinear
    o: PackedLinear
    q_norm: torch.Tensor
    k_norm: torch.Tensor
    ffn_norm: torch.Tensor
    gate: PackedLinear
    up: PackedLinear
    down: PackedLinear
    attention_conv: ConvWeights | None
    mlp_conv: ConvWeights | None


@dataclass(frozen=True, slots=True)
class SelectorWeights:
    """projection [rank, H]; the codebooks [V, rank]."""

    projection: PackedLinear
    predecessors: PackedLinear
    successors: PackedLinear


@dataclass(frozen=True, slots=True)
class DflashWeights:
    """A whole drafter; token embedding and head are the target's."""

    config: DflashConfig
    fc: PackedLinear
    hidden_norm: torch.Tensor
    norm: torch.Tensor
    layers: tuple[DflashLayer, ...]
    selector: SelectorWeights | None


def load_drafter_weights(files: DflashFiles) -> DflashWeights:
    """Pack every tensor of an opened drafter."""
    config, loader = files.config, _Loader(files.tensors)
    return DflashWeights(
        config=config,
        fc=loader.packed("fc"),
        hidden_norm=loader.values("hidden_norm"),
        norm=loader.values("norm"),
        layers=tuple(loader.layer(index) for index in range(config.num_hidden_layers)),
        selector=None if config.selector is None else loader.selector(),
    )


class _Loader:
    def __init__(self, tensors: Mapping[str, WeightEntry]) -> None:
        self._tensors = tensors

    def packed(self, name: str) -> PackedLinear:
        return self._tensors[name].packed()

    def values(self, name: str) -> torch.Tensor:
        return self._tensors[name].values().clone()

    def layer(self, index: int) -> DflashLayer:
        prefix = f"layers.{index}."
        attention, mlp = prefix + "self_attn.", prefix + "mlp."
        return DflashLayer(
            attn_norm=self.values(prefix + "input_layernorm"),
            q=self.packed(attention + "q_proj"),
            k=self.packed(attention + "k_proj"),
            v=self.packed(attention + "v_proj"),
            o=self.packed(attention + "o_proj"),
            q_norm=self.values(attention + "q_norm"),
            k_norm=self.values(attention + "k_norm"),
            ffn_norm=self.values(prefix + "post_attention_layernorm"),
            gate=self.packed(mlp + "gate_proj"),
            up=self.packed(mlp + "up_proj"),
            down=self.packed(mlp + "down_proj"),
            attention_conv=self._conv(prefix + "attention_conv"),
            mlp_conv=self._conv(prefix + "mlp_conv"),
        )

    def _conv(self, name: str) -> ConvWeights | None:
        if name + ".base_kernel" not in self._tensors:
            return None
        base, projection = (name + ".base_kernel", name + ".kernel_projection")
        return ConvWeights(self.values(base), self.packed(projection))

    def selector(self) -> SelectorWeights:
        names = ("hidden_projection", "predecessor_codebook", "successor_codebook")
        return SelectorWeights(*(self.packed(f"candidate_selector.{name}") for name in names))
