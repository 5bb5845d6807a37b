"""A tiny random model with a byte-level vocabulary, and schedulers that are stepped by hand."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from gguf import GGUFWriter

from hearth.engine.cache.pages import PageArena
from hearth.engine.cache.prefix import PrefixCache
from hearth.engine.draft.depth import StepTimes
from hearth.engine.model.decoder import Decoder, Limits, Weights, load_weights
from hearth.engine.protocol import (
    Drafting,
    Event,
    Failed,
    Finished,
    FinishReason,
    Prompt,
    Reading,
    Request,
    Tokens,
    Usage,
)
from hearth.engine.rows import Model
from hearth.engine.scheduler import Scheduler
from hearth.engine.text.prompt import TextModel, load_text
from hearth.engine.weights.model_files import open_model

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hearth.engine.cache.disk import DiskTier

HIDDEN, FFN, LAYERS, HEADS, KV_HEADS, HEAD_DIM = 64, 128, 2, 4, 2, 16
CONTEXT = 1024
WORDS = ["th", "the"]  # tokens of several letters
ROLES = "<|im_start|>", "<|im_end|>"


def byte_names() -> list[str]:
    """GPT-2's names of the 256 bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    rest = itertools.count(256)
    return [chr(b) if b in printable else chr(next(rest)) for b in range(256)]


TOKENS = [*byte_names(), *WORDS, *ROLES]
START_ID, END_ID = len(TOKENS) - 2, len(TOKENS) - 1


def tensors(seed: int) -> dict[str, np.ndarray]:
    """Random weights large enough that what was read decides what comes."""
    random = np.random.default_rng(seed)

    def matrix(rows: int, columns: int, gain: float = 1.0) -> np.ndarray:
        scale = gain / columns**0.5
        return (random.standard_normal((rows, columns)) * scale).astype(np.float32)

    result = {
        "token_embd.weight": matrix(len(TOKENS), HIDDEN, 8.0),
        "output.weight": matrix(len(TOKENS), HIDDEN, 3.0),
        "output_norm.weight": np.ones(HIDDEN, dtype=np.float32),
    }
    for layer in range(LAYERS):
        inner = {
            "attn_norm": np.ones(HIDDEN, dtype=np.float32),
            "attn_q": matrix(HEADS * HEAD_DIM, HIDDEN, 2.0),
            "attn_k": matrix(KV_HEADS * HEAD_DIM, HIDDEN, 2.0),
            "attn_v": matrix(KV_HEADS * HEAD_DIM, HIDDEN, 2.0),
            "attn_output": matrix(HIDDEN, HEADS * HEAD_DIM, 2.0),
            "ffn_norm": np.ones(HIDDEN, dtype=np.float32),
            "ffn_gate": matrix(FFN, HIDDEN, 2.0),
            "ffn_up": matrix(FFN, HIDDEN, 2.0),
            "ffn_down": matrix(HIDDEN, FFN, 2.0),
        }
        result |= {f"blk.{layer}.{name}.weight": value for name, value in inner.items()}
    return result


def write_model(path: Path, seed: int = 0, *, context: int = CONTEXT) -> Path:
    writer = GGUFWriter(path, "llama")
    writer.add_name("Tiny")
    writer.add_block_count(LAYERS)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FFN)
    writer.add_context_length(context)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * (len(TOKENS) - 2) + [3, 3])
    writer.add_token_merges(["t h", "th e"])
    writer.add_eos_token_id(END_ID)
    for name, value in tensors(seed).items():
        writer.add_tensor(name, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@dataclass(frozen=True)
class Loaded:
    """What is shared by all schedulers of a test session."""

    weights: Weights
    text: TextModel
    state_dtype: str = "float32"

    @classmethod
    def open(cls, path: Path) -> Loaded:
        files = open_model(path)
        return cls(load_weights(files, lambda done, total: None), load_text(files.text))

    def model(
        self,
        *,
        num_pages: int = 64,
        context: int = CONTEXT,
        chunk: int = 64,
        max_requests: int = 8,
        disk: DiskTier | None = None,
    ) -> Model:
        """A model with a cache of its own."""
        config = self.weights.config
        arena = PageArena(num_pages, config.num_attention_layers, Decoder.page_floats(config))
        rows = 16 * max_requests
        limits = Limits(chunk + rows, rows, max_requests, context, self.state_dtype)
        decoder = Decoder(self.weights, limits, arena.pages)
        return Model(
            decoder=decoder,
            arena=arena,
            cache=PrefixCache(arena, disk=disk, requires_state=decoder.needs_state),
            text=self.text,
            times=StepTimes((1, 16), (1.0, 2.0)),
            context_length=context,
            prefill_chunk=chunk,
        )


@dataclass
class Reply:
    """Everything that was said about one request."""

    reading: list[Reading] = field(default_factory=list)
    tokens: list[Tokens] = field(default_factory=list)
    finished: Finished | None = None
    failed: Failed | None = None

    @property
    def ids(self) -> tuple[int, ...]:
        assert self.finished is not None, self.failed
        return self.finished.token_ids

    @property
    def text(self) -> str:
        assert self.finished is not None, self.failed
        return self.finished.text

    @property
    def reason(self) -> FinishReason:
        assert self.finished is not None, self.failed
        return self.finished.reason

    @property
    def usage(self) -> Usage:
        assert self.finished is not None, self.failed
        return self.finished.usage

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        assert self.reading[0].prompt_ids is not None, "the first Reading carries them"
        return self.reading[0].prompt_ids


class Runner:
    """A scheduler stepped by the test; collects events per request."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.replies: dict[str, Reply] = {}
        self.scheduler = Scheduler(model, self._take)
        self._numbers = itertools.count()

    def _take(self, event: Event) -> None:
        assert isinstance(event, Reading | Tokens | Finished | Failed)
        reply = self.replies[event.request_id]
        assert reply.finished is None, "nothing comes after the end"
        assert reply.failed is None, "nothing comes after the end"
        match event:
            case Reading():
                reply.reading.append(event)
            case Tokens():
                reply.tokens.append(event)
            case Finished():
                reply.finished = event
            case Failed():
                reply.failed = event

    def submit(self, prompt: Prompt | list[int], **options: Any) -> str:
        """Submit a prompt (or raw ids); returns the request's id."""
        if isinstance(prompt, list):
            prompt = Prompt(raw_ids=tuple(prompt))
        options = {"max_tokens": 40, "drafting": Drafting.OFF, "ignore_end": True} | options
        request = Request(id=f"r{next(self._numbers)}", prompt=prompt, **options)
        self.replies[request.id] = Reply()
        self.scheduler.submit(request)
        return request.id

    def step(self, *, until: Callable[[], bool] | None = None) -> None:
        """Steps until nothing is left to do, or ``until`` holds."""
        for _ in range(5000):
            if self.scheduler.is_idle or (until is not None and until()):
                return
            assert self.scheduler.step(), "starved although nobody writes"
        raise AssertionError("the scheduler does not come to an end")

    def run(self, prompt: Prompt | list[int], **options: Any) -> Reply:
        """One request alone."""
        name = self.submit(prompt, **options)
        self.step()
        self.check()
        return self.replies[name]

    def check(self) -> None:
        """With nothing running, exactly the cache's tree owns pages."""
        assert self.scheduler.is_idle
        self.model.arena.check(self.model.cache.pages())
        for reply in self.replies.values():
            if reply.finished is not None:
                assert "".join(event.text for event in reply.tokens) == reply.finished.text


def prompt_ids(seed: int, count: int) -> list[int]:
    """Random ordinary tokens."""
    return np.random.default_rng(seed).integers(0, 256, count).tolist()


def with_end(loaded: Loaded, *end_ids: int) -> Loaded:
    """The same model with other tokens that end a turn."""
    import copy

    vocabulary = copy.copy(loaded.text.vocabulary)
    vocabulary.end_ids = frozenset(end_ids)
    return replace(loaded, text=TextModel(vocabulary, None))
