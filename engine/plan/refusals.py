"""Says why a plan is impossible, with the numbers and the largest value that is possible."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hearth.engine.memory import Refusal, size_words
from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from hearth.engine.memory import PlannedMemory


def refusal(plan: PlannedMemory, pages_room: int) -> Refusal | None:
    """None for a plan that fits. ``pages_room``: bytes that attention pages may take."""
    if plan.largest_context == 0:
        return _nothing_fits(plan, pages_room)
    smallest = min(PAGE_TOKENS, plan.trained_context)
    if plan.context < smallest:
        message = f"A context of {plan.context:,} tokens is too small to chat in."
        return _made(plan, message, f"Choose between {smallest:,} and {plan.largest_context:,}.")
    if plan.context > plan.trained_context:
        message = (
            f"{plan.model} was trained for {plan.trained_context:,} tokens; "
            f"{plan.context:,} are too many."
        )
        return _made(plan, message, f"Choose at most {plan.largest_context:,} tokens.")
    return _too_long(plan, pages_room) if plan.context > plan.largest_context else None


def _nothing_fits(plan: PlannedMemory, pages_room: int) -> Refusal:
    beside_pages = plan.needed_bytes - plan.part("pages")
    page_bytes = PAGE_TOKENS * plan.bytes_per_token
    needed = beside_pages + 2 * page_bytes
    if plan.card.is_host:
        needed = max(needed, plan.available_bytes + 2 * page_bytes - pages_room)
    usable = size_words(plan.available_bytes)
    message = (
        f"{plan.model} needs at least {size_words(needed)} and {usable} can be used of "
        f"{plan.card.name}."
    )
    ways = ["choose a smaller model or version of it"]
    if plan.card.free_bytes is not None:
        ways.append("close other programs")
    if plan.settings.max_requests > 1:
        ways.append("answer fewer requests at once")
    action = ", or ".join(ways).capitalize() + "."
    return Refusal(needed, plan.available_bytes, 0, message, action)


def _too_long(plan: PlannedMemory, pages_room: int) -> Refusal:
    pages = plan.part("pages")
    needed = plan.needed_bytes
    message = (
        f"A context of {plan.context:,} tokens needs {size_words(needed)} and "
        f"{size_words(needed - pages + pages_room)} can be used of {plan.card.name}."
    )
    others = [choice for choice in plan.kv_choices if choice.largest_context >= plan.context]
    best = max(others, key=lambda choice: choice.bytes_per_token, default=None)
    other = f", or keep keys and values as {best.format.value}" if best is not None else ""
    return _made(
        plan,
        message,
        f"Choose at most {plan.largest_context:,} tokens{other}.",
        available=needed - pages + pages_room,
    )


def _made(
    plan: PlannedMemory, message: str, action: str, *, available: int | None = None
) -> Refusal:
    usable = plan.available_bytes if available is None else available
    return Refusal(plan.needed_bytes, usable, plan.largest_context, message, action)
