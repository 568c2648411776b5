"""The model folder of a merge: checks that models can be merged, and writing of the result tensor by tensor."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from models.base.atomic_write import replace_folder
from models.base.errors import UserError, shortened
from models.base.strict_json import parse_json
from models.base.weights_header import read_header, tensor_shapes
from models.policies.base_models.convert import NOT_OF_THE_MODEL, WEIGHTS
from models.policies.base_models.source import CARRIED
from models.policies.folder import check_model_folder, hash_folder
from models.policies.merge import MergeSettings, merge_states
from models.policies.use import read_use

WITHOUT_EFFECT = (
    *NOT_OF_THE_MODEL, "dtype", "torch_dtype", "use_cache", "bos_token_id", "eos_token_id", "pad_token_id",
)  # fmt: skip
"""Keys of a config in which models that are merged may differ; the result has those of the first."""
DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.int64: "I64",
    torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip
"""Names of data types in safetensors files."""
HEAD = "lm_head.weight"


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of a model folder, each read from its file when it is looked up."""

    def __init__(self, folder: Path) -> None:
        """List the tensors. A head that is tied to the embeddings is left out."""
        config = _json(folder / "config.json")
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._files: dict[str, Path] = {}
        for file in sorted(folder.glob("*.safetensors")):
            shapes = tensor_shapes(file)
            self.shapes |= shapes
            self._files |= dict.fromkeys(shapes, file)
        if config.get("tie_word_embeddings"):
            self.shapes.pop(HEAD, None)
            self._files.pop(HEAD, None)

    def __getitem__(self, name: str) -> Tensor:
        with safe_open(self._files[name], "pt") as held:
            tensor: Tensor = held.get_tensor(name)
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def dtypes(self) -> dict[str, str]:
        """Return the data type of each tensor as its file names it."""
        headers = {file: read_header(file)[0] for file in set(self._files.values())}
        return {name: str(headers[file][name]["dtype"]) for name, file in self._files.items()}


def check_mergeable(folders: Sequence[Path], *, base: Path | None = None) -> None:
    """Check that models have one architecture, the same tensors and the same tokenizer, without reading weights.

    Args:
        folders: the models to merge, at least one.
        base: the model that they were trained from, if the method needs it.

    Raises:
        UserError: one of them differs from the first; the message names what differs.
    """
    everything = [*folders, *([base] if base is not None else [])]
    for folder in everything:
        check_model_folder(folder)
    first, shapes = folders[0], StoredTensors(folders[0]).shapes
    config, tokenizer, use = _config(first), _tokenizer(first), read_use(first)
    if use.gated or use.mask_top_p < 1:
        raise UserError(f"{first}: its completions are drawn with a second model, so it cannot be merged")
    for folder in everything[1:]:
        other = _config(folder)
        for key in sorted(config.keys() | other.keys()):
            if config.get(key) != other.get(key):
                values = [shortened(settings.get(key)) for settings in (other, config)]
                raise UserError(f"{folder}/config.json: {key} is {values[0]}, but {values[1]} in {first}")
        _check_shapes(folder, StoredTensors(folder).shapes, first, shapes)
        if _tokenizer(folder) != tokenizer:
            raise UserError(f"{folder}: its tokenizer differs from that of {first}; their embeddings mean other tokens")
    for folder in folders[1:]:
        if read_use(folder) != use:
            raise UserError(f"{folder}: its use.json differs from that of {first}")


def write_merged(
    folders: Sequence[Path],
    base: Path | None,
    settings: MergeSettings,
    target: Path,
    done: Callable[[str], object] = lambda name: None,
) -> str:
    """Merge models into a new model folder, with one tensor of each in memory. Return the content hash of the folder.

    Config, tokenizer and chat template are those of the first model. Licences of the others are kept next to its own.

    Args:
        folders: the models.
        base: see `check_mergeable`.
        settings: the method.
        target: the folder to write.
        done: called with the name of each tensor that was written.

    Raises:
        UserError: the models cannot be merged, or the result has values that are not finite.
    """
    check_mergeable(folders, base=base)
    first = StoredTensors(folders[0])
    states = [StoredTensors(folder) for folder in folders]
    ignored = shutil.ignore_patterns("*.safetensors", "*.safetensors.index.json", "README.md")
    with replace_folder(target) as folder:
        shutil.copytree(folders[0], folder, copy_function=shutil.copyfile, ignore=ignored, dirs_exist_ok=True)
        _keep_licences(folders, folder)
        merged = merge_states(settings, states, StoredTensors(base) if base is not None else None)

        def checked() -> Iterator[Tensor]:
            for name, tensor in merged:
                if not bool(torch.isfinite(tensor).all()):
                    raise UserError(f"the merged {name} has values that are not finite; use smaller weights")
                yield tensor
                done(name)

        dtypes = first.dtypes()
        try:
            _write_tensors(folder / WEIGHTS, {name: (dtypes[name], first.shapes[name]) for name in first}, checked())
        except ValueError as error:
            raise UserError(f"{folders[0]}: {error}") from None
    return hash_folder(target)


def _write_tensors(file: Path, kinds: Mapping[str, tuple[str, tuple[int, ...]]], tensors: Iterable[Tensor]) -> None:
    """Write a safetensors file from tensors that come one by one, in the order of `kinds` (data type and shape)."""
    sizes = {name: torch.empty(0, dtype=dtype).element_size() for dtype, name in DTYPES.items()}
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, (dtype, shape) in kinds.items():
        if dtype not in sizes:
            raise ValueError(f"{name} is of the type {dtype}, which cannot be merged")
        end = at + sizes[dtype] * torch.Size(shape).numel()
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with file.open("wb") as written:
        written.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            written.write(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data)


def _keep_licences(folders: Sequence[Path], target: Path) -> None:
    """Copy the licences of all models but the first that the target does not have yet, under numbered names."""
    for number, folder in enumerate(folders[1:], start=2):
        for pattern in CARRIED[1:]:
            for file in sorted(folder.glob(pattern)):
                if not any(kept.read_bytes() == file.read_bytes() for kept in target.glob(pattern)):
                    shutil.copyfile(file, target / f"{file.name}.{number}")


def _check_shapes(
    folder: Path, shapes: Mapping[str, tuple[int, ...]], first: Path, wanted: Mapping[str, tuple[int, ...]]
) -> None:
    for name in sorted(shapes.keys() ^ wanted.keys()):
        holder, other = (folder, first) if name in shapes else (first, folder)
        raise UserError(f"{holder}: {name} is a weight that {other} does not have; only equal architectures merge")
    for name, shape in shapes.items():
        if shape != wanted[name]:
            texts = [" x ".join(map(str, sizes)) for sizes in (shape, wanted[name])]
            raise UserError(f"{folder}: {name} is {texts[0]}, but {texts[1]} in {first}; only equal shapes merge")


def _config(folder: Path) -> dict[str, Any]:
    """Return the settings of a model that its computation depends on."""
    config = _json(folder / "config.json")
    if "quantization_config" in config:
        raise UserError(f"{folder}: quantised weights cannot be merged")
    return {key: value for key, value in config.items() if key not in WITHOUT_EFFECT}


def _tokenizer(folder: Path) -> Any:
    """Return what decides which token an id means and how texts are cut."""
    if (folder / "tokenizer.json").is_file():
        parts = _json(folder / "tokenizer.json")
        return {key: parts.get(key) for key in ("model", "added_tokens", "normalizer", "pre_tokenizer")}
    for name in ("tokenizer.model", "vocab.json", "vocab.txt"):
        if (folder / name).is_file():
            return (folder / name).read_bytes()
    raise UserError(f"{folder}: no tokenizer, tokenizer.json is missing")


def _json(file: Path) -> dict[str, Any]:
    try:
        value: dict[str, Any] = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{file}: cannot be read ({shortened(error)})") from None
    return value
