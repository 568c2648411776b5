"""Conversion of GGUF files to Hugging Face model folders: config, safetensors, tokenizer, chat template, source record.

Every weight of the model must be in the file under its name and with its shape, and the file must hold no other:
transformers' own loader would initialise missing weights and drop unknown ones.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from models.base.errors import UserError
from models.base.file_hash import sha256_of
from models.policies.base_models.gguf_config import ROPE_FACTORS, config_of
from models.policies.base_models.gguf_file import GgufFile, read_gguf
from models.policies.base_models.gguf_tokenizer import tokenizer_of
from models.policies.base_models.source import BaseModelSource, source_of, write_source

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from transformers import PretrainedConfig

WEIGHTS = "model.safetensors"
NOT_OF_THE_MODEL = (
    "transformers_version",
    "is_local",
    "local_files_only",
    "name_or_path",
    "_name_or_path",
    "_from_model_config",
)
"""Keys of JSON files that depend on the machine or the version of transformers."""


def convert(file: Path, folder: Path, done: Callable[[int], object] = lambda values: None) -> BaseModelSource:
    """Convert a GGUF file to a Hugging Face model folder.

    Args:
        file: the GGUF file.
        folder: an existing folder, which is filled.
        done: called with the number of values of each weight that was converted.

    Raises:
        UserError: the file is damaged, its architecture or tokenizer is not supported, or it holds other weights than
            its architecture has.
    """
    import torch
    from safetensors.torch import save_file
    from transformers import GenerationConfig

    gguf = read_gguf(file)
    config = config_of(gguf)
    tokenizer = tokenizer_of(gguf)
    rows = config.vocab_size
    if len(tokenizer) > rows:
        raise UserError(f"{file}: its tokenizer has {len(tokenizer)} tokens, but its weights only {rows} embeddings")
    dtype = getattr(torch, gguf.dtype)
    weights: dict[str, torch.Tensor] = {}
    for name, source in sorted(_names(gguf, config).items()):
        made = torch.tensor(_in_order(gguf, source, config), dtype=dtype)
        if not bool(torch.isfinite(made).all()):
            raise UserError(f"{file}: {source} holds values that are not finite in {gguf.dtype}")
        weights[name] = made.contiguous()
        done(made.numel())
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    config.save_pretrained(folder)
    GenerationConfig.from_model_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for written in ("config.json", "generation_config.json", "tokenizer_config.json"):
        _strip(folder / written)
    parameters = sum(weight.numel() for weight in weights.values())
    record = source_of(gguf, sha256_of(file), parameters, sha256_of(folder / WEIGHTS))
    write_source(folder, record)
    for part in folder.iterdir():
        part.chmod(0o644)
    return record


def _names(file: GgufFile, config: PretrainedConfig) -> dict[str, str]:
    """Return the name of each weight in transformers -> its name in the file.

    Raises:
        UserError: a weight is missing, has another shape, or is not one of the architecture.
    """
    import torch
    from gguf import MODEL_ARCH, get_tensor_name_map
    from transformers import AutoModelForCausalLM

    layers: int = config.num_hidden_layers
    known = get_tensor_name_map(MODEL_ARCH[file.architecture.upper()], layers)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    shapes = {name: tuple(weight.shape) for name, weight in model.named_parameters()}  # a tied head is left out
    names, there = {}, file.shapes
    for name, shape in shapes.items():
        module, _, kind = name.rpartition(".")
        source = f"{known.get_name(module)}.{kind}"
        if source not in there:
            raise UserError(f"{file.path}: {source} is missing")
        if there[source] != shape:
            held, wanted = (" x ".join(map(str, sizes)) for sizes in (there[source], shape))
            raise UserError(f"{file.path}: {source} is {held}, but its metadata describes {wanted}")
        names[name] = source
    if others := sorted(set(there) - set(names.values()) - {ROPE_FACTORS}):
        raise UserError(f"{file.path}: {others[0]} is not a weight of the architecture {file.architecture}")
    return names


def _in_order(file: GgufFile, source: str, config: PretrainedConfig) -> NDArray[np.float32]:
    """Dequantise a weight; the format keeps the two halves of Llama's rotary dimensions interleaved."""
    values = file.values(source)
    heads = {".attn_q.": config.num_attention_heads, ".attn_k.": config.num_key_value_heads}
    count = next((number for part, number in heads.items() if part in source), None)
    if file.architecture != "llama" or count is None:
        return values
    pairs = values.reshape(count, -1, 2, *values.shape[1:])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def _strip(file: Path) -> None:
    """Remove the keys that depend on the machine or the version of transformers from a JSON file."""
    facts = json.loads(file.read_text(encoding="utf-8"))
    left = {key: value for key, value in facts.items() if key not in NOT_OF_THE_MODEL}
    file.write_text(json.dumps(left, indent=2, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8")
