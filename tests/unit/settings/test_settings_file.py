"""Settings: comments stay, impossible values are named, a broken file never stops the start."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hearth.app.settings import Settings, SettingsFile
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from pathlib import Path

WRITTEN_BY_HAND = """# mine
[appearance]
theme = "dark"   # at night
future = 7

[unheard]
of = [1, 2]
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "settings.toml"


def test_without_a_file_there_are_defaults(path: Path) -> None:
    file = SettingsFile(path)
    assert file.values == Settings()
    assert file.notices == []
    assert not path.exists()


def test_comments_and_unknown_keys_stay(path: Path) -> None:
    path.write_text(WRITTEN_BY_HAND)
    file = SettingsFile(path)
    assert file.values.appearance.theme == "dark"
    file.values.appearance.zoom_percent = 150
    file.values.sampling.seed = 5
    file.save()
    text = path.read_text()
    for kept in ("# mine", 'theme = "dark"   # at night', "future = 7", "of = [1, 2]"):
        assert kept in text
    again = SettingsFile(path)
    assert again.values == file.values
    assert again.notices == []
    again.values.sampling.seed = None
    again.save()
    assert SettingsFile(path).values.sampling.seed is None


def test_no_limit_is_remembered(path: Path) -> None:
    settings = SettingsFile(path)
    settings.values.sampling.max_tokens = settings.values.thinking.max_tokens = 0
    settings.save()
    again = SettingsFile(path).values
    assert (again.sampling.max_tokens, again.thinking.max_tokens) == (0, 0)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each.name for each in path.parent.iterdir()] == ["settings.toml"]


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("[appearance]\nzoom_percent = 5", "appearance.zoom_percent"),
        ("[appearance]\nzoom_percent = nan", "appearance.zoom_percent"),
        ("[appearance]\ntheme = 'pink'", "appearance.theme"),
        ("[sampling]\ntemperature = 'warm'", "sampling.temperature"),
        ("[speed]\ncache_gigabytes = inf", "speed.cache_gigabytes"),
        ("[model]\npath = 3", "model.path"),
        ("sampling = 3", "sampling"),
        ("appearance = [1]", "appearance"),
        ("[window]\nwidth = 1979-05-27", "window.width"),
    ],
)
def test_one_impossible_value_costs_only_itself(path: Path, line: str, key: str) -> None:
    path.write_text(f"{line}\n[unheard]\nof = true\n")
    file = SettingsFile(path)
    assert file.values == Settings()
    (notice,) = file.notices
    assert key in notice
    file.values.sampling.temperature = 0.25
    file.save()
    again = SettingsFile(path)
    assert again.notices == []
    assert again.values.sampling.temperature == 0.25
    assert "of = true" in path.read_text()


@pytest.mark.parametrize(
    "content", [b"\0" * 500, b"[appearance\ntheme=", b"\xff\xfe\x00", b"a = 1\na = 2\n"]
)
def test_a_broken_file_is_kept_under_another_name(path: Path, content: bytes) -> None:
    for number in range(1, 3):  # twice within a second: neither may replace the other
        path.write_bytes(content)
        file = SettingsFile(path)
        assert file.values == Settings()
        kept = list(path.parent.glob("settings.toml.corrupt-*"))
        assert [each.read_bytes() for each in kept] == [content] * number
        assert any(each.name in file.notices[0] for each in kept)
        file.save()
        assert SettingsFile(path).notices == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=80)
@given(content=st.binary(max_size=40) | st.text(max_size=60).map(lambda text: text.encode()))
def test_any_content_lets_the_program_start(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    file = SettingsFile(path)
    file.values.appearance.theme = "light"
    file.save()
    assert SettingsFile(path).values.appearance.theme == "light"


def test_a_path_that_is_no_utf8_is_kept(path: Path) -> None:
    file = SettingsFile(path)
    file.values.model.path = "/models/caf\udce9.gguf"
    file.save()
    assert SettingsFile(path).values.model.path == "/models/caf\udce9.gguf"


def test_a_folder_that_is_gone_is_made_again(tmp_path: Path) -> None:
    file = SettingsFile(tmp_path / "gone" / "settings.toml")
    file.save()
    assert SettingsFile(tmp_path / "gone" / "settings.toml").values == Settings()


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MachineError, match="cannot be written"):
        SettingsFile(tmp_path / "file" / "settings.toml").save()
