"""A GGUF file: its metadata and its tensors, dequantised one by one. The file is mapped into memory, not read whole."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.base.errors import UserError, shortened

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MAGIC = b"GGUF"
UNQUANTISED = ("F32", "F16", "BF16")


@dataclass(frozen=True)
class GgufFile:
    """An open GGUF file."""

    path: Path
    metadata: dict[str, Any]
    """Values by key, such as `general.architecture` or `llama.block_count`."""
    tensors: dict[str, Any]
    """Tensors of the package gguf by name."""

    @property
    def architecture(self) -> str:
        """Name of the architecture in the format."""
        return str(self.metadata.get("general.architecture", ""))

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of each tensor, outermost dimension first, as torch has it."""
        return {name: tuple(int(size) for size in reversed(it.shape)) for name, it in self.tensors.items()}

    @cached_property
    def matrix_type(self) -> str:
        """Type in which most values of its matrices are stored."""
        counts: Counter[str] = Counter()
        for tensor in self.tensors.values():
            if len(tensor.shape) > 1:
                counts[tensor.tensor_type.name] += int(tensor.n_elements)
        return min(counts, key=lambda name: (-counts[name], name)) if counts else "F32"

    @property
    def quantised(self) -> bool:
        """Whether most values of its matrices lost precision on the way into the file."""
        return self.matrix_type not in UNQUANTISED

    @property
    def dtype(self) -> str:
        """Torch data type of the converted weights: the file's own if it is a float type, else bfloat16."""
        return {"F32": "float32", "F16": "float16"}.get(self.matrix_type, "bfloat16")

    def values(self, name: str) -> NDArray[np.float32]:
        """Dequantise a tensor.

        Raises:
            UserError: it has a type that cannot be dequantised.
        """
        import numpy as np
        from gguf import dequantize

        tensor = self.tensors[name]
        try:
            made = np.asarray(dequantize(tensor.data, tensor.tensor_type), dtype=np.float32)
        except NotImplementedError:
            kind = tensor.tensor_type.name
            raise UserError(f"{self.path}: {name} is of type {kind}, which cannot be dequantised") from None
        return made.reshape(self.shapes[name])


def read_gguf(file: Path) -> GgufFile:
    """Open a GGUF file.

    Raises:
        UserError: it cannot be read, is not a GGUF file, or was cut short.
    """
    try:
        with file.open("rb") as handle:
            magic = handle.read(4)
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    if magic != MAGIC:
        raise UserError(f"{file}: not a GGUF file (it does not begin with the letters GGUF)")
    from gguf import GGUFReader

    try:
        reader = GGUFReader(file)
        metadata = {key: field.contents() for key, field in reader.fields.items()}
        tensors = {tensor.name: tensor for tensor in reader.tensors}
    except Exception as error:  # the package raises errors of many kinds for damaged files
        raise UserError(f"{file}: a damaged or incomplete GGUF file ({shortened(error, 120)})") from None
    return GgufFile(file, metadata, tensors)
