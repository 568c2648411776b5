"""The source record of a base model, `source.json` in its folder, and the text of its licence.

Both are copied into every folder that is trained from it.

The record depends only on the content of the GGUF file, not on its name or the date: the same file gives the same
folder, byte by byte.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from models.policies.base_models.catalogue import entry_with
from models.policies.base_models.gguf_file import GgufFile

RECORD = "source.json"
LICENCE = "LICENSE"
CARRIED = (RECORD, "LICENSE*", "LICENCE*", "COPYING*", "NOTICE*")
"""Files of the base that a model trained from it keeps."""
LICENCES = Path(__file__).parent / "licences"
"""Folder of licence texts, `<identifier>.txt` each."""
CONVERTER = 1
"""Version of the conversion; a folder of another version is converted again."""


@dataclass(frozen=True, kw_only=True)
class BaseModelSource:
    """Source of a converted base model."""

    name: str
    """Name in the catalogue, else the name in the file."""
    architecture: str
    parameters: int
    dtype: str
    quantisation: str
    """Type of the matrices in the GGUF file."""
    dequantised: bool
    licence: str
    """Identifier in lower case; empty if the file has none."""
    publisher: str
    package: str
    """Package that contains the file, as NAME VERSION; empty for a file from elsewhere."""
    gguf_sha256: str
    gguf_bytes: int
    weights_sha256: str
    """Hash of model.safetensors."""
    converter: int = CONVERTER

    @property
    def origin(self) -> str:
        """The source in one line, for pages and cards."""
        how = f"dequantised from {self.quantisation}" if self.dequantised else f"converted from {self.quantisation}"
        carrier = f"package {self.package}, " if self.package else ""
        return f"{self.name}, {how} to {self.dtype}, {carrier}GGUF SHA-256 {self.gguf_sha256}"


def source_of(file: GgufFile, gguf_sha256: str, parameters: int, weights_sha256: str) -> BaseModelSource:
    """Describe the source of a converted file."""
    entry = entry_with(gguf_sha256)
    stated = {key: str(file.metadata.get(f"general.{key}") or "") for key in ("name", "license", "organization")}
    return BaseModelSource(
        name=entry.name if entry else stated["name"] or "GGUF model without a name",
        architecture=file.architecture,
        parameters=parameters,
        dtype=file.dtype,
        quantisation=file.matrix_type,
        dequantised=file.quantised,
        licence=entry.licence if entry else stated["license"].lower(),
        publisher=entry.publisher if entry else stated["organization"],
        package=f"{entry.package} {entry.version}" if entry else "",
        gguf_sha256=gguf_sha256,
        gguf_bytes=file.path.stat().st_size,
        weights_sha256=weights_sha256,
    )


def write_source(folder: Path, source: BaseModelSource) -> None:
    """Write the record into a model folder, and the licence's text if it is known."""
    (folder / RECORD).write_text(json.dumps(asdict(source), indent=1) + "\n", encoding="utf-8")
    known = {text.stem: text for text in LICENCES.glob("*.txt")}
    if source.licence in known:
        shutil.copyfile(known[source.licence], folder / LICENCE)


def read_source(folder: Path) -> BaseModelSource | None:
    """Read the record of a model folder; None if it has none, or one that cannot be read."""
    try:
        facts: Any = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        names = {item.name for item in fields(BaseModelSource)}
        return BaseModelSource(**{key: value for key, value in facts.items() if key in names})
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def carry_source(base: Path, folder: Path) -> None:
    """Copy the source record and the licence of a base model into the folder of a model that was trained from it."""
    for pattern in CARRIED:
        for file in sorted(base.glob(pattern)):
            if file.is_file():
                shutil.copyfile(file, folder / file.name)


def licence_file(folder: Path) -> Path | None:
    """Return the licence file in a model folder; None if it has none."""
    return next((file for pattern in CARRIED[1:4] for file in sorted(folder.glob(pattern)) if file.is_file()), None)
