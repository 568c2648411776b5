"""The transformers config of a GGUF file, for the architectures Llama, Qwen2 and Qwen3.

Unknown keys of the architecture are refused: ignoring a key that changes the computation would silently give a
different model.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from models.base.errors import UserError, listed
from models.policies.base_models.gguf_file import GgufFile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from transformers import PretrainedConfig

ARCHITECTURES = ("llama", "qwen2", "qwen3")
"""Supported architecture names in the format; Mistral's dense models and SmolLM are `llama`."""
ROPE_FACTORS = "rope_freqs.weight"
"""Tensor of Llama 3.1 and later with the divisor of each rotary frequency."""
LLAMA3_ROPE = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
"""Constants of Llama 3's scaling that all its sizes share."""

_READ = (
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_used_count",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scaling.factor",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
)
_WITHOUT_EFFECT = ("vocab_size", "rope.scaling.finetuned", "tensor_data_layout", "use_parallel_residual")


def config_of(file: GgufFile) -> PretrainedConfig:
    """Build the transformers config.

    Raises:
        UserError: another architecture, a missing key, or one that is not supported.
    """
    from transformers import LlamaConfig, Qwen2Config, Qwen3Config

    architecture = file.architecture
    if architecture not in ARCHITECTURES:
        raise UserError(
            f"{file.path}: GGUF architecture {architecture!r} is not supported; "
            f"supported are {', '.join(ARCHITECTURES)}"
        )
    given = {key: value for key, value in file.metadata.items() if key.startswith(f"{architecture}.")}
    unknown = [key for key in given if key.removeprefix(f"{architecture}.") not in (*_READ, *_WITHOUT_EFFECT)]
    if unknown:
        raise UserError(f"{file.path}: {listed(unknown)}: this variant of {architecture} is not supported")
    heads, width = _whole(file, "attention.head_count"), _whole(file, "embedding_length")
    head = _whole(file, "attention.key_length", width // heads)
    if _whole(file, "expert_count", 0):
        raise UserError(f"{file.path}: {architecture}.expert_count: mixtures of experts are not supported")
    for key in ("attention.value_length", "rope.dimension_count"):
        if _whole(file, key, head) != head:
            raise UserError(f"{file.path}: {architecture}.{key} differs from the width of a head, {head}")
    settings: dict[str, Any] = {
        "vocab_size": file.shapes.get("token_embd.weight", (0,))[0],
        "hidden_size": width,
        "num_hidden_layers": _whole(file, "block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": _whole(file, "attention.head_count_kv", heads),
        "head_dim": head,
        "intermediate_size": _whole(file, "feed_forward_length"),
        "max_position_embeddings": _whole(file, "context_length"),
        "rms_norm_eps": _real(file, "attention.layer_norm_rms_epsilon"),
        "rope_parameters": _rope(file, head),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "bos_token_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": file.metadata.get("tokenizer.ggml.eos_token_id"),
        "pad_token_id": file.metadata.get("tokenizer.ggml.padding_token_id"),
        "dtype": file.dtype,
    }
    if architecture == "llama":
        settings["attention_bias"] = "blk.0.attn_q.bias" in file.tensors
        made: PretrainedConfig = LlamaConfig(**settings, architectures=["LlamaForCausalLM"])
    elif architecture == "qwen2":
        made = Qwen2Config(**settings, architectures=["Qwen2ForCausalLM"])
    else:
        made = Qwen3Config(**settings, architectures=["Qwen3ForCausalLM"])
    return made


def _rope(file: GgufFile, head: int) -> dict[str, Any]:
    """Return the rotary embedding's parameters: plain, scaled linearly, or scaled as in Llama 3.1."""
    base = _real(file, "rope.freq_base", 10_000.0)
    kind = file.metadata.get(f"{file.architecture}.rope.scaling.type", "none")
    if ROPE_FACTORS in file.tensors:
        return {"rope_theta": base} | _llama3_scaling(file, base, head)
    if kind == "none":
        return {"rope_theta": base, "rope_type": "default"}
    if kind == "linear":
        return {"rope_theta": base, "rope_type": "linear", "factor": _real(file, "rope.scaling.factor")}
    raise UserError(f"{file.path}: {file.architecture}.rope.scaling.type {kind!r} is not supported")


def _llama3_scaling(file: GgufFile, base: float, head: int) -> dict[str, Any]:
    """Recover Llama 3's scaling from the factors in the file.

    Raises:
        UserError: the factors are not those of this scaling with its usual constants.
    """
    import numpy as np

    given = file.values(ROPE_FACTORS).reshape(-1)
    factor = float(given.max(initial=1.0))
    expected = llama3_factors(factor, base, head)
    if given.shape != expected.shape or not np.allclose(given, expected, rtol=1e-4):
        raise UserError(f"{file.path}: {ROPE_FACTORS}: a scaling of rotary frequencies that is not supported")
    return {"rope_type": "llama3", "factor": factor} | LLAMA3_ROPE


def llama3_factors(factor: float, base: float, head: int) -> NDArray[np.float32]:
    """Return the divisors of the rotary frequencies in Llama 3's scaling with its usual constants, [head / 2]."""
    import numpy as np

    low, high, length = LLAMA3_ROPE.values()
    wave = 2 * math.pi * base ** (np.arange(0, head, 2) / head)
    smooth = (length / wave - low) / (high - low)
    between = 1 / ((1 - smooth) / factor + smooth)
    divisors = np.where(wave > length / low, factor, np.where(wave < length / high, 1.0, between))
    return divisors.astype(np.float32)


def _whole(file: GgufFile, key: str, default: int | None = None) -> int:
    value = _value(file, key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise UserError(f"{file.path}: {file.architecture}.{key} is not one whole number")
    return value


def _real(file: GgufFile, key: str, default: float | None = None) -> float:
    value = _value(file, key, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise UserError(f"{file.path}: {file.architecture}.{key} is not a number")
    # 1e-05 is written as a float32: 9.99999974e-06. The shortest text of the float32 gives the intended number.
    import numpy as np

    return float(str(np.float32(value)))


def _value(file: GgufFile, key: str, default: float | None) -> Any:
    value = file.metadata.get(f"{file.architecture}.{key}", default)
    if value is None:
        raise UserError(f"{file.path}: {file.architecture}.{key} is missing")
    return value
