"""The composition root: the one place of the application that knows how the engine is built."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from hearth.app.profile import Paths
    from hearth.app.settings import Settings, WideWeights
    from hearth.engine.bench.output import Reporter
    from hearth.engine.protocol import EnginePort
    from hearth.engine.weights.requantise import Kind, Requantise


def build_engine(
    paths: Paths, settings: Settings, on_wake: Callable[[], None] | None = None
) -> EnginePort:
    """An engine that keeps its prefixes in the profile's cache. Imports torch: seconds."""
    try:
        from hearth.engine.engine import Engine, EngineConfig
    except ImportError as error:
        raise MachineError(
            f"A part of the engine is not installed ({error.name or error}).",
            action="Run 'make setup', then 'hearth doctor'.",
        ) from error

    config = EngineConfig(
        cache_folder=paths.prefix_cache if settings.speed.cache_gigabytes > 0 else None,
        cache_capacity_bytes=int(settings.speed.cache_gigabytes * (1 << 30)),
        num_threads=settings.speed.threads,
        requantise=requantise_policy(settings.wide_weights),
    )
    return Engine(config, on_wake)


def requantise_policy(wanted: WideWeights) -> Requantise:
    """What to narrow; "auto" is the engine's own choice."""
    from hearth.engine.weights.requantise import AUTOMATIC, Requantise

    def kind(wish: str, automatic: Kind | None) -> Kind | None:
        if wish == "auto":
            return automatic
        return None if wish == "keep" else cast("Kind", wish)

    return Requantise(
        head=kind(wanted.head, AUTOMATIC.head),
        embedding=kind(wanted.embedding, AUTOMATIC.embedding),
        mtp=kind(wanted.mtp, AUTOMATIC.mtp),
    )


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What ``hearth models inspect`` prints; sizes in bytes and tokens."""

    name: str
    path: str
    architecture: str
    num_parameters: int
    weight_bytes: int
    layers: int
    hidden_size: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    trained_context: int
    cache_bytes_per_token: int
    fingerprint: str
    requantised: str | None  # what would not be as published


def inspect_model(path: Path, wide_weights: WideWeights) -> ModelFacts:
    """Read a model's headers. Raises UserError or MachineError with a sentence."""
    from hearth.engine.model.decoder import Decoder
    from hearth.engine.weights.model_files import open_model
    from hearth.engine.weights.requantise import made_here, requantised
    from hearth.kernels.kv import PAGE_TOKENS

    files = requantised(open_model(path), requantise_policy(wide_weights))
    config = files.config
    page_bytes = config.num_hidden_layers * Decoder.page_floats(config) * 4
    return ModelFacts(
        name=files.name,
        path=str(files.path),
        architecture=config.architecture,
        num_parameters=files.num_parameters,
        weight_bytes=files.weight_bytes,
        layers=config.num_hidden_layers,
        hidden_size=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        vocabulary=config.vocab_size,
        trained_context=config.max_position_embeddings,
        cache_bytes_per_token=page_bytes // PAGE_TOKENS,
        fingerprint=files.fingerprint,
        requantised=made_here(files),
    )


def synthetic_model(shape: str, checkpoint: str | None) -> Path:
    """The name of a model of true shape with random weights; engines open it like a path."""
    from hearth.engine.weights.shapes import FORMATS, synthetic_path

    return synthetic_path(shape, checkpoint or FORMATS[0])


def add_bench_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from hearth.engine import bench

    bench.add_commands(commands)


def add_check_commands(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    from hearth.engine import check

    check.add_commands(commands)


def start_report(options: argparse.Namespace, model: Path | None) -> Reporter:
    """A reporter that has said what is measured, where, when and by which command."""
    from hearth.engine.bench.output import Reporter

    report = Reporter(as_json=options.json)
    report.machine(options.arguments, model)
    return report


def run_bench(options: argparse.Namespace, report: Reporter) -> int:
    from hearth.engine import bench

    return bench.run(options, report)


def run_check(options: argparse.Namespace, report: Reporter) -> int:
    from hearth.engine import check

    return check.run(options, report)


def kernel_backend() -> str:
    """ "llvm" or "reference"."""
    from hearth.kernels.graph import backend

    return backend()
