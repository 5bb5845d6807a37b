"""Host memory of opening a model, measured in a process of its own on a real load.

Counted are anonymous pages: those of the mapped file are the system's to drop, and the highest
resident size that the system remembers of a process has them and its parent's.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
import torch
from tiny_models import hf_config, layer_shapes, write_folder

if TYPE_CHECKING:
    from pathlib import Path

ROWS, HIDDEN = 40_000, 1024  # a head of 82 MB in bf16, far more than the rest
CONSTANT_BYTES = 64 << 20  # slabs, and what the allocator keeps of them
CHILD = """
import json, sys, threading
from pathlib import Path
from hearth.engine.model.weights import load_weights
from hearth.engine.weights.model_files import open_model
from hearth.engine.weights.requantise import Requantise, requantised

def anonymous_bytes():
    with open("/proc/self/status") as status:
        line = next(line for line in status if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10

highest, is_done = 0, threading.Event()

def watch():
    global highest
    while not is_done.wait(0.001):
        highest = max(highest, anonymous_bytes())

kind = None if sys.argv[2] == "keep" else sys.argv[2]
files = requantised(open_model(Path(sys.argv[1])), Requantise(head=kind, embedding=kind))
before = anonymous_bytes()
watcher = threading.Thread(target=watch)
watcher.start()
loaded = load_weights(files, lambda done, total: None)
is_done.set()
watcher.join()
print(json.dumps({
    "held": loaded.output.num_bytes + loaded.token_embd.num_bytes,
    "peak": highest - before,
    "after": anonymous_bytes() - before,
    "largest": max(entry.num_bytes for entry in files.tensors.values()),
}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One small layer between wide embeddings and a wide head."""
    sizes = {"hidden_size": HIDDEN, "head_dim": 16, "num_hidden_layers": 1, "vocab_size": ROWS}
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (ROWS, HIDDEN),
        "lm_head.weight": (ROWS, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for name, shape in layer_shapes("llama").items():
        is_output = name.endswith(("o_proj.weight", "down_proj.weight", "layernorm.weight"))
        shape = (HIDDEN, *shape[1:]) if is_output else (shape[0], HIDDEN)
        shapes[f"model.layers.0.{name}"] = shape
    tensors = {name: torch.randn(shape) for name, shape in shapes.items()}
    config = hf_config("llama", tie_word_embeddings=False, **sizes)
    path = tmp_path_factory.mktemp("wide") / "model"
    return write_folder(path, config, tensors, dtype=torch.bfloat16)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("kind", ["int8", "keep"])
def test_opening_takes_the_packed_weights_and_a_constant(folder: Path, kind: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(folder), kind],
        capture_output=True,
        text=True,
        check=True,
    )
    figures = json.loads(done.stdout)
    sys.stdout.write(f"{kind}: {figures}\n")
    assert figures["peak"] <= figures["held"] + CONSTANT_BYTES
