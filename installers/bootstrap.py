"""Create or refresh ``.venv`` from the hashed locks; run by ``make`` with the system's Python.

Standard library only. A stamp of the lock files makes the second run instant. torch is chosen by
the machine: the CUDA build where an NVIDIA driver answers, else the CPU build.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCKS = ROOT / "installers" / "locks"
VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
PACKAGES = ("app", "assets", "engine", "kernels", "ui")
TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
OLDEST_PYTHON = (3, 11)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--dev", action="store_true", help="also install what the tests need")
    parser.add_argument("--torch", choices=("auto", "cpu", "cuda"), default="auto")
    options = parser.parse_args()
    if sys.version_info < OLDEST_PYTHON:
        print("Hearth needs Python 3.11 or newer: install it and run 'make PYTHON=python3.11 run'.")
        return 1
    build = options.torch if options.torch != "auto" else ("cuda" if has_nvidia() else "cpu")
    lock = LOCKS / ("dev.txt" if options.dev else "runtime.txt")
    stamp = stamp_of(lock, LOCKS / f"torch-{build}.txt")
    if is_current(stamp, dev=options.dev):
        return 0
    create_venv()
    install_torch(build)
    print("Installing Hearth's libraries …", flush=True)
    pip("--require-hashes", "--requirement", str(lock))
    pip("--no-deps", "--no-build-isolation", "--editable", str(ROOT))
    link_packages()
    stamp_file(dev=options.dev).write_text(stamp, encoding="utf-8")
    if options.dev:  # the development lock holds everything of the runtime lock
        runtime_stamp = stamp_of(LOCKS / "runtime.txt", LOCKS / f"torch-{build}.txt")
        stamp_file(dev=False).write_text(runtime_stamp, encoding="utf-8")
    return 0


def has_nvidia() -> bool:
    """True when an NVIDIA driver answers on this machine."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return False
    return subprocess.run([tool, "-L"], capture_output=True, check=False).returncode == 0


def stamp_of(*files: Path) -> str:
    digest = hashlib.sha256(sys.version.encode())
    for file in (*files, ROOT / "pyproject.toml"):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def stamp_file(*, dev: bool) -> Path:
    return VENV / (".ready-dev" if dev else ".ready")


def is_current(stamp: str, *, dev: bool) -> bool:
    file = stamp_file(dev=dev)
    return PYTHON.exists() and file.exists() and file.read_text(encoding="utf-8") == stamp


def create_venv() -> None:
    if PYTHON.exists():
        return
    print("Creating .venv …", flush=True)
    try:
        venv.EnvBuilder(with_pip=True, clear=VENV.exists()).create(VENV)
    except subprocess.CalledProcessError:
        shutil.rmtree(VENV, ignore_errors=True)
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        sys.exit(f"Python has no venv module: run 'sudo apt-get install python{version}-venv'.")


def install_torch(build: str) -> None:
    """Install the chosen build of torch. The CPU build is looked for in pip's local folders
    (``find-links``) first, then at PyTorch's own index; where neither has the file for this
    Python, the CUDA build from PyPI works as well, only larger."""
    print(f"Installing PyTorch ({build} build) …", flush=True)
    if build == "cpu":
        lock = ("--no-deps", "--require-hashes", "--requirement", str(LOCKS / "torch-cpu.txt"))
        for source in (("--no-index",), ("--index-url", TORCH_CPU_INDEX)):
            if pip(*source, *lock, check=False):
                return
        print("No CPU build for this Python here; taking the CUDA build from PyPI instead.")
    pip("--no-deps", "--require-hashes", "--requirement", str(LOCKS / "torch-cuda.txt"))


def pip(*arguments: str, check: bool = True) -> bool:
    """Run ``pip install``; True on success. With ``check`` a failure ends the program."""
    command = [str(PYTHON), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    stderr = None if check else subprocess.DEVNULL
    done = subprocess.run([*command, *arguments], check=False, stderr=stderr)
    if check and done.returncode != 0:
        sys.exit("The installation failed (see above). Check the network and run make again.")
    return done.returncode == 0


def link_packages() -> None:
    """``.venv/links/hearth/*``: the import names as folders, for mypy and import contracts."""
    links = VENV / "links" / "hearth"
    links.mkdir(parents=True, exist_ok=True)
    for name in PACKAGES:
        link = links / name
        if not link.is_symlink():
            link.symlink_to(ROOT / name, target_is_directory=True)


if __name__ == "__main__":
    sys.exit(main())
