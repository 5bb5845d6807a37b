"""Which models are at hand, and what removing one means."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hearth.app.models.catalogue import STARTER
from hearth.app.models.registry import ModelRegistry
from hearth.engine.errors import UserError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def registry(tmp_path: Path) -> ModelRegistry:
    folder = tmp_path / "models"
    folder.mkdir()
    return ModelRegistry(folder)


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    path = tmp_path / "other" / "Tiny.gguf"
    path.parent.mkdir()
    path.write_bytes(b"GGUF")
    return path


def test_an_import_is_a_link_and_removing_it_keeps_the_file(
    registry: ModelRegistry, elsewhere: Path
) -> None:
    assert registry.add(elsewhere).name == "Tiny"
    assert [(m.name, m.is_own) for m in registry.models()] == [("Tiny", False)]
    assert registry.find("Tiny").path == elsewhere
    registry.remove("Tiny")
    assert registry.models() == []
    assert elsewhere.exists()


def test_two_models_of_one_name_are_told_apart(registry: ModelRegistry, elsewhere: Path) -> None:
    twin = elsewhere.parent.parent / "Tiny.gguf"
    twin.write_bytes(b"GGUF")
    assert registry.add(elsewhere).name == "Tiny"
    assert registry.add(elsewhere).name == "Tiny"
    assert registry.add(twin).name == "Tiny-2"
    assert {model.path for model in registry.models()} == {elsewhere, twin}


def test_dots_in_a_folders_name_stay(registry: ModelRegistry, tmp_path: Path) -> None:
    folder = tmp_path / "Qwen2.5-0.5B"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"12345")
    model = registry.add(folder)
    assert (model.name, model.num_bytes) == ("Qwen2.5-0.5B", 5)


def test_removing_an_own_model_deletes_it(registry: ModelRegistry) -> None:
    own = registry.folder / STARTER.file_name
    own.write_bytes(b"GGUF")
    assert registry.default("") == own
    assert registry.remove("starter").is_own
    assert not own.exists()


def test_a_path_that_was_never_imported_is_not_removed(
    registry: ModelRegistry, elsewhere: Path
) -> None:
    assert registry.find(str(elsewhere)).path == elsewhere
    with pytest.raises(UserError, match="no model"):
        registry.remove(str(elsewhere))


def test_a_model_on_an_unplugged_drive_is_known_and_can_be_forgotten(
    registry: ModelRegistry, elsewhere: Path
) -> None:
    registry.add(elsewhere)
    elsewhere.unlink()
    assert registry.models() == []
    assert registry.missing() == [("Tiny", elsewhere)]
    registry.remove("Tiny")
    assert registry.missing() == []


@pytest.mark.parametrize("damaged", ["", "[1]", "{", "\x00"])
def test_a_damaged_list_is_kept_beside_the_new_one(
    registry: ModelRegistry, elsewhere: Path, damaged: str
) -> None:
    (registry.folder / "imported.json").write_text(damaged)
    assert registry.models() == []
    registry.add(elsewhere)
    assert [model.name for model in registry.models()] == ["Tiny"]
    (kept,) = registry.folder.glob("imported.json.corrupt-*")
    assert kept.read_text() == damaged


def test_the_preferred_model_comes_first_when_it_exists(
    registry: ModelRegistry, elsewhere: Path
) -> None:
    assert registry.default("") is None
    assert registry.default(str(elsewhere)) == elsewhere
    assert registry.default("/nowhere.gguf") is None
    registry.add(elsewhere)
    assert registry.default("/nowhere.gguf") == elsewhere
