"""Whether an opened model is one that the engine can run: tensors against the configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from hearth.engine.errors import UserError
from hearth.engine.model.config import ARCHITECTURES
from hearth.engine.weights.files import damaged, shown

if TYPE_CHECKING:
    from pathlib import Path

    from hearth.engine.model.config import ModelConfig
    from hearth.engine.weights.model_files import ModelFiles


def unknown_architecture(path: Path, architecture: object) -> UserError:
    return UserError(
        f"{shown(path.name)} has architecture {shown(architecture)}, which Hearth cannot run yet.",
        action=f"Choose a model of one of these: {', '.join(ARCHITECTURES)}.",
    )


def unknown_rope(path: Path, kind: object) -> UserError:
    return UserError(
        f"{shown(path.name)} uses rope scaling {shown(kind)}, which Hearth cannot run yet.",
        action="Choose another model.",
    )


def unknown_tensor(path: Path, name: str, architecture: str) -> UserError:
    """A part that would be left out silently would make the model talk nonsense."""
    return UserError(
        f"{shown(path.name)} holds {shown(name)}, which Hearth does not know in a model of "
        f"architecture {architecture}.",
        action="Choose another version of the model.",
    )


def expected_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Canonical name to shape of every tensor that the configuration needs."""
    hidden = config.hidden_size
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (config.vocab_size, hidden),
        "output_norm": (hidden,),
    }
    if not config.tie_word_embeddings:
        shapes["output"] = (config.vocab_size, hidden)
    of_layer = _layer_shapes(config)
    for layer in range(config.num_hidden_layers):
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in of_layer.items()}
    return shapes


def _layer_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, ffn = config.hidden_size, config.intermediate_size
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (hidden,),
        "q": (config.q_size, hidden),
        "k": (config.kv_size, hidden),
        "v": (config.kv_size, hidden),
        "o": (hidden, config.q_size),
        "ffn_norm": (hidden,),
        "gate": (ffn, hidden),
        "up": (ffn, hidden),
        "down": (hidden, ffn),
    }
    if config.attention_bias:
        sizes = {"q": config.q_size, "k": config.kv_size, "v": config.kv_size}
        shapes |= {f"{name}_bias": (size,) for name, size in sizes.items()}
    if config.qk_norm:
        shapes |= {f"{name}_norm": (config.head_dim,) for name in ("q", "k")}
    return shapes


def check_tensors(files: ModelFiles) -> None:
    """Exactly the tensors that the configuration asks for are there, each with its shape.

    Raises UserError naming the first that is not.
    """
    expected = expected_shapes(files.config)
    for name, shape in expected.items():
        entry = files.tensors.get(name)
        if entry is None:
            raise UserError(
                f"{shown(files.path.name)} lacks the tensor {name}.",
                action="Download the model again; a part seems to be missing.",
            )
        if entry.shape != shape:
            raise UserError(
                f"{shown(files.path.name)} has {name} with shape {entry.shape}, but its "
                f"configuration needs {shape}.",
                action="Download the model again.",
            )
    for name in files.tensors:
        if name not in expected and name != "rope_freqs":
            raise unknown_tensor(files.path, name, files.config.architecture)
    _check_rope_divisors(files)


def _check_rope_divisors(files: ModelFiles) -> None:
    divisors = files.tensors.get("rope_freqs")
    if divisors is None:
        return
    if divisors.shape != (files.config.head_dim // 2,):
        raise damaged(files.path, "its rotary factors do not fit its heads")
    values = divisors.values()
    if not bool((torch.isfinite(values) & (values > 0.0)).all()):
        raise damaged(files.path, "its rotary factors are impossible")
