"""The words and figures of a memory plan, the same in the terminal and in the window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hearth.engine.memory import size_words

if TYPE_CHECKING:
    from hearth.engine.memory import PlannedMemory

PART_TITLES = {
    "embedding": "Embedding",
    "head": "Head",
    "attention": "Attention layers",
    "linear": "Linear layers",
    "mlp": "MLPs",
    "norms": "Norms and others",
    "mtp": "MTP",
    "drafter": "Drafter",
    "states": "States of requests",
    "snapshots": "Snapshots",
    "scratch": "Scratch",
    "graphs": "Captured graphs",
    "driver": "Driver",
    "desktop": "Left for the desktop",
    "pages": "Keys and values",
}
FREE = "Free"


def part_title(plan: PlannedMemory, name: str) -> str:
    """Tied embeddings are one matrix with two uses."""
    if name == "embedding" and not plan.part("head"):
        return "Embedding and head"
    return PART_TITLES[name]


def fit_words(plan: PlannedMemory) -> str:
    """The verdict in one sentence."""
    if plan.refusal is not None:
        return plan.refusal.sentence
    if plan.context < plan.largest_context:
        return f"{plan.context:,} tokens fit; at most {plan.largest_context:,} would."
    limit = "all that the model was trained for"
    if plan.context < plan.trained_context:
        limit = f"of {plan.trained_context:,} that the model was trained for"
    return f"The largest context that fits is {plan.context:,} tokens, {limit}."


def detail_words(plan: PlannedMemory) -> list[tuple[str, str]]:
    """Name and value of every figure beside the parts."""
    details = [
        (
            f"One token in {choice.format.value}",
            f"{size_words(choice.bytes_per_token)}, up to {choice.largest_context:,} tokens",
        )
        for choice in plan.kv_choices
    ]
    if plan.state_bytes:
        form, rows = plan.settings.state.value, plan.settings.verify_rows
        details += [
            (f"One state in {form}", size_words(plan.state_bytes)),
            (f"Window of {rows} rows", size_words(plan.window_bytes)),
            ("One snapshot", size_words(plan.snapshot_bytes)),
        ]
    if plan.host_snapshot_bytes:
        count = plan.settings.snapshots_on_host
        words = f"{size_words(plan.host_snapshot_bytes)} for {count} snapshots"
        details.append(("In the machine's memory", words))
    return details


def card_words(plan: PlannedMemory) -> str:
    """Which memory the plan is for, and what of it can be used."""
    usable = size_words(plan.available_bytes)
    name = plan.card.name[:1].upper() + plan.card.name[1:]
    if plan.card.free_bytes is None:
        return f"{name}: {usable} can be used"
    return f"{name}: {usable} of {size_words(plan.card.total_bytes)} are free"


def requantised_words(plan: PlannedMemory) -> str:
    """Which matrices would not stay as published; empty when all do."""
    if not plan.requantised:
        return ""
    names = [part_title(plan, name) for name in plan.requantised]
    joined = ", ".join(names[:-1]) + (" and " if len(names) > 1 else "") + names[-1]
    return f"Counted as int8 instead of 16 or 32 bit: {joined}."


def as_data(plan: PlannedMemory) -> dict[str, Any]:
    """The plan's figures for programs; bytes and tokens."""
    settings = plan.settings
    return {
        "card": plan.card.name,
        "total_bytes": plan.card.total_bytes,
        "available_bytes": plan.available_bytes,
        "needed_bytes": plan.needed_bytes,
        "free_bytes": plan.free_bytes,
        "weight_bytes": plan.weight_bytes,
        "parts": {part.id: part.num_bytes for part in plan.parts},
        "requantised": list(plan.requantised),
        "kv": settings.kv.value,
        "state": settings.state.value,
        "max_requests": settings.max_requests,
        "context": plan.context,
        "largest_context": plan.largest_context,
        "trained_context": plan.trained_context,
        "bytes_per_token": {c.format.value: c.bytes_per_token for c in plan.kv_choices},
        "largest_context_by_kv": {c.format.value: c.largest_context for c in plan.kv_choices},
        "state_bytes": plan.state_bytes,
        "window_bytes": plan.window_bytes,
        "snapshot_bytes": plan.snapshot_bytes,
        "host_snapshot_bytes": plan.host_snapshot_bytes,
        "fits": plan.refusal is None,
        "refusal": plan.refusal.sentence if plan.refusal is not None else None,
    }
