"""Whether an opened model is one that the engine can run: tensors against the configuration."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from hearth.engine.errors import UserError
from hearth.engine.model.config import ARCHITECTURES, LINEAR
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
    for layer, kind in enumerate(config.kinds):
        mixer = _linear_shapes(config) if kind == LINEAR else _attention_shapes(config)
        of_layer = mixer | _mlp_shapes(config)
        shapes |= {f"layers.{layer}.{name}": shape for name, shape in of_layer.items()}
    return shapes | _mtp_shapes(config)


def _attention_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden = config.hidden_size
    q_rows = config.q_size * (2 if config.attn_output_gate else 1)
    shapes: dict[str, tuple[int, ...]] = {
        "attn_norm": (hidden,),
        "q": (q_rows, hidden),
        "k": (config.kv_size, hidden),
        "v": (config.kv_size, hidden),
        "o": (hidden, config.q_size),
    }
    if config.attention_bias:
        sizes = {"q": config.q_size, "k": config.kv_size, "v": config.kv_size}
        shapes |= {f"{name}_bias": (size,) for name, size in sizes.items()}
    if config.qk_norm:
        shapes |= {f"{name}_norm": (config.head_dim,) for name in ("q", "k")}
    return shapes


def _linear_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Gated DeltaNet; ``decay`` is -exp(A_log)."""
    linear, hidden = config.linear, config.hidden_size
    assert linear is not None, "only configurations with linear layers get here"
    return {
        "attn_norm": (hidden,),
        "in_qkv": (linear.conv_dim, hidden),
        "in_z": (linear.value_size, hidden),
        "in_b": (linear.num_value_heads, hidden),
        "in_a": (linear.num_value_heads, hidden),
        "conv": (linear.conv_dim, linear.conv_kernel_dim),
        "decay": (linear.num_value_heads,),
        "dt_bias": (linear.num_value_heads,),
        "gdn_norm": (linear.value_head_dim,),
        "out": (hidden, linear.value_size),
    }


def _mlp_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    hidden, ffn = config.hidden_size, config.intermediate_size
    return {
        "ffn_norm": (hidden,),
        "gate": (ffn, hidden),
        "up": (ffn, hidden),
        "down": (hidden, ffn),
    }


def _mtp_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """The MTP module: a projection, norms and one layer of full attention."""
    if not config.num_mtp_layers:
        return {}
    hidden = config.hidden_size
    of_layer = _attention_shapes(config) | _mlp_shapes(config)
    norms = {f"mtp.{name}": (hidden,) for name in ("embedding_norm", "hidden_norm", "norm")}
    layer = {f"mtp.layers.0.{name}": shape for name, shape in of_layer.items()}
    return {"mtp.fc": (hidden, 2 * hidden)} | norms | layer


def mtp_names(config: ModelConfig) -> frozenset[str]:
    """What a model of this family has in an MTP module; nothing for families without one."""
    if config.linear is None:
        return frozenset()
    return frozenset(_mtp_shapes(replace(config, num_mtp_layers=1)))


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
    if divisors.shape != (files.config.rope_dim // 2,):
        raise damaged(files.path, "its rotary factors do not fit its heads")
    values = divisors.values()
    if not bool((torch.isfinite(values) & (values > 0.0)).all()):
        raise damaged(files.path, "its rotary factors are impossible")


def check_vocabulary(files: ModelFiles, num_tokens: int) -> None:
    """Every token of the tokenizer has an embedding, or the model would read beside its matrix."""
    rows = files.config.vocab_size
    if num_tokens > rows:
        raise damaged(files.path, f"its tokenizer has {num_tokens} tokens for {rows} embeddings")
