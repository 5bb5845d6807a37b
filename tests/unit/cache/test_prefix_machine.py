"""Arbitrary requests, saves, restarts and shortage against what a plain list of what was computed
says: no page is lost or owned twice, none holds anything but its ids, nothing known is missed."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from cache_world import Running, World
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    multiple,
    rule,
)

LENGTHS = (1, 3, 60, 67, 127, 128, 130)
SEGMENT = st.tuples(st.integers(0, 1), st.sampled_from(LENGTHS))
SEGMENTS = st.lists(SEGMENT, min_size=1, max_size=6)
QUICK = settings(
    max_examples=40,
    stateful_step_count=25,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)


def build(segments: list[tuple[int, int]]) -> list[int]:
    """Few kinds of segments, so that beginnings agree often, and end to agree anywhere."""
    return [kind * 1000 + number for kind, length in segments for number in range(length)]


class CacheMachine(RuleBasedStateMachine):
    """With room for everything, hits are exactly the longest that were ever kept."""

    num_pages = 400
    requires_state = False
    is_exact = True
    running = Bundle("running")

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.world = World(
            self.num_pages, Path(self._folder.name), requires_state=self.requires_state
        )
        self.kept: set[tuple[int, ...]] = set()  # what was inserted
        self.stored: set[tuple[int, ...]] = set()  # what was on disk at the last save

    def teardown(self) -> None:
        self._folder.cleanup()

    @initialize()
    def start(self) -> None:
        self.world.check()

    @rule(target=running, segments=SEGMENTS, cuts=st.sets(st.integers(1, 5), max_size=3))
    def request(self, segments: list[tuple[int, int]], cuts: set[int]) -> Any:
        """Kept at the end and behind some of the segments, as at the ends of messages."""
        ids = build(segments)
        boundaries = [len(build(segments[:cut])) for cut in cuts if cut < len(segments)]
        known = self.expected(ids)
        request = self.world.run(ids, boundaries)
        if request is None:
            assert not self.is_exact, "there is memory for everything"
            return multiple()
        kept = (tuple(ids[:count]) for count in (*boundaries, len(ids)) if count > known)
        self.kept.update(kept)
        return request

    @rule(segments=SEGMENTS)
    def look(self, segments: list[tuple[int, int]]) -> None:
        ids = build(segments)
        known = self.world.lookup(ids).num_tokens
        if self.is_exact:
            assert known == self.expected(ids)

    def expected(self, ids: list[int]) -> int:
        """The longest prefix that may be reused, by comparing with everything kept."""
        if not self.is_exact:
            return 0
        wanted, limit = tuple(ids), len(ids) - 1
        if self.requires_state:
            ends = [len(k) for k in self.kept if len(k) <= limit and wanted[: len(k)] == k]
            return max(ends, default=0)
        return min(max((agreement(kept, wanted) for kept in self.kept), default=0), limit)

    @rule(request=consumes(running))
    def end(self, request: Running) -> None:
        if request in self.world.running:  # a restart ends all
            self.world.end(request)

    @rule()
    def save(self) -> None:
        self.world.save()
        self.stored = set(self.kept)

    @rule()
    def restart(self) -> None:
        self.world.restart()
        self.kept = set(self.stored)

    @invariant()
    def owners_match(self) -> None:
        self.world.check()


def agreement(left: tuple[int, ...], right: tuple[int, ...]) -> int:
    room = min(len(left), len(right))
    return next((i for i in range(room) if left[i] != right[i]), room)


class ShortMachine(CacheMachine):
    """With memory for few of them, what is found is right and nothing leaks."""

    num_pages = 7
    is_exact = False


class StateMachine(CacheMachine):
    requires_state = True


class ShortStateMachine(ShortMachine):
    requires_state = True


TestAttentionOnly = CacheMachine.TestCase
TestAttentionOnly.settings = QUICK


TestAttentionOnlyShortOfMemory = ShortMachine.TestCase
TestAttentionOnlyShortOfMemory.settings = QUICK


TestWithState = StateMachine.TestCase
TestWithState.settings = QUICK


TestWithStateShortOfMemory = ShortStateMachine.TestCase
TestWithStateShortOfMemory.settings = QUICK
