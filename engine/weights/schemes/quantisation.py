"""What config.json says about how a checkpoint is quantised. It never says which modules are: that
is decided by the tensors that are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hearth.engine.errors import UserError
from hearth.engine.weights.files import damaged, shown
from hearth.engine.weights.json_files import read_json

if TYPE_CHECKING:
    from pathlib import Path

METHODS = ("compressed-tensors", "gptq", "auto-round", "awq", "fp8", "modelopt")
ALIASES = {"intel/auto-round": "auto-round", "compressed_tensors": "compressed-tensors",
           "modelopt_fp4": "modelopt", "modelopt_mixed": "modelopt"}  # fmt: skip
GPTQ_LIKE = ("auto_round:auto_gptq", "auto_round:gptqmodel", "auto_gptq")
RAW_ZEROS = ("auto_round",)
AWQ_LIKE = ("auto_round:auto_awq", "auto_awq")
BLOCK = (128, 128)


@dataclass(frozen=True, slots=True)
class Quantisation:
    """``method``: quant_method. ``layout``: of modules that have a qweight: gptq (zero points less
    one), gptq_v2 or awq. ``block``: rows and columns that share a scale in FP8 blocks."""

    method: str
    layout: str = "gptq"
    block: tuple[int, int] = BLOCK


def read_quantisation(folder: Path, config: dict[str, Any]) -> Quantisation | None:
    """None for a checkpoint that says nothing. Raises UserError for methods that are not read."""
    found = _stated(folder, config)
    if found is None:
        return None
    is_modelopt = "quantization" in found or "quant_algo" in found  # in files of its own
    method = str(found.get("quant_method", "modelopt" if is_modelopt else ""))
    method = ALIASES.get(method, method)
    if method not in METHODS:
        raise _refused(folder, method or "something unknown")
    if method == "compressed-tensors":
        _refuse_transforms(folder, found)
    return Quantisation(method, _layout(folder, method, found), _block(folder, found))


def _stated(folder: Path, config: dict[str, Any]) -> dict[str, Any] | None:
    text = config.get("text_config")
    holders = [config, text if isinstance(text, dict) else {}]
    for holder in holders:
        for key in ("quantization_config", "compression_config"):
            found = holder.get(key)
            if isinstance(found, dict) and found:
                return found
            if found:
                raise damaged(folder / "config.json", f"{key} is no JSON object")
    file = folder / "hf_quant_config.json"
    return read_json(file) if file.exists() else None


def _refused(folder: Path, what: str) -> UserError:
    return UserError(
        f"{shown(folder.name)} is quantised as {shown(what)}, which Hearth cannot read yet.",
        action="Choose a bf16 or a GGUF version of the model.",
    )


def _refuse_transforms(folder: Path, found: dict[str, Any]) -> None:
    """Rotations of activations and sparse storage would be left out silently."""
    transforms = found.get("transform_config")
    if isinstance(transforms, dict) and transforms.get("config_groups"):
        raise _refused(folder, "compressed-tensors with transforms of the activations")
    sparsity = found.get("sparsity_config")
    kind = sparsity.get("format") if isinstance(sparsity, dict) else None
    if kind not in (None, "dense"):
        raise _refused(folder, f"compressed-tensors with sparse storage {kind}")


def _layout(folder: Path, method: str, found: dict[str, Any]) -> str:
    if method == "awq":
        version = str(found.get("version", "gemm")).lower()
        if version != "gemm":
            raise _refused(folder, f"awq {version}")
        return "awq"
    if method != "auto-round":
        return "gptq_v2" if found.get("checkpoint_format") == "gptq_v2" else "gptq"
    packing = str(found.get("packing_format", "auto_round"))
    if packing in AWQ_LIKE:
        return "awq"
    if packing in RAW_ZEROS:
        return "gptq_v2"
    if packing in GPTQ_LIKE:
        return "gptq"
    if "llm_compressor" in packing:
        return "gptq"  # compressed-tensors' own parts, which name themselves
    raise _refused(folder, f"auto-round packed as {packing}")


def _block(folder: Path, found: dict[str, Any]) -> tuple[int, int]:
    """Where nothing is said, 128 x 128, which all published ones have."""
    size = found.get("weight_block_size")
    if size is None:
        return BLOCK
    is_pair = isinstance(size, list) and len(size) == 2
    if not is_pair or not all(type(part) is int and 16 <= part <= 1 << 16 for part in size):
        raise damaged(folder / "config.json", "weight_block_size is no pair of sizes")
    return (size[0], size[1])
