"""Write the lock files of this folder anew: ``python installers/locks/update.py`` (needs uv).

One resolution for all Python versions and platforms, then split: torch comes in two builds whose
dependencies differ (the CUDA build brings triton and the NVIDIA libraries), so it has lock files
of its own and everything else is shared.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TORCH = "2.13.0"  # a hard pair with triton 3.7.1
# The CPU build is not on PyPI; its files carry a local version. One hash per Python that we tested.
TORCH_CPU_HASHES = {"cp311": "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b"}
CUDA_ONLY = re.compile(r"^(torch|triton|nvidia-(?!ml-py)[a-z0-9-]+|cuda-[a-z0-9-]+)==")
HEADER = "# Written by installers/locks/update.py; do not edit.\n"


def resolve(*extras: str) -> list[str]:
    """Requirement blocks (one per package, hashes included) for the project with ``extras``."""
    command = ["uv", "pip", "compile", "--universal", "--python-version", "3.11", "--quiet"]
    command += ["--generate-hashes", "--no-annotate", "--no-header", "-c", "-"]
    command += [argument for extra in extras for argument in ("--extra", extra)]
    result = subprocess.run(
        [*command, str(ROOT / "pyproject.toml")],
        input=f"torch=={TORCH}\n",
        text=True,
        check=True,
        stdout=subprocess.PIPE,
    )
    return [block + "\n" for block in re.split(r"\n(?=[A-Za-z0-9])", result.stdout.strip())]


def write(name: str, blocks: list[str]) -> None:
    (HERE / name).write_text(HEADER + "".join(blocks), encoding="utf-8")


def main() -> None:
    runtime = resolve("ui")
    everything = resolve("ui", "dev")
    write("runtime.txt", [block for block in runtime if not CUDA_ONLY.match(block)])
    write("dev.txt", [block for block in everything if not CUDA_ONLY.match(block)])
    write("torch-cuda.txt", [block for block in runtime if CUDA_ONLY.match(block)])
    hashes = "".join(f" \\\n    --hash=sha256:{value}" for value in TORCH_CPU_HASHES.values())
    write("torch-cpu.txt", [f"torch=={TORCH}{hashes}\n"])


if __name__ == "__main__":
    main()
