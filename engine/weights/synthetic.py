"""Models of true shape with random weights: they measure time and memory, never quality.

Shapes and names: ``shapes.py``; formats and the bytes of each tensor: ``stored_formats.py``.
"""

from __future__ import annotations

import hashlib
import itertools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from hearth.engine.text.data import GgufText
from hearth.engine.weights import random_weights, stored_formats
from hearth.engine.weights.checks import expected_shapes
from hearth.engine.weights.model_files import ModelFiles
from hearth.engine.weights.shapes import SHAPES, synthetic_path
from hearth.kernels import packing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hearth.engine.weights.stored_formats import StoredFormat

VERSION = 1  # part of the fingerprint: changes when the same seed gives other weights
CONTROL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
NORMAL, CONTROL = 1, 3
DT_RANGE = (1e-3, 1e-1)  # time steps that Gated DeltaNet is trained from
DECAY_RANGE = (0.5, 16.0)


@dataclass(frozen=True, slots=True)
class SyntheticEntry:
    """A ``WeightEntry`` that is drawn when asked for; the same values for the same seed, every time
    and in every process on one kind of device."""

    name: str
    shape: tuple[int, ...]
    stored: StoredFormat
    seed: int
    device: torch.device

    @property
    def format(self) -> str:
        return self.stored.name

    @property
    def num_bytes(self) -> int:
        """What a published file of this format has for this tensor."""
        if len(self.shape) == 1:
            return self.stored.num_bytes(1, self.shape[0])
        return self.stored.num_bytes(*self.shape)

    def packed(self) -> packing.PackedLinear:
        """Made in kernel layout on the device. Only for matrices."""
        assert len(self.shape) == 2, "only matrices are packed"
        shape = (self.shape[0], self.shape[1])
        return random_weights.random_linear(shape, self.stored, self.seed, self.device)

    def values(self) -> torch.Tensor:
        """float32 of ``shape`` on the device: norm weights near 1, decays and time steps as
        training starts with them, taps of the convolution; matrices (for tests) expanded."""
        inner = self.name.rsplit(".", 1)[-1]
        if inner != "conv" and len(self.shape) == 2:
            return packing.dequantise(self.packed())
        generator = torch.Generator(self.device).manual_seed(self.seed)
        if inner == "conv":
            noise = torch.randn(self.shape, generator=generator, device=self.device)
            return noise / math.sqrt(self.shape[1])
        if inner.endswith("norm"):
            return 1.0 + 0.05 * torch.randn(self.shape, generator=generator, device=self.device)
        low, high = {"decay": DECAY_RANGE, "dt_bias": DT_RANGE}[inner]
        drawn = torch.rand(self.shape, generator=generator, device=self.device)
        spread = torch.exp(math.log(low) + math.log(high / low) * drawn)  # evenly over magnitudes
        return -spread if inner == "decay" else spread.expm1().log()  # softplus(dt_bias) = dt

    def parts(self) -> Iterator[tuple[str, torch.Tensor]]:
        """What decides the values: there is no file."""
        seed = torch.tensor([self.seed], dtype=torch.int64)
        yield f"synthetic {self.format} {self.shape}", seed.view(torch.uint8)


def open_synthetic(
    shape: str, checkpoint: str, *, seed: int = 0, device: str = "cpu"
) -> ModelFiles:
    """A model whose tensors are made on ``device`` when they are asked for.

    Raises UserError for an unknown shape or format.
    """
    path = synthetic_path(shape, checkpoint)
    config = SHAPES[shape]
    where = torch.device(device)
    tensors = {
        name: SyntheticEntry(
            name,
            sizes,
            stored_formats.stored_format(checkpoint, name, sizes, config),
            random_weights.seed_of(name, seed),
            where,
        )
        for name, sizes in expected_shapes(config).items()
    }
    # The generators of torch may change with its version, and they differ between devices.
    origin = f"{path} {seed} {VERSION} {where.type} {torch.__version__}"
    return ModelFiles(
        name=f"{shape} {checkpoint} (synthetic)",
        path=path,
        config=config,
        tensors=tensors,
        text=_text(),
        fingerprint=hashlib.blake2b(origin.encode(), digest_size=16).hexdigest(),
    )


def _text() -> GgufText:
    """A token for every byte and the family's control tokens. The rows behind them are padding,
    which is never drawn: replies are made of these tokens."""
    tokens = (*_byte_tokens(), *CONTROL_TOKENS)
    first_control = len(tokens) - len(CONTROL_TOKENS)
    return GgufText(
        model="gpt2",
        pre="qwen35",
        tokens=tokens,
        token_types=(NORMAL,) * first_control + (CONTROL,) * len(CONTROL_TOKENS),
        merges=(),
        bos_id=None,
        end_ids=(tokens.index("<|im_end|>"), tokens.index("<|endoftext|>")),
        add_bos=False,
        chat_template=None,
    )


def _byte_tokens() -> list[str]:
    """The 256 bytes in the byte-level alphabet: printable ones as they are, others from U+0100."""
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    rest = itertools.count(256)
    return [chr(byte) if byte in printable else chr(next(rest)) for byte in range(256)]
