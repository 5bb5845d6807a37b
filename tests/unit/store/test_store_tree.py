"""The tree functions are total: they answer for any links, damaged ones included."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from hearth.app.chats import tree

NAMES = [f"m{number}" for number in range(12)]
LINKS = st.lists(
    st.tuples(st.sampled_from(NAMES), st.none() | st.sampled_from([*NAMES, "gone"])),
    unique_by=lambda link: link[0],
).map(dict)
FORESTS = st.lists(st.integers(min_value=-1, max_value=30), max_size=40).map(
    lambda choices: {
        f"m{number}": f"m{choice % number}" if choice >= 0 and number else None
        for number, choice in enumerate(choices)
    }
)
NAME = st.sampled_from([*NAMES, "gone"])


@given(LINKS, NAME)
def test_any_links_have_an_answer(links: dict[str, str | None], name: str) -> None:
    path = tree.path(links, name)
    assert len(set(path)) == len(path)
    assert (path[-1:] == [name]) == (name in links)
    assert all(tree.parent(links, child) == parent for parent, child in pairwise(path))
    assert (name in tree.siblings(links, name)) == (name in links)
    assert set(tree.children(links, name)) <= set(links)
    assert tree.leaf_below(links, name) in {*links, name}
    assert tree.newest(links) == (list(links)[-1] if links else None)


@given(LINKS)
def test_versions_are_the_siblings_of_every_message(links: dict[str, str | None]) -> None:
    versions = tree.versions(links)
    assert {name: tree.siblings(links, name) for name in links} == versions
    groups = tree.children_by_parent(links)
    assert sorted(name for group in groups.values() for name in group) == sorted(links)


@given(FORESTS)
def test_a_sound_tree_is_walked_whole(links: dict[str, str | None]) -> None:
    order = list(links)
    for name in links:
        path = tree.path(links, name)
        assert links[path[0]] is None
        leaf = tree.leaf_below(links, name)
        assert name in tree.path(links, leaf)
        assert tree.children(links, leaf) == []
        below = [each for each in order if name in tree.path(links, each)]
        ends = [each for each in below if not tree.children(links, each)]
        assert leaf == ends[-1]


def test_a_circle_is_cut() -> None:
    links: dict[str, str | None] = {"a": "c", "b": "a", "c": "b"}
    assert tree.path(links, "b") == ["c", "a", "b"]
    assert tree.leaf_below(links, "a") == "c"


def test_a_missing_parent_makes_a_root() -> None:
    links: dict[str, str | None] = {"a": "gone", "b": "a", "c": None}
    assert tree.path(links, "b") == ["a", "b"]
    assert tree.siblings(links, "a") == ["a", "c"]
