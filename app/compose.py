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
    from hearth.engine.memory import Card, MemoryWish, PlannedMemory
    from hearth.engine.protocol import EnginePort
    from hearth.engine.weights.model_files import ModelFiles
    from hearth.engine.weights.requantise import Kind, Requantise

PROCESSOR = "cpu"


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
        state_dtype=settings.speed.recurrent_state,
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
    cache_bytes_per_token: int  # on the processor
    fingerprint: str
    requantised: str | None  # what would not be as published


class OpenedModel:
    """A model's headers, for its facts and for plans; its weights are never read."""

    def __init__(self, files: ModelFiles) -> None:
        self._files = files

    @property
    def facts(self) -> ModelFacts:
        return _facts(self._files)

    def plan(self, card_name: str, wish: MemoryWish) -> PlannedMemory:
        """``card_name``: a size, a name, ``cpu``, or empty for what is here. Raises UserError for
        a card or a setting that does not exist; what cannot fit is a refusal in the plan."""
        from hearth.engine.engine import EngineConfig
        from hearth.engine.memory import KvFormat, MemorySettings
        from hearth.engine.plan.fit import decide, plan_memory

        card = _card(card_name)
        base = MemorySettings()
        if card.is_host:
            running = EngineConfig()
            base = MemorySettings(
                kv=KvFormat.FLOAT32,
                max_requests=running.max_requests,
                prefill_chunk=running.prefill_chunk,
                snapshots_on_card=0,
                snapshots_on_host=0,
            )
        return plan_memory(self._files, card, decide(wish, base, card))


def open_headers(path: Path, wide_weights: WideWeights) -> OpenedModel:
    """Raises UserError or MachineError with a sentence when ``path`` holds no model."""
    from hearth.engine.weights.model_files import open_model
    from hearth.engine.weights.requantise import requantised

    return OpenedModel(requantised(open_model(path), requantise_policy(wide_weights)))


def _card(name: str) -> Card:
    from hearth.engine.plan.cards import parse_card
    from hearth.engine.plan.present import host_card, present_card

    if name.lower() == PROCESSOR:
        return host_card()
    return parse_card(name) if name else present_card() or host_card()


def _facts(files: ModelFiles) -> ModelFacts:
    from hearth.engine.memory import KvFormat
    from hearth.engine.plan.sizes import bytes_per_token
    from hearth.engine.weights.requantise import made_here

    config = files.config
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
        cache_bytes_per_token=bytes_per_token(config, KvFormat.FLOAT32, use_mtp=True),
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
