"""Saving of a policy whose weights equal those of its base model, with the base's own weight files and type.

Master weights are float32, which represents bfloat16 and float16 exactly: the weights loaded from the folder are the
same to the last bit, at half the size. Files of the store of base models are hard-linked and not copied.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from models.base.atomic_write import replace_folder
from models.base.disk import share_file
from models.base.weights_header import read_header
from models.policies.base_models.source import carry_source
from models.policies.base_models.store import store_folder
from models.policies.folder import hash_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

TYPES = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
"""Safetensors types that a policy's weights may have."""


def holds_weights_of(base: Path, model: PreTrainedModel) -> bool:
    """Return whether a base's files have the tensor names that saving `model` would write, in one type of `TYPES`.

    Only names and types are compared, not values.
    """
    types, names = _tensors(base)
    state = model.state_dict(keep_vars=True)
    first = {id(weight): name for name, weight in reversed(state.items())}  # tied weights are written once
    return len(types) == 1 and types <= TYPES.keys() and names == set(first.values())


def save_with_weights_of(base: Path, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, target: Path) -> str:
    """Write a model folder like `save_model_folder`, with the weight files of `base`. Returns its content hash.

    Args:
        base: a model folder for which `holds_weights_of` is true.
    """
    put = share_file if base.resolve().is_relative_to(store_folder().resolve()) else shutil.copyfile
    types, _ = _tensors(base)
    model.config.dtype = TYPES[types.pop()]
    model.config.architectures = [type(model).__name__]
    with replace_folder(target) as folder:
        model.config.save_pretrained(folder)
        if model.generation_config is not None:
            model.generation_config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        for file in _files(base):
            put(file, folder / file.name)
        carry_source(base, folder)
    return hash_folder(target)


def _tensors(folder: Path) -> tuple[set[str], set[str]]:
    """Return the types and names of all tensors of a model folder."""
    types, names = set(), set()
    for file in sorted(folder.glob("*.safetensors")):
        header, _ = read_header(file)
        for name, entry in header.items():
            if name != "__metadata__":
                types.add(str(entry["dtype"]))
                names.add(name)
    return types, names


def _files(folder: Path) -> list[Path]:
    return sorted([*folder.glob("*.safetensors"), *folder.glob("*.safetensors.index.json")])
