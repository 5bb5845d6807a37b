"""The disk tier's files: never a wrong answer, never an exception into a request."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from cache_world import (
    FULL_FILE_BYTES,
    KEY,
    PAGE,
    PAGE_BYTES,
    page_buffer,
    page_of,
    read_page,
    state_for,
    truths,
)

from hearth.engine.cache.disk import DiskTier, Found
from hearth.engine.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator

IDS = list(range(1000, 1600))


def files(folder: Path, suffix: str = "") -> list[Path]:
    return sorted(path for path in folder.glob("*/*") if path.name.endswith(suffix))


def save_chain(tier: DiskTier, ids: list[int]) -> list[bytes]:
    """Blocks of ``ids`` behind each other; returns the parent of each, and of what would follow."""
    parents = [b""]
    for start in range(0, len(ids), PAGE):
        block = ids[start : start + PAGE]
        assert tier.save(parents[-1], block, page_buffer(block)) > 0
        parents.append(tier.chain_key(parents[-1], block))
    return parents


def load(tier: DiskTier, parent: bytes, ids: list[int]) -> list[float] | None:
    """The numbers of the longest file that begins like ``ids``."""
    found = tier.find(parent, ids[:PAGE], min(len(ids), PAGE))
    page = page_buffer([], fill=-1.0)
    if found is None or not tier.load(found, parent, page):
        return None
    return read_page(page_of(page), found.agreed)


# ---------------------------------------------------------------------------------------- one file


@pytest.mark.parametrize("count", [1, 2, 64, 127, 128])
@pytest.mark.parametrize("head_dim", [4, None])
def test_a_page_survives_the_disk(tmp_path: Path, count: int, head_dim: int | None) -> None:
    tier = DiskTier(tmp_path, replace(KEY, head_dim=head_dim))
    written = tier.save(b"", IDS[:count], page_buffer(IDS[:count], fill=5.0))
    assert [path.stat().st_size for path in files(tmp_path)] == [written]
    page = page_buffer([], fill=-1.0)
    found = tier.find(b"", IDS[:count], count)
    assert found is not None
    assert (found.ids, found.agreed) == (tuple(IDS[:count]), count)
    assert tier.load(found, b"", page)
    assert read_page(page_of(page), count) == truths(IDS[:count])
    behind = read_page(page_of(page), PAGE)[count:]
    assert set(behind) <= ({-1.0} if head_dim else {5.0})
    assert tier.usage_bytes() == written
    assert tier.num_rejected == 0


def test_files_belong_to_the_user_alone(tmp_path: Path) -> None:
    old_mask = os.umask(0)
    try:
        tier = DiskTier(tmp_path / "cache", KEY)
        tier.save(b"", IDS[:5], page_buffer(IDS[:5]))
        tier.save_state(b"", IDS[:5], state_for(IDS[:5]))
    finally:
        os.umask(old_mask)
    modes = {stat.S_IMODE(path.stat().st_mode) for path in files(tmp_path / "cache")}
    assert modes == {0o600}
    for folder in (tmp_path / "cache", *(tmp_path / "cache").iterdir()):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("name", [item.name for item in fields(KEY)])
def test_pages_of_another_key_are_not_seen(tmp_path: Path, name: str) -> None:
    value = getattr(KEY, name)
    other = replace(KEY, **{name: f"{value}x" if isinstance(value, str) else value * 2})
    if name == "num_layers":
        other = replace(other, page_floats=KEY.page_floats * 2)
    tier = DiskTier(tmp_path, KEY)
    tier.save(b"", IDS[:5], page_buffer(IDS[:5]))
    assert other.digest() != KEY.digest()
    stranger = DiskTier(tmp_path, other)
    assert stranger.find(b"", IDS[:5], 5) is None
    (source,) = files(tmp_path)
    folder = next(path for path in tmp_path.iterdir() if path != source.parent)
    shutil.copy(source, folder / source.name)
    assert stranger.find(b"", IDS[:5], 5) is None
    assert stranger.num_rejected == 1


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, KEY)
    tier.save(b"", IDS[:2], page_buffer(IDS[:2]))
    (path,) = files(tmp_path)
    data = path.read_bytes()
    for size in [*range(len(data)), len(data) + 1]:
        path.write_bytes((data + b"x")[:size])
        fresh = DiskTier(tmp_path, KEY)
        assert load(fresh, b"", IDS[:2]) is None
        assert fresh.num_rejected == 1
        assert not path.exists()


def test_every_flipped_bit_is_noticed(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, KEY)
    tier.save(b"", IDS[:2], page_buffer(IDS[:2]))
    (path,) = files(tmp_path)
    data = path.read_bytes()
    page = page_buffer([])
    for index in range(len(data)):
        for bit in range(8):
            path.write_bytes(data[:index] + bytes([data[index] ^ 1 << bit]) + data[index + 1 :])
            assert not tier.load(Found(path.name, tuple(IDS[:2]), 2), b"", page), (index, bit)
            assert not path.exists()
    path.write_bytes(data)
    assert tier.load(Found(path.name, tuple(IDS[:2]), 2), b"", page)


@pytest.mark.parametrize("size", [0, 3, 200, 400])
def test_every_truncated_state_is_noticed(tmp_path: Path, size: int) -> None:
    tier = DiskTier(tmp_path, KEY)
    tier.save_state(b"", IDS[:2], state_for(IDS[:2]))
    (path,) = files(tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[:size] if size < len(data) else data + b"x")
    assert tier.load_state(b"", IDS[:2]) is None
    assert not path.exists()


def test_every_flipped_bit_of_a_state_is_noticed(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, KEY)
    tier.save_state(b"", IDS[:2], state_for(IDS[:2]))
    (path,) = files(tmp_path)
    data = path.read_bytes()
    for index in range(len(data)):
        path.write_bytes(data[:index] + bytes([data[index] ^ 16]) + data[index + 1 :])
        assert tier.load_state(b"", IDS[:2]) is None


def test_a_file_under_another_name_is_not_believed(tmp_path: Path) -> None:
    """Same ids behind another parent, or other ids: what is in the file decides, not its name."""
    tier = DiskTier(tmp_path, KEY)
    one, two = tier.chain_key(b"", IDS[:PAGE]), tier.chain_key(b"", IDS[1 : PAGE + 1])
    for count in (10, PAGE):
        ids = IDS[200 : 200 + count]
        other = [7, *ids[1:]]
        tier.save(one, ids, page_buffer(ids))
        tier.save(two, ids, page_buffer(ids))
        tier.save(one, other, page_buffer(other))
        right, elsewhere, wrong = (
            tmp_path / tier._folder.name / tier._names.page(parent, block)
            for parent, block in [(one, ids), (two, ids), (one, other)]
        )
        for stranger in (elsewhere, wrong):
            keep = stranger.read_bytes()
            right.write_bytes(keep)
            assert not tier.load(Found(right.name, tuple(ids), count), one, page_buffer([]))
        assert load(tier, one, other) == truths(other)


def test_foreign_files_do_no_harm(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, KEY)
    folder = next(tmp_path.iterdir())
    for name in ("root-", "root-.page", "root-x-y.tail", "root-001-zz.state", "notes.txt", "-"):
        (folder / name).write_bytes(b"anything")
    (folder / "root-002-folder.tail").mkdir()
    (tmp_path / "file").write_bytes(b"1")
    assert tier.find(b"", IDS[:5], 5) is None
    assert tier.snapshots(b"", IDS[:5]) == []
    assert tier.save(b"", IDS[:5], page_buffer(IDS[:5])) > 0
    assert load(tier, b"", IDS[:5]) == truths(IDS[:5])


# ------------------------------------------------------------------------------------------- space


def test_the_capacity_holds_and_chats_used_longest_ago_go(tmp_path: Path) -> None:
    capacity = 10 * FULL_FILE_BYTES
    tier = DiskTier(tmp_path, KEY, capacity_bytes=capacity)
    chats = [[seed * 1000 + number for number in range(2 * PAGE)] for seed in range(1, 9)]
    for chat in chats:
        save_chain(tier, chat)
        assert load(tier, b"", chats[0]) is not None  # the first is used all the time
        assert tier.usage_bytes() <= capacity
    whole = [number for number, chat in enumerate(chats) if has_all(tier, chat)]
    assert whole[-3:] == [5, 6, 7]
    assert 0 in [number for number, chat in enumerate(chats) if load(tier, b"", chat)]
    assert not has_all(tier, chats[1])


def has_all(tier: DiskTier, ids: list[int]) -> bool:
    parent = b""
    for start in range(0, len(ids), PAGE):
        block = ids[start : start + PAGE]
        if load(tier, parent, block) != truths(block):
            return False
        parent = tier.chain_key(parent, block)
    return True


def test_what_is_left_of_a_chat_is_its_beginning(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, KEY, capacity_bytes=5 * FULL_FILE_BYTES)
    ids = list(range(4 * PAGE))
    parents = save_chain(tier, ids)
    other = list(range(5000, 5000 + 2 * PAGE))
    save_chain(tier, other)
    blocks = [ids[start : start + PAGE] for start in range(0, len(ids), PAGE)]
    there = [
        load(tier, parent, block) is not None
        for parent, block in zip(parents, blocks, strict=False)
    ]
    assert there == sorted(there, reverse=True)
    assert there[0]
    assert not there[-1]


def test_a_chat_larger_than_the_capacity_keeps_its_beginning(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, KEY, capacity_bytes=3 * FULL_FILE_BYTES)
    parent, sizes = b"", []
    for start in range(0, 6 * PAGE, PAGE):
        block = list(range(start, start + PAGE))
        sizes.append(tier.save(parent, block, page_buffer(block)))
        parent = tier.chain_key(parent, block)
    assert [size > 0 for size in sizes] == [True, True, True, False, False, False]
    assert has_all(tier, list(range(3 * PAGE)))
    assert tier.is_on


def test_the_capacity_is_shared_by_all_models(tmp_path: Path) -> None:
    capacity = 4 * FULL_FILE_BYTES
    first = DiskTier(tmp_path, KEY, capacity_bytes=capacity)
    save_chain(first, IDS[: 3 * PAGE])
    second = DiskTier(tmp_path, replace(KEY, weights="other"), capacity_bytes=capacity)
    save_chain(second, IDS[: 3 * PAGE])
    assert first.usage_bytes() == second.usage_bytes() <= capacity
    assert has_all(second, IDS[: 3 * PAGE])


def test_clearing_deletes_everything(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, KEY)
    save_chain(tier, IDS[:300])
    tier.save_state(b"", IDS[:5], state_for(IDS[:5]))
    tier.clear()
    assert files(tmp_path) == []
    assert tier.usage_bytes() == 0
    save_chain(tier, IDS[:300])
    assert has_all(tier, IDS[:300])


def test_what_cannot_be_deleted_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tier = DiskTier(tmp_path, KEY)
    save_chain(tier, IDS[:300])

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(MachineError, match="could not be deleted"):
        tier.clear()


# ---------------------------------------------------------------------------------- disks that fail


def test_a_floor_of_free_space_stays(tmp_path: Path) -> None:
    free = shutil.disk_usage(tmp_path).free
    tier = DiskTier(tmp_path, KEY, free_floor_bytes=2 * free)
    assert tier.save(b"", IDS[:5], page_buffer(IDS[:5])) == 0
    assert not tier.is_on
    assert tier.notice is not None
    assert "too little disk space is left" in tier.notice
    assert tier.notice.count(".") == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 kB of its own."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = shutil.which("mount")
    command = [str(mount), "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if mount is None or subprocess.run(command, capture_output=True).returncode != 0:
        pytest.skip("mounting a file system needs root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_ends_writing_with_one_sentence(small_disk: Path) -> None:
    """Without a floor: the last room may go to somebody else between the check and the write."""
    tier = DiskTier(small_disk, KEY, free_floor_bytes=-(1 << 40))
    save_chain(tier, IDS[:PAGE])
    free = shutil.disk_usage(small_disk).free
    (small_disk / "ballast").write_bytes(b"x" * (free - PAGE_BYTES // 2))
    block = IDS[200 : 200 + PAGE]
    assert tier.save(b"", block, page_buffer(block)) == 0
    assert not tier.is_on
    assert tier.notice is not None
    assert "No space left on device" in tier.notice
    assert files(small_disk, ".tmp") == []
    assert load(tier, b"", IDS[:PAGE]) == truths(IDS[:PAGE])
    assert tier.save(b"", IDS[:3], page_buffer(IDS[:3])) == 0


LIMITED = """
import resource, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from cache_world import KEY, page_buffer
from hearth.engine.cache.disk import DiskTier
tier = DiskTier(Path(sys.argv[1]), KEY)
assert tier.save(b"", [1, 2, 3], page_buffer([1, 2, 3])) > 0
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
block = list(range(128))
assert tier.save(b"", block, page_buffer(block)) == 0
assert not tier.is_on and "File too large" in tier.notice, tier.notice
assert tier.save(b"", [4, 5], page_buffer([4, 5])) == 0
assert tier.find(b"", [1, 2, 3], 3).agreed == 3
assert len(list(Path(sys.argv[1]).glob("*/*"))) == 1
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits of POSIX")
def test_a_write_that_breaks_off_leaves_nothing(tmp_path: Path) -> None:
    here = str(Path(__file__).parent)
    subprocess.run([sys.executable, "-c", LIMITED, str(tmp_path), here], check=True, timeout=60)


def test_a_folder_that_cannot_be_made_turns_the_tier_off(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    tier = DiskTier(tmp_path / "file", KEY)
    assert not tier.is_on
    assert tier.notice is not None
    assert tier.find(b"", IDS[:5], 5) is None
    assert tier.snapshots(b"", IDS[:5]) == []
    assert tier.load_state(b"", IDS[:5]) is None
    assert tier.save(b"", IDS[:5], page_buffer(IDS[:5])) == 0
    assert tier.usage_bytes() == 0


READ_ONLY = """
import os, sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from cache_world import KEY, page_buffer
from hearth.engine.cache.disk import DiskTier
if os.getuid() == 0:  # who may do everything
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
tier = DiskTier(Path(sys.argv[1]), KEY)
found = tier.find(b"", [1, 2, 3, 4], 4)
if sys.argv[3] == "read":
    assert found.agreed == 3 and tier.load(found, b"", page_buffer([]))
else:
    assert found is None
assert tier.save(b"", [4, 5], page_buffer([4, 5])) == 0
assert not tier.is_on and "Permission denied" in tier.notice, tier.notice
assert tier.find(b"", [4, 5], 2) is None
"""


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
@pytest.mark.parametrize(("mode", "expected"), [(0o555, "read"), (0o000, "nothing")])
def test_without_permission_reading_goes_on_where_it_can(mode: int, expected: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as name:  # others must be able to reach it
        root = Path(name)
        root.chmod(0o755)
        folder = root / "cache"
        tier = DiskTier(folder, KEY)
        tier.save(b"", [1, 2, 3], page_buffer([1, 2, 3]))
        for path in files(folder):
            path.chmod(0o444)
        for path in (*folder.iterdir(), folder):
            path.chmod(mode)
        here = str(Path(__file__).parent)
        command = [sys.executable, "-c", READ_ONLY, str(folder), here, expected]
        subprocess.run(command, check=True, timeout=60)
        folder.chmod(0o700)
        for path in folder.iterdir():
            path.chmod(0o700)


def test_a_folder_that_is_deleted_is_made_again(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path / "cache", KEY)
    save_chain(tier, IDS[:PAGE])
    shutil.rmtree(tmp_path / "cache")
    assert load(tier, b"", IDS[:PAGE]) is None
    assert tier.save(b"", IDS[:5], page_buffer(IDS[:5])) > 0
    assert load(tier, b"", IDS[:5]) == truths(IDS[:5])
    assert tier.is_on


# ------------------------------------------------------------------------------------ other writers

WRITER = """
import sys
sys.path.insert(0, sys.argv[2])
from pathlib import Path
from cache_world import KEY, page_buffer
from hearth.engine.cache.disk import DiskTier
tier = DiskTier(Path(sys.argv[1]), KEY)
print("ready", flush=True)
for turn in range(10**6):
    seed = turn % 50
    block = [seed * 1000 + number for number in range(128)]
    assert tier.save(b"", block, page_buffer(block)) > 0, tier.notice
"""


def writer(folder: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(folder), str(Path(__file__).parent)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    return child


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_a_killed_writer_leaves_a_readable_cache(tmp_path: Path) -> None:
    for pause in range(2):
        child = writer(tmp_path)
        want = 5 * (pause + 1) + pause
        while len(files(tmp_path, ".page")) < want:
            assert child.poll() is None
        child.send_signal(signal.SIGKILL)
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
        tier = DiskTier(tmp_path, KEY)
        for seed in range(want - 1):
            block = [seed * 1000 + number for number in range(PAGE)]
            assert load(tier, b"", block) == truths(block)
        assert tier.num_rejected == 0


def test_two_writers_and_a_reader_do_not_disturb_each_other(tmp_path: Path) -> None:
    children = [writer(tmp_path) for _ in range(2)]
    tier = DiskTier(tmp_path, KEY)
    stop = time.monotonic() + 1.0
    num_read = 0
    while time.monotonic() < stop or num_read == 0:
        for seed in range(50):
            block = [seed * 1000 + number for number in range(PAGE)]
            numbers = load(tier, b"", block)
            if numbers is not None and len(files(tmp_path, ".page")) > seed:
                num_read += numbers == truths(block)
        DiskTier(tmp_path, KEY)  # opening sweeps, but not what is being written
    assert [child.poll() for child in children] == [None, None], "a writer was disturbed"
    for child in children:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()
    assert tier.num_rejected == 0


def test_one_thread_writes_while_another_reads(tmp_path: Path) -> None:
    tier = DiskTier(tmp_path, KEY)
    chats = [[seed * 1000 + number for number in range(PAGE + 20)] for seed in range(30)]
    thread = threading.Thread(target=lambda: [save_chain(tier, chat) for chat in chats])
    thread.start()
    while thread.is_alive():
        for chat in chats:
            numbers = load(tier, b"", chat)
            assert numbers is None or numbers == truths(chat)[: len(numbers)]
    thread.join()
    assert all(load(tier, b"", chat) == truths(chat)[:PAGE] for chat in chats)
    assert tier.num_rejected == 0


def test_a_change_within_one_tick_of_the_folders_clock_is_seen(tmp_path: Path) -> None:
    tier, other = DiskTier(tmp_path, KEY), DiskTier(tmp_path, KEY)
    folder = next(tmp_path.iterdir())
    now = time.time_ns()
    os.utime(folder, ns=(now, now))
    assert tier.find(b"", IDS[:5], 5) is None
    other.save(b"", IDS[:5], page_buffer(IDS[:5]))
    os.utime(folder, ns=(now, now))
    assert tier.find(b"", IDS[:5], 5) is not None


def test_what_killed_writers_left_is_swept_when_it_is_old(tmp_path: Path) -> None:
    DiskTier(tmp_path, KEY)
    folder = next(tmp_path.iterdir())
    young, old = folder / "a.1234.tmp", folder / "b.5678.tmp"
    for path in (young, old):
        path.write_bytes(b"half")
    hour_ago = time.time() - 3600
    os.utime(old, (hour_ago, hour_ago))
    DiskTier(tmp_path, KEY)
    assert young.exists()
    assert not old.exists()


def test_a_page_takes_the_space_that_was_planned() -> None:
    assert KEY.page_floats * 4 == PAGE_BYTES
