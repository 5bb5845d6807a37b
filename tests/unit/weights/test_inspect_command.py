"""``hearth models inspect`` on tiny models: figures in text and JSON, refusals, no weights read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tiny_models import gguf_parts, write_folder, write_gguf

from hearth.app.cli import inspect
from hearth.app.cli.root import build_parser
from hearth.app.models.plans import Plans
from hearth.app.profile import Profile
from hearth.app.settings import WideWeights
from hearth.engine.errors import UserError
from hearth.engine.memory import KvFormat, MemoryWish, StateFormat
from hearth.engine.weights.entries import TensorEntry

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def profile(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Profile]:
    monkeypatch.setenv("HEARTH_HOME", str(tmp_path / "home"))
    with Profile.open(temporary=False) as opened:
        yield opened


@pytest.fixture(params=["gguf", "folder"])
def tiny(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    if request.param == "folder":
        return write_folder(tmp_path / "tiny")
    return write_gguf(tmp_path / "tiny.gguf", gguf_parts())


def run(profile: Profile, *arguments: str) -> int:
    options = build_parser().parse_args(["models", "inspect", *arguments])
    return inspect.inspect_model(profile, options)


def data(profile: Profile, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    code = run(profile, *arguments, "--json")
    parsed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert code == (0 if parsed["memory"]["fits"] else 1)
    return parsed


def test_the_figures_add_up(
    profile: Profile, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = data(profile, capsys, str(tiny), "--card", "8GB")["memory"]
    assert memory["total_bytes"] == 8 << 30
    assert sum(memory["parts"].values()) == memory["needed_bytes"]
    assert memory["largest_context"] == memory["context"] == memory["trained_context"] == 512
    assert memory["bytes_per_token"] == {"bf16": 256, "fp8": 128, "int8": 144}


def test_no_weights_are_read(profile: Profile, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: TensorEntry) -> None:
        raise AssertionError(f"{self.name} was read")

    monkeypatch.setattr(TensorEntry, "packed", refuse)
    monkeypatch.setattr(TensorEntry, "values", refuse)
    assert run(profile, str(tiny), "--card", "8GB") == 0


def test_text_and_json_say_the_same(
    profile: Profile, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (str(tiny), "--card", "RTX 4090", "--kv", "int8", "--context", "200")
    memory = data(profile, capsys, *arguments)["memory"]
    assert run(profile, *arguments) == 0
    text = capsys.readouterr().out
    assert "RTX 4090: 23.52 GiB can be used" in text
    desktop = f"{memory['parts']['desktop'] / (1 << 30):.2f} GiB"
    assert any(line.split("  ")[0] == "Left for the desktop" and desktop in line
               for line in text.splitlines())  # fmt: skip
    assert "200 tokens fit; at most 512 would." in text
    assert memory["kv"] == "int8"


def test_the_processors_memory(
    profile: Profile, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = data(profile, capsys, str(tiny), "--card", "cpu")["memory"]
    assert memory["card"] == "this machine's memory"
    assert memory["bytes_per_token"] == {"float32": 512}
    assert "driver" not in memory["parts"]


def test_what_cannot_be_is_refused(
    profile: Profile, tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(profile, str(tiny), "--card", "8GB", "--context", "513") == 1
    assert capsys.readouterr().err.endswith("Choose at most 512 tokens.\n")
    with pytest.raises(UserError, match="There is no card Voodoo"):
        run(profile, str(tiny), "--card", "Voodoo")
    with pytest.raises(UserError, match="On the processor"):
        run(profile, str(tiny), "--card", "cpu", "--kv", "fp8")


@pytest.mark.parametrize(
    ("share", "cells"),
    [(0.0, ""), (1e-9, "▏"), (0.5, "█" * 20), (1.0, "█" * 40), (0.5 / 40, "▌")],
)
def test_bars(share: float, cells: str) -> None:
    assert inspect.bar(share) == cells


def test_the_window_reads_a_models_headers_once(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans = Plans(WideWeights())
    wish = MemoryWish(kv=KvFormat.FP8, state=StateFormat.FP16)
    first = plans.plan(tiny, "8GB", wish)
    monkeypatch.setattr("hearth.app.compose.open_headers", None)
    assert plans.plan(tiny, "8GB", wish) == first
    assert plans.plan(tiny, "16GB", wish).available_bytes == 2 * first.available_bytes


def test_a_published_shape_is_planned_without_a_file(
    profile: Profile, capsys: pytest.CaptureFixture[str]
) -> None:
    shape = ("--shape", "qwen3.8-27b", "--format", "w4a16", "--card", "24GB")
    memory = data(profile, capsys, *shape)["memory"]
    assert memory["bytes_per_token"]["bf16"] == 68 << 10
    assert memory["state_bytes"] == pytest.approx(146.8 * (1 << 20), rel=0.001)
    assert 65_536 <= memory["largest_context"] <= 95_000
    assert memory["requantised"] == ["mtp"]
    kept = data(profile, capsys, *shape, "--keep-bf16")["memory"]
    assert kept["parts"]["mtp"] > 1.9 * memory["parts"]["mtp"]


@pytest.mark.parametrize("arguments", [(), ("starter", "--shape", "tiny"), ("x", "--format", "y")])
def test_either_a_model_or_a_shape(profile: Profile, arguments: tuple[str, ...]) -> None:
    with pytest.raises(UserError, match=r"named|own format"):
        run(profile, *arguments)
