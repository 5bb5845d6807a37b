"""What a model needs on a card, and the largest context that fits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hearth.engine.cache import budget
from hearth.engine.errors import UserError
from hearth.engine.memory import PARTS, KvChoice, KvFormat, MemoryPart, PlannedMemory
from hearth.engine.plan import refusals, sizes, weights
from hearth.kernels.kv import PAGE_TOKENS

if TYPE_CHECKING:
    from hearth.engine.memory import Card, MemorySettings, MemoryWish
    from hearth.engine.weights.model_files import ModelFiles

USABLE_SHARE = 0.98  # of a card as sold: the driver leaves 25,272,516,608 bytes of 24 GiB
DESKTOP_BYTES = 1_300_000_000  # what a desktop session was seen to hold on an imagined card
GROWTH_BYTES = 512 << 20  # on a card that was measured: engines died below 396 to 436 MiB free
DRIVER_BYTES = 400 << 20  # the CUDA context and the libraries' own workspaces
GRAPH_BYTES = 300_000_000  # captured rounds of all depths; an estimate until it is measured
CARD_FORMATS = (KvFormat.BF16, KvFormat.FP8, KvFormat.INT8)


def decide(wish: MemoryWish, base: MemorySettings, card: Card) -> MemorySettings:
    """The wish where there is one, else ``base``. Raises UserError for what the device cannot."""
    kv = wish.kv or base.kv
    if card.is_host and kv is not KvFormat.FLOAT32:
        raise UserError(
            "On the processor keys and values are always 32 bit.",
            action="Name a card to see another format, for example '24GB'.",
        )
    if not card.is_host and kv is KvFormat.FLOAT32:
        raise UserError(
            "On a card keys and values are never kept in 32 bit.",
            action="Choose bf16, fp8 or int8.",
        )
    max_requests = base.max_requests if wish.max_requests is None else wish.max_requests
    if not 1 <= max_requests <= 256:
        raise UserError(
            f"{max_requests:,} requests at once are impossible.", action="Choose 1 to 256."
        )
    return replace(
        base,
        context=wish.context,
        kv=kv,
        state=wish.state or base.state,
        max_requests=max_requests,
        use_mtp=wish.use_mtp,
        requantise=wish.requantise,
    )


def plan_memory(files: ModelFiles, card: Card, settings: MemorySettings) -> PlannedMemory:
    """Everything in bytes. A setting that cannot fit leaves a ``refusal`` in the result."""
    planner = _Planner(files, card, settings)
    choices = tuple(planner.choice(kv) for kv in planner.formats)
    largest = next(choice.largest_context for choice in choices if choice.format is settings.kv)
    context = settings.context if settings.context is not None else largest
    parts = (*planner.fixed, MemoryPart("pages", planner.pages_bytes(max(context, 0), settings.kv)))
    one_state = planner.state_bytes
    plan = PlannedMemory(
        model=files.name,
        card=card,
        settings=settings,
        parts=tuple(sorted((p for p in parts if p.num_bytes), key=lambda p: PARTS.index(p.id))),
        available_bytes=planner.available,
        trained_context=files.config.max_position_embeddings,
        context=context,
        largest_context=largest,
        kv_choices=choices,
        state_bytes=one_state,
        window_bytes=planner.window_bytes,
        snapshot_bytes=one_state,
        host_snapshot_bytes=0 if card.is_host else one_state * settings.snapshots_on_host,
        requantised=planner.requantised,
        refusal=None,
    )
    return replace(plan, refusal=refusals.refusal(plan, planner.pages_room))


@dataclass(frozen=True, slots=True)
class _Planner:
    files: ModelFiles
    card: Card
    settings: MemorySettings

    @property
    def formats(self) -> tuple[KvFormat, ...]:
        return (KvFormat.FLOAT32,) if self.card.is_host else CARD_FORMATS

    @property
    def value_bytes(self) -> int:
        """Of activations and of what is kept of them."""
        return 4 if self.card.is_host else 2

    @property
    def available(self) -> int:
        free = self.card.free_bytes
        return int(self.card.total_bytes * USABLE_SHARE) if free is None else free

    @property
    def state_bytes(self) -> int:
        return sizes.state_bytes(self.files.config, self.settings.state, self.value_bytes)

    @property
    def window_bytes(self) -> int:
        rows = self.settings.verify_rows
        return sizes.window_bytes(self.files.config, rows, self.value_bytes)

    @property
    def requantised(self) -> tuple[str, ...]:
        if self.card.is_host:
            return ()
        wanted, use_mtp = self.settings.requantise, self.settings.use_mtp
        return weights.requantised_parts(self.files.tensors, wanted, use_mtp=use_mtp)

    @property
    def fixed(self) -> list[MemoryPart]:
        """Everything but the attention pages."""
        settings = self.settings
        parts = weights.weight_parts(
            self.files.tensors,
            use_mtp=settings.use_mtp,
            requantise=settings.requantise,
            is_host=self.card.is_host,
        )
        parts += [MemoryPart("states", self._states()), MemoryPart("snapshots", self._snapshots())]
        if settings.drafter is not None:
            parts.append(MemoryPart("drafter", settings.drafter.weight_bytes))
        return parts + (self._of_host() if self.card.is_host else self._of_card())

    def _states(self) -> int:
        """Of all requests at once: a request never waits for memory that another one holds."""
        one = sizes.STATE_COPIES * self.state_bytes + sizes.WINDOWS * self.window_bytes
        drafter = self.settings.drafter
        return self.settings.max_requests * (one + (drafter.cache_bytes if drafter else 0))

    def _snapshots(self) -> int:
        """On a card a number of them; the processor's engine gives them a share of its memory."""
        if not self.card.is_host:
            return self.settings.snapshots_on_card * self.state_bytes
        return int(self._shared * budget.SNAPSHOT_SHARE) if self.state_bytes else 0

    @property
    def _shared(self) -> int:
        """What the processor's engine shares out (loading.py): the rest beside weights, by their
        size in files, and states."""
        return max(self.available - self.files.weight_bytes - self._states(), 0)

    def _of_host(self) -> list[MemoryPart]:
        return [MemoryPart("scratch", sizes.host_scratch(self.files.config, self.settings))]

    def _of_card(self) -> list[MemoryPart]:
        quantised = weights.has_quantised_layers(self.files.tensors)
        scratch = sizes.card_scratch(self.files.config, self.settings, has_quantised=quantised)
        measured = self.card.free_bytes is not None
        return [
            MemoryPart("scratch", scratch),
            MemoryPart("graphs", GRAPH_BYTES),
            MemoryPart("driver", DRIVER_BYTES),
            MemoryPart("desktop", GROWTH_BYTES if measured else DESKTOP_BYTES),
        ]

    # --------------------------------------------------------------------------------------- pages

    @property
    def pages_room(self) -> int:
        """Bytes that attention pages may take. On the processor other programs keep a share of
        what is left: the same one that the running engine keeps (cache/budget.py)."""
        left = max(self.available - sum(part.num_bytes for part in self.fixed), 0)
        if not self.card.is_host:
            return left
        return min(left, int(self._shared * budget.CACHE_SHARE))

    def page_bytes(self, kv: KvFormat) -> int:
        config, use_mtp = self.files.config, self.settings.use_mtp
        return PAGE_TOKENS * sizes.bytes_per_token(config, kv, use_mtp=use_mtp)

    def pages_bytes(self, context: int, kv: KvFormat) -> int:
        """One page more than the context: a tail that is shared is copied before it is continued.
        The processor's engine keeps other chats too where there is room (cache/budget.py)."""
        if context == 0:
            return 0
        pages = -(-context // PAGE_TOKENS)
        least = (pages + 1) * self.page_bytes(kv)
        if not self.card.is_host:
            return least
        wanted = (int(budget.CONTEXTS_KEPT * pages) + 1) * self.page_bytes(kv)
        affordable = self.pages_room // self.page_bytes(kv) * self.page_bytes(kv)
        return max(least, min(wanted, affordable))

    def choice(self, kv: KvFormat) -> KvChoice:
        page_bytes = self.page_bytes(kv)
        tokens = max(self.pages_room // page_bytes - 1, 0) * PAGE_TOKENS
        trained = self.files.config.max_position_embeddings
        return KvChoice(kv, page_bytes // PAGE_TOKENS, min(tokens, trained))
