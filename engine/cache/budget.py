"""How many attention pages fit: planned from what the machine has free now (decision D5)."""

from __future__ import annotations

from dataclasses import dataclass

from hearth.engine.cache.host_memory import available_bytes
from hearth.engine.errors import UserError
from hearth.kernels.kv import PAGE_TOKENS

__all__ = ["MemoryPlan", "available_bytes", "plan"]

CACHE_SHARE = 0.3  # of the memory that is available when the model is opened
SNAPSHOT_SHARE = 0.1  # of the same memory, for copies of recurrent states
CONTEXTS_KEPT = 2.5  # a running chat, another one, and the shared beginnings of others


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """What the engine allocates. Bytes are upper bounds; memory is touched when used."""

    num_pages: int
    context_length: int
    page_bytes: int
    snapshot_bytes: int = 0

    @property
    def cache_bytes(self) -> int:
        return self.num_pages * self.page_bytes


def plan(
    *,
    page_bytes: int,
    max_context: int,
    wanted_context: int | None,
    available_bytes: int,
    has_states: bool = False,
) -> MemoryPlan:
    """Pages for the wanted context (default: what the model was trained for, as far as it fits).

    Raises UserError with the numbers when the wanted context is impossible.
    """
    budget = int(available_bytes * CACHE_SHARE)
    affordable = budget // page_bytes
    # One page more than the context: a tail that is shared is copied before it is continued.
    fits = min(max(affordable - 1, 0) * PAGE_TOKENS, max_context)
    if fits == 0:
        raise UserError(
            f"Only {_mb(available_bytes)} MB of memory are free, and {_mb(budget)} MB of them may "
            f"hold chats; at least {_mb(2 * page_bytes)} MB are needed.",
            action="Close other programs or choose a smaller model.",
        )
    context = fits if wanted_context is None else wanted_context
    _check(context, max_context=max_context, fits=fits, page_bytes=page_bytes, budget=budget)
    wanted_pages = int(CONTEXTS_KEPT * _pages(context)) + 1
    snapshot_bytes = int(available_bytes * SNAPSHOT_SHARE) if has_states else 0
    return MemoryPlan(min(wanted_pages, affordable), context, page_bytes, snapshot_bytes)


def _check(context: int, *, max_context: int, fits: int, page_bytes: int, budget: int) -> None:
    smallest = min(PAGE_TOKENS, max_context)
    if context < smallest:
        raise UserError(
            f"A context of {context:,} tokens is too small to chat in.",
            action=f"Choose between {smallest:,} and {fits:,} tokens.",
        )
    if context > max_context:
        raise UserError(
            f"The model was trained for {max_context:,} tokens; {context:,} are too many.",
            action=f"Choose a context of at most {fits:,} tokens.",
        )
    if context > fits:
        needed = (_pages(context) + 1) * page_bytes
        raise UserError(
            f"A context of {context:,} tokens needs {_mb(needed)} MB and "
            f"{_mb(budget)} MB may be used for it.",
            action=f"Choose at most {fits:,} tokens, or close other programs.",
        )


def _pages(num_tokens: int) -> int:
    return -(-num_tokens // PAGE_TOKENS)


def _mb(num_bytes: int) -> str:
    return f"{num_bytes / 1e6:,.0f}"
