"""llama.cpp on the starter's weights in float32: the same logits to 1e-3 (seen: 1.7e-6).

On the quantised file llama.cpp rounds activations to 8 bits, so the weights are written out in
float32 first; its attention cache is float32 too. Runs where llama_cpp is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from hearth.engine.bench import corpus
from hearth.engine.check.oracle import MAX_RELATIVE_ERROR, prompt_logits
from hearth.engine.protocol import Prompt, Turn
from hearth.engine.text.prompt import load_text
from hearth.engine.weights.model_files import open_model

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.model, pytest.mark.slow]
FLOAT32 = 0  # ggml's type id


def write_float32(source: Path, target: Path) -> None:
    """The same file with every tensor dequantised by the gguf library."""
    import gguf

    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "llama")
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        if field.types[0] == gguf.GGUFValueType.ARRAY:
            writer.add_array(name, field.contents())
        else:
            writer.add_key_value(name, field.contents(), field.types[0])
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_logits_equal_llama_cpp(starter_model: Path, tmp_path: Path) -> None:
    llama_cpp = pytest.importorskip("llama_cpp")
    write_float32(starter_model, tmp_path / "float32.gguf")
    files = open_model(starter_model)
    text = load_text(files.text)
    peer = llama_cpp.Llama(
        str(tmp_path / "float32.gguf"), n_ctx=1024, logits_all=True, verbose=False,
        type_k=FLOAT32, type_v=FLOAT32,
    )  # fmt: skip
    for prompt in corpus.prompts()[18:24]:
        ids = text.build(Prompt(turns=(Turn("user", prompt),))).ids
        peer.reset()
        peer.eval(list(ids))
        expected = peer.scores[: len(ids)]
        ours = prompt_logits(files, ids).numpy()
        error = np.linalg.norm(ours - expected) / np.linalg.norm(expected)
        assert error < MAX_RELATIVE_ERROR
        assert (ours.argmax(1) == expected.argmax(1)).all()
