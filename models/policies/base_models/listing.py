"""The table of base models: those of the catalogue, and others that were converted on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from models.policies.base_models.catalogue import CATALOGUE, CatalogueEntry
from models.policies.base_models.source import BaseModelSource, read_source
from models.policies.base_models.store import is_stored, store_folder, stored_at

TITLES = ("name", "architecture", "parameters", "dtype", "size", "licence", "source", "here")


@dataclass(frozen=True)
class BaseModelRow:
    """A row of the table of base models."""

    name: str
    architecture: str
    parameters: int
    dtype: str
    bytes: int
    """Size on disk if present, otherwise of the download."""
    licence: str
    source: str
    present: bool


def listing() -> list[BaseModelRow]:
    """Collect the rows of the table: the catalogue first, then other models by name."""
    known = {entry.gguf_sha256 for entry in CATALOGUE.values()}
    folder = store_folder()
    others = (
        sorted(it for it in folder.iterdir() if it.name not in known and is_stored(it.name)) if folder.is_dir() else []
    )
    sources = [(it, source) for it in others if (source := read_source(it)) is not None]
    return [
        *(_of_entry(entry) for entry in CATALOGUE.values()),
        *(_of_source(place, source) for place, source in sorted(sources, key=lambda pair: pair[1].name)),
    ]


def as_text(rows: Sequence[BaseModelRow]) -> str:
    """Format the rows as a table."""
    table = [
        TITLES,
        *(
            (
                row.name,
                row.architecture,
                f"{row.parameters:,}",
                row.dtype,
                f"{row.bytes / 1e6:,.0f} MB",
                row.licence or "not stated",
                row.source,
                "yes" if row.present else f"no: rewardflow base add {row.name}",
            )
            for row in rows
        ),
    ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
    )


def _of_entry(entry: CatalogueEntry) -> BaseModelRow:
    present = is_stored(entry.gguf_sha256)
    return BaseModelRow(
        entry.name,
        entry.architecture,
        entry.parameters,
        entry.dtype,
        _bytes(stored_at(entry.gguf_sha256)) if present else entry.wheel_bytes,
        entry.licence,
        f"{entry.package} {entry.version}, {entry.quantisation} GGUF",
        present,
    )


def _of_source(folder: Path, source: BaseModelSource) -> BaseModelRow:
    kind = f"{source.quantisation} GGUF {source.gguf_sha256[:12]}"
    size = _bytes(folder)
    return BaseModelRow(
        source.name, source.architecture, source.parameters, source.dtype, size, source.licence, kind, True
    )


def _bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
