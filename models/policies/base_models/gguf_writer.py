"""Conversion of model folders to GGUF files, for the architectures that `gguf_config` reads.

The weights pass through memory one at a time. Matrices get the chosen type, vectors stay float32. After the file is
written, its metadata are read again: a file from which another config or other tokens would be read is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from models.base.atomic_write import replace_file
from models.base.errors import UserError
from models.base.weights_header import read_header, tensor_shapes
from models.policies.base_models.gguf_config import LLAMA3_ROPE, ROPE_FACTORS, config_of, llama3_factors
from models.policies.base_models.gguf_file import read_gguf
from models.policies.base_models.gguf_vocabulary import Facts, check_same_tokens, vocabulary_facts
from models.policies.folder import check_model_folder
from models.text.end_ids import ends_of_folder
from models.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    import numpy as np
    from gguf import GGMLQuantizationType, GGUFWriter
    from numpy.typing import NDArray
    from transformers import PretrainedConfig

GgufType = Literal["f32", "f16", "bf16", "q8_0"]
"""Types of the matrices in a file that is written."""
TYPES: tuple[GgufType, ...] = get_args(GgufType)
FILE_TYPES: dict[GgufType, int] = {"f32": 0, "f16": 1, "q8_0": 7, "bf16": 32}
"""Number of each type in the key general.file_type."""
WRITTEN = {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
"""`model_type` of the supported configs -> architecture in the format."""
SAME = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "intermediate_size",
    "max_position_embeddings", "rms_norm_eps", "tie_word_embeddings", "vocab_size",
)  # fmt: skip
"""Settings that must be the same in the config that is read from the file."""


@dataclass(frozen=True, kw_only=True)
class GgufOrigin:
    """The statements of a file about the model as a whole; empty ones are left out."""

    name: str
    """Display name."""
    version: str = ""
    licence: str = ""
    """SPDX identifier."""
    description: str = ""
    base: str = ""
    """Name of the base model."""
    base_repository: str = ""
    """Address of the base model's repository."""
    more: Mapping[str, str] = field(default_factory=dict)
    """Further keys, each with the prefix of its writer."""


def write_gguf(
    folder: Path,
    file: Path,
    kind: GgufType | None,
    origin: GgufOrigin,
    done: Callable[[int], object] = lambda values: None,
) -> GgufType:
    """Write a model folder as a GGUF file, atomically.

    Args:
        folder: a model folder with safetensors and a tokenizer.
        file: the file to write.
        kind: type of the matrices; None: the type that most weights have in the folder.
        origin: name, licence and the like.
        done: called with the number of values of each weight that was written.

    Returns:
        The type of the matrices.

    Raises:
        UserError: the architecture, a setting of the config or the tokenizer cannot be written, a weight is missing or
            does not fit into the type, or the file would be read as another model.
    """
    from gguf import GGMLQuantizationType, GGUFWriter

    check_model_folder(folder)
    config = _config(folder)
    architecture = WRITTEN[config.model_type]
    tokenizer = load_tokenizer(folder)
    weights = _weights(folder, config)
    chosen = kind or _own_type(folder, weights)
    facts = {
        **_origin_facts(origin, chosen),
        **_config_facts(config, architecture),
        **vocabulary_facts(tokenizer, config.vocab_size, folder, ends_of_folder(folder)),
    }
    with replace_file(file) as partial_file:
        writer = GGUFWriter(partial_file, architecture)
        try:
            for key, value in facts.items():
                _add(writer, key, value)
            if config.rope_parameters["rope_type"] == "llama3":
                factors = _factors(config)
                _announce(writer, ROPE_FACTORS, factors.shape, GGMLQuantizationType.F32)
            kinds = {weight.target: _type_of(weight.shape, chosen) for weight in weights}
            for weight in weights:
                _announce(writer, weight.target, weight.shape, kinds[weight.target])
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_ti_data_to_file()
            if config.rope_parameters["rope_type"] == "llama3":
                writer.write_tensor_data(factors)
            for weight in weights:
                writer.write_tensor_data(_packed(folder, weight, kinds[weight.target], config))
                done(math.prod(weight.shape))
        finally:
            writer.close()
        _check_same_config(config, folder, partial_file)
        check_same_tokens(tokenizer, folder, partial_file)
    return chosen


@dataclass(frozen=True)
class _Weight:
    """A weight of the model: its name in transformers and in the format, its shape and the file that has it."""

    name: str
    target: str
    shape: tuple[int, ...]
    file: Path


def _config(folder: Path) -> PretrainedConfig:
    """Read the config of a model folder, and refuse what the format or our reader would leave out.

    Raises:
        UserError: the architecture or one of its settings is not supported.
    """
    from transformers import AutoConfig

    try:
        config: Any = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise UserError(f"{folder}/config.json: cannot be read ({str(error).splitlines()[0]})") from None
    kinds = config.architectures or [""]
    if config.model_type not in WRITTEN or not all(kind.endswith("ForCausalLM") for kind in kinds):
        raise UserError(
            f"{folder}: {kinds[0] or config.model_type} cannot be written to GGUF; supported are the causal language "
            f"models of {', '.join(WRITTEN)}"
        )
    rope = config.rope_parameters or {}
    settings = {
        "hidden_act": (config.hidden_act, ("silu",)),
        "mlp_bias": (getattr(config, "mlp_bias", False), (False,)),
        "quantization_config": (getattr(config, "quantization_config", None), (None,)),
        "use_sliding_window": (getattr(config, "use_sliding_window", False), (False,)),
        "rope_parameters.rope_type": (rope.get("rope_type", "default"), ("default", "linear", "llama3")),
        "rope_parameters.partial_rotary_factor": (rope.get("partial_rotary_factor", 1.0), (1.0,)),
    }
    if config.model_type == "mistral":
        window = config.sliding_window
        covered = window is None or window >= config.max_position_embeddings
        settings["sliding_window"] = (window, (window,) if covered else (None,))
    if config.model_type == "qwen3":
        settings["attention_bias"] = (config.attention_bias, (False,))
    if rope.get("rope_type") == "llama3":
        settings |= {f"rope_parameters.{key}": (rope.get(key), (value,)) for key, value in LLAMA3_ROPE.items()}
    for key, (value, supported) in settings.items():
        if value not in supported:
            names = " or ".join(str(name) for name in supported)
            raise UserError(f"{folder}/config.json: {key}: {value} cannot be written to GGUF; supported is {names}")
    return config  # type: ignore[no-any-return]


def _weights(folder: Path, config: PretrainedConfig) -> list[_Weight]:
    """List the weights of the model in the order of its modules.

    Raises:
        UserError: one is missing or has another shape, or the folder has one that the architecture does not have.
    """
    import torch
    from gguf import MODEL_ARCH, get_tensor_name_map
    from transformers import AutoModelForCausalLM

    held_shapes = {file: tensor_shapes(file) for file in sorted(folder.glob("*.safetensors"))}
    shapes = {name: shape for shapes_of_file in held_shapes.values() for name, shape in shapes_of_file.items()}
    files = {name: file for file, shapes_of_file in held_shapes.items() for name in shapes_of_file}
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    known = get_tensor_name_map(MODEL_ARCH[WRITTEN[config.model_type].upper()], config.num_hidden_layers)
    weights = []
    for name, parameter in model.named_parameters():  # a tied head is left out
        if name not in files:
            raise UserError(f"{folder}: the weights lack {name}")
        if shapes[name] != tuple(parameter.shape):
            held, wanted = (" x ".join(map(str, sizes)) for sizes in (shapes[name], parameter.shape))
            raise UserError(f"{folder}: {name} is {held}, but config.json asks for {wanted}")
        module, _, end = name.rpartition(".")
        weights.append(_Weight(name, f"{known.get_name(module)}.{end}", shapes[name], files[name]))
    tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
    if others := sorted(files.keys() - {weight.name for weight in weights} - tied):
        raise UserError(f"{folder}: {others[0]} is not a weight of the architecture {config.model_type}")
    return weights


def _own_type(folder: Path, weights: list[_Weight]) -> GgufType:
    """Return the type that most values of the model have in its folder."""
    named: dict[str, GgufType] = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
    counts: dict[str, int] = {}
    for file in sorted({weight.file for weight in weights}):
        header, _ = read_header(file)
        for name, entry in header.items():
            if name != "__metadata__":
                counts[entry["dtype"]] = counts.get(entry["dtype"], 0) + math.prod(entry["shape"])
    stored = max(counts, key=lambda name: counts[name])
    if stored not in named:
        raise UserError(f"{folder}: weights of the type {stored} cannot be written to GGUF; name another with --type")
    return named[stored]


def _type_of(shape: tuple[int, ...], chosen: GgufType) -> GGMLQuantizationType:
    """Return the type of a weight: float32 for vectors, float16 for rows that blocks of the type do not fill."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    kind = GGMLQuantizationType[chosen.upper()]
    if len(shape) < 2:
        return GGMLQuantizationType.F32
    return kind if shape[-1] % GGML_QUANT_SIZES[kind][0] == 0 else GGMLQuantizationType.F16


def _announce(writer: GGUFWriter, name: str, shape: tuple[int, ...], kind: GGMLQuantizationType) -> None:
    import numpy as np
    from gguf import GGML_QUANT_SIZES

    block, size = GGML_QUANT_SIZES[kind]
    writer.add_tensor_info(name, shape, np.dtype(np.float32), math.prod(shape) // block * size, kind)


def _packed(folder: Path, weight: _Weight, kind: GGMLQuantizationType, config: Any) -> NDArray[Any]:
    """Read a weight, order it as the format asks, and convert it to a type.

    Raises:
        UserError: a value is not finite, or does not fit into float16.
    """
    import numpy as np
    from gguf.quants import quantize
    from safetensors import safe_open

    with safe_open(weight.file, "pt") as held:
        values: NDArray[np.float32] = held.get_tensor(weight.name).float().numpy()
    if not np.isfinite(values).all():
        raise UserError(f"{folder}: {weight.name} holds values that are not finite")
    with np.errstate(over="ignore"):
        packed: NDArray[Any] = np.ascontiguousarray(quantize(_interleaved(values, weight.name, config), kind))
    if packed.dtype == np.float16 and not np.isfinite(packed).all():
        raise UserError(f"{folder}: {weight.name} has values above 65,504, which do not fit into f16; use --type bf16")
    return packed


def _interleaved(values: NDArray[np.float32], name: str, config: Any) -> NDArray[np.float32]:
    """Interleave the halves of each head's rotary dimensions in Llama's queries and keys. Return others unchanged."""
    heads = {".q_proj.": config.num_attention_heads, ".k_proj.": config.num_key_value_heads}
    count = next((number for part, number in heads.items() if part in name), None)
    if WRITTEN[config.model_type] != "llama" or count is None:
        return values
    return values.reshape(count, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)


def _head_width(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _factors(config: Any) -> NDArray[np.float32]:
    rope = config.rope_parameters
    return llama3_factors(float(rope["factor"]), float(rope["rope_theta"]), _head_width(config))


def _origin_facts(origin: GgufOrigin, kind: GgufType) -> Facts:
    facts: Facts = {
        "general.type": "model",
        "general.name": origin.name,
        "general.version": origin.version,
        "general.license": origin.licence,
        "general.description": origin.description,
        **origin.more,
    }
    if origin.base:
        facts |= {
            "general.base_model.count": 1,
            "general.base_model.0.name": origin.base,
            "general.base_model.0.repo_url": origin.base_repository,
        }
    facts |= {"general.file_type": FILE_TYPES[kind], "general.quantization_version": 2}
    return {key: value for key, value in facts.items() if value != ""}


def _config_facts(config: Any, architecture: str) -> Facts:
    head, rope = _head_width(config), config.rope_parameters
    facts: Facts = {
        "vocab_size": config.vocab_size,
        "context_length": config.max_position_embeddings,
        "embedding_length": config.hidden_size,
        "block_count": config.num_hidden_layers,
        "feed_forward_length": config.intermediate_size,
        "attention.head_count": config.num_attention_heads,
        "attention.head_count_kv": config.num_key_value_heads,
        "attention.key_length": head,
        "attention.value_length": head,
        "attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        "rope.dimension_count": head,
        "rope.freq_base": float(rope["rope_theta"]),
    }
    if rope["rope_type"] == "linear":
        facts |= {"rope.scaling.type": "linear", "rope.scaling.factor": float(rope["factor"])}
    return {f"{architecture}.{key}": value for key, value in facts.items()}


def _add(writer: GGUFWriter, key: str, value: Any) -> None:
    """Write one entry of the metadata with the type of the format that matches its Python type."""
    if isinstance(value, list):
        writer.add_array(key, value)
    elif isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    else:
        writer.add_string(key, value)


def _check_same_config(config: Any, folder: Path, file: Path) -> None:
    """Check that the config that is read from the file describes the same computation.

    Raises:
        UserError: a setting differs.
    """
    made: Any = config_of(read_gguf(file))
    rope = {key: value for key, value in config.rope_parameters.items() if key != "partial_rotary_factor"}
    pairs = {key: (getattr(config, key), getattr(made, key)) for key in SAME}
    pairs |= {"head_dim": (_head_width(config), made.head_dim), "rope_parameters": (rope, made.rope_parameters)}
    for key, (ours, theirs) in pairs.items():
        if not _same(ours, theirs):
            raise UserError(f"{folder}/config.json: {key}: {ours} would be read from GGUF as {theirs}")


def _same(ours: Any, theirs: Any) -> bool:
    """Compare two settings; numbers up to the rounding of the format to float32."""
    if isinstance(ours, dict):
        return ours.keys() == theirs.keys() and all(_same(value, theirs[key]) for key, value in ours.items())
    if isinstance(ours, float):
        return math.isclose(ours, theirs, rel_tol=1e-6)
    return bool(ours == theirs)
