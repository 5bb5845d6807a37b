"""A model's weights, packed for the kernels, layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.engine.errors import CancelledError
from hearth.engine.model.config import LINEAR
from hearth.kernels.deltanet import GateWeights
from hearth.kernels.linear import concatenate, linear

if TYPE_CHECKING:
    from collections.abc import Callable

    from hearth.engine.model.config import ModelConfig
    from hearth.engine.weights.model_files import ModelFiles
    from hearth.kernels.packing import PackedLinear

MTP = "mtp.layers.0."


class Joined:
    """Matrices that share their input; neighbours of one format are one matrix."""

    def __init__(self, parts: list[PackedLinear], biases: list[torch.Tensor] | None = None) -> None:
        if biases is None:
            self._parts = _runs(parts)
            self._biases: list[torch.Tensor | None] = [None] * len(self._parts)
            return
        whole = concatenate(parts)
        self._parts = parts if whole is None else [whole]
        self._biases = list(biases) if whole is None else [torch.cat(biases)]

    def launch(self, x: torch.Tensor, out: torch.Tensor) -> None:
        """out [M, sum of N] = x [M, K] times every matrix, side by side."""
        column = 0
        for part, bias in zip(self._parts, self._biases, strict=True):
            size = part.shape[0]
            linear(x, part, out[:, column : column + size], bias=bias)
            column += size


def _runs(parts: list[PackedLinear]) -> list[PackedLinear]:
    """Each longest run of neighbours that can be one matrix, as one."""
    result: list[PackedLinear] = []
    run: list[PackedLinear] = []
    for part in parts:
        whole = concatenate([*run, part]) if run else part
        if whole is None:
            result.append(_one(run))
            run = []
        run.append(part)
    return [*result, _one(run)]


def _one(run: list[PackedLinear]) -> PackedLinear:
    whole = concatenate(run)
    assert whole is not None, "only matrices that fit together are in a run"
    return whole


@dataclass(frozen=True, slots=True)
class Attention:
    """Full attention. ``qkv`` gives queries (each with its gate behind it where the family has
    one), keys and values side by side."""

    norm: torch.Tensor
    qkv: Joined
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    o: PackedLinear


@dataclass(frozen=True, slots=True)
class DeltaNet:
    """Gated DeltaNet. ``inputs`` gives qkv, z, b and a side by side; conv [K, C], taps first."""

    norm: torch.Tensor
    inputs: Joined
    conv: torch.Tensor
    gates: GateWeights
    out_norm: torch.Tensor
    out: PackedLinear


@dataclass(frozen=True, slots=True)
class Mlp:
    norm: torch.Tensor
    gate_up: Joined
    down: PackedLinear


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer."""

    mixer: Attention | DeltaNet
    mlp: Mlp


@dataclass(frozen=True, slots=True)
class MtpWeights:
    """The module that predicts one token further: its projection takes [embedding; hidden]."""

    fc: PackedLinear
    embedding_norm: torch.Tensor
    hidden_norm: torch.Tensor
    norm: torch.Tensor
    attention: Attention
    mlp: Mlp


@dataclass(frozen=True, slots=True)
class Weights:
    """A whole model, packed for the kernels."""

    config: ModelConfig
    token_embd: PackedLinear
    layers: tuple[Layer, ...]
    output_norm: torch.Tensor
    output: PackedLinear
    rope_divisors: torch.Tensor | None
    mtp: MtpWeights | None = None


def load_weights(
    files: ModelFiles,
    on_progress: Callable[[int, int], None],
    is_cancelled: Callable[[], bool] = lambda: False,
) -> Weights:
    """Pack every tensor; at most one is held in two forms at a time. Raises CancelledError."""
    loader = _Loader(files, on_progress, is_cancelled)
    config = files.config
    token_embd = loader.packed("token_embd")
    layers = tuple(loader.layer(index) for index in range(config.num_hidden_layers))
    return Weights(
        config,
        token_embd,
        layers,
        loader.vector("output_norm"),
        token_embd if config.tie_word_embeddings else loader.packed("output"),
        loader.vector("rope_freqs") if "rope_freqs" in files.tensors else None,
        loader.mtp() if config.num_mtp_layers else None,
    )


class _Loader:
    def __init__(
        self,
        files: ModelFiles,
        on_progress: Callable[[int, int], None],
        is_cancelled: Callable[[], bool],
    ) -> None:
        self._files = files
        self._on_progress = on_progress
        self._is_cancelled = is_cancelled
        self._done = 0

    def _account(self, num_bytes: int) -> None:
        if self._is_cancelled():
            raise CancelledError("Opening the model was stopped.")
        self._done += num_bytes
        self._on_progress(self._done, self._files.weight_bytes)

    def packed(self, name: str) -> PackedLinear:
        entry = self._files.tensors[name]
        result = entry.packed()
        self._account(entry.num_bytes)
        return result

    def vector(self, name: str) -> torch.Tensor:
        entry = self._files.tensors[name]
        result = entry.values().clone()
        self._account(entry.num_bytes)
        return result

    def layer(self, index: int) -> Layer:
        prefix = f"layers.{index}."
        is_linear = self._files.config.kinds[index] == LINEAR
        mixer = self.delta_net(prefix) if is_linear else self.attention(prefix)
        return Layer(mixer, self.mlp(prefix))

    def attention(self, prefix: str) -> Attention:
        config, names = self._files.config, ("q", "k", "v")
        biases = None
        if config.attention_bias:
            biases = [self.vector(f"{prefix}{name}_bias") for name in names]
        return Attention(
            norm=self.vector(prefix + "attn_norm"),
            qkv=Joined([self.packed(prefix + name) for name in names], biases),
            q_norm=self.vector(prefix + "q_norm") if config.qk_norm else None,
            k_norm=self.vector(prefix + "k_norm") if config.qk_norm else None,
            o=self.packed(prefix + "o"),
        )

    def delta_net(self, prefix: str) -> DeltaNet:
        inputs = [self.packed(prefix + name) for name in ("in_qkv", "in_z", "in_b", "in_a")]
        return DeltaNet(
            norm=self.vector(prefix + "attn_norm"),
            inputs=Joined(inputs),
            conv=self.vector(prefix + "conv").t().contiguous(),
            gates=GateWeights(self.vector(prefix + "decay"), self.vector(prefix + "dt_bias")),
            out_norm=self.vector(prefix + "gdn_norm"),
            out=self.packed(prefix + "out"),
        )

    def mlp(self, prefix: str) -> Mlp:
        return Mlp(
            norm=self.vector(prefix + "ffn_norm"),
            gate_up=Joined([self.packed(prefix + "gate"), self.packed(prefix + "up")]),
            down=self.packed(prefix + "down"),
        )

    def mtp(self) -> MtpWeights:
        return MtpWeights(
            fc=self.packed("mtp.fc"),
            embedding_norm=self.vector("mtp.embedding_norm"),
            hidden_norm=self.vector("mtp.hidden_norm"),
            norm=self.vector("mtp.norm"),
            attention=self.attention(MTP),
            mlp=self.mlp(MTP),
        )
