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
# AutoRound's packings. Its GPTQ keeps zero points less one; what it made for GPTQModel and its own
# kernels keeps them as they are, which looks the same in a file.
GPTQ_LIKE = ("auto", "auto_gptq", "auto_round:auto_gptq", "auto_round:gptq",
             "auto_round:gptq:exllamav2")  # fmt: skip
RAW_ZEROS = ("auto_round", "auto_round:gptqmodel", "auto_round:exllamav2", "auto_round:tritonv2")
AWQ_LIKE = ("auto_awq", "auto_round:auto_awq", "auto_round:awq")
GPTQ_FORMATS = ("gptq", "gptq_v2")
COMPRESSED_FORMATS = (
    "dense", "pack-quantized", "int-quantized", "float-quantized", "naive-quantized",
    "nvfp4-pack-quantized", "mxfp4-pack-quantized", "mxfp8-quantized", "mixed-precision",
)  # fmt: skip
BLOCK = (128, 128)
MAX_DEPTH = 8  # of a configuration


@dataclass(frozen=True, slots=True)
class Quantisation:
    """``method``: quant_method. ``layout``: of modules that have a qweight: gptq (zero points less
    one), gptq_v2 or awq. ``block``: rows and columns that share a scale in FP8 blocks.
    ``group_sizes``: all that are stated for any module; without one nothing is compared."""

    method: str
    layout: str = "gptq"
    block: tuple[int, int] = BLOCK
    group_sizes: frozenset[int] = frozenset()


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
        _refuse_formats(folder, found)
    return Quantisation(
        method, _layout(folder, method, found), _block(folder, found), _group_sizes(found)
    )


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


def _refuse_formats(folder: Path, found: dict[str, Any]) -> None:
    """Of the whole checkpoint and of its groups."""
    for holder in (found, *_groups(found)):
        kind = holder.get("format")
        if kind is not None and kind not in COMPRESSED_FORMATS:
            raise _refused(folder, f"compressed-tensors in the format {kind}")


def _groups(found: dict[str, Any]) -> list[dict[str, Any]]:
    groups = found.get("config_groups")
    values = groups.values() if isinstance(groups, dict) else ()
    return [group for group in values if isinstance(group, dict)]


def _layout(folder: Path, method: str, found: dict[str, Any]) -> str:
    if method == "awq":
        version = str(found.get("version", "gemm")).lower()
        if version != "gemm":
            raise _refused(folder, f"awq {version}")
        return "awq"
    if method == "auto-round":
        return _auto_round_layout(folder, found)
    if method != "gptq":
        return "gptq"
    kind = "marlin" if found.get("is_marlin_format") else found.get("checkpoint_format") or "gptq"
    if kind not in GPTQ_FORMATS:
        raise _refused(folder, f"gptq in the format {kind}")
    return str(kind)


def _auto_round_layout(folder: Path, found: dict[str, Any]) -> str:
    """Old files name the packing as their backend; the library's default is GPTQ's."""
    packing = found.get("packing_format")
    if packing is None:
        backend = str(found.get("backend"))
        packing = backend if backend.startswith("auto_round") else "auto"
    if packing in AWQ_LIKE:
        return "awq"
    if packing in RAW_ZEROS:
        return "gptq_v2"
    if packing in GPTQ_LIKE or "llm_compressor" in str(packing):  # compressed-tensors' own parts
        return "gptq"
    raise _refused(folder, f"auto-round packed as {packing}")


def _block(folder: Path, found: dict[str, Any]) -> tuple[int, int]:
    """Where nothing is said, 128 x 128, which all published ones have."""
    weights = [group.get("weights") for group in _groups(found)]
    stated = [found.get("weight_block_size")]
    stated += [part.get("block_structure") for part in weights if isinstance(part, dict)]
    sizes = [size for size in stated if size is not None]
    if not sizes:
        return BLOCK
    for size in sizes:
        is_pair = isinstance(size, list) and len(size) == 2
        if not is_pair or not all(type(part) is int and 16 <= part <= 1 << 16 for part in size):
            raise damaged(folder / "config.json", "weight_block_size is no pair of sizes")
    if any(size != sizes[0] for size in sizes):
        raise _refused(folder, "fp8 in blocks of several sizes")
    return (sizes[0][0], sizes[0][1])


def _group_sizes(found: object, depth: int = 0) -> frozenset[int]:
    """Every ``group_size`` at any depth: methods state exceptions under names of their own."""
    if not isinstance(found, dict) or depth > MAX_DEPTH:
        return frozenset()
    sizes = {v for k, v in found.items() if k in ("group_size", "q_group_size") and type(v) is int}
    inner = (_group_sizes(value, depth + 1) for value in found.values())
    return frozenset(size for size in sizes if size > 0).union(*inner)
