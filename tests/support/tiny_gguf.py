"""Small GGUF files, written with the package gguf: random models with a byte-level tokenizer."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFWriter, get_tensor_name_map
from gguf.quants import quantize
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config, Qwen3Config

from models.text.tokenizer import TokenizerSettings, train_tokenizer

TEMPLATE = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
TEXT = "What is 12345 + 17? It doesn't matter   much: 3 < 4; naïve"
CONFIGS = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}


def tiny_model(architecture: str, tied: bool = True, **settings: Any) -> Any:
    """Return a random model of one of the supported architectures with 300 tokens, float32."""
    torch.manual_seed(0)
    config = CONFIGS[architecture](
        vocab_size=300, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
        intermediate_size=96, max_position_embeddings=512, tie_word_embeddings=tied, **settings,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()


def write_gguf(
    file: Path,
    model: Any,
    architecture: str,
    matrices: str = "F32",
    changed: Mapping[str, Any] | None = None,
    without: Sequence[str] = (),
    more: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """Write a model as a GGUF file in the layout of llama.cpp.

    Args:
        matrices: type of the model's matrices.
        changed: metadata to change, by key.
        without: names of tensors and keys to omit.
        more: further tensors, by name.
    """
    config = model.config
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    facts: dict[str, Any] = {
        "general.name": "Tiny",
        "general.license": "MIT",
        f"{architecture}.block_count": config.num_hidden_layers,
        f"{architecture}.context_length": config.max_position_embeddings,
        f"{architecture}.embedding_length": config.hidden_size,
        f"{architecture}.feed_forward_length": config.intermediate_size,
        f"{architecture}.attention.head_count": config.num_attention_heads,
        f"{architecture}.attention.head_count_kv": config.num_key_value_heads,
        f"{architecture}.attention.key_length": head,
        f"{architecture}.attention.layer_norm_rms_epsilon": float(config.rms_norm_eps),
        f"{architecture}.rope.freq_base": float(config.rope_parameters["rope_theta"]),
        **tokenizer_facts(),
        **(changed or {}),
    }
    writer = GGUFWriter(file, architecture)
    for key, value in facts.items():
        if key not in without:
            add_value(writer, key, value)
    kind = GGMLQuantizationType[matrices]
    names = get_tensor_name_map(MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    for name, weight in model.named_parameters():
        module, _, end = name.rpartition(".")
        target = f"{names.get_name(module)}.{end}"
        values = (
            interleaved(weight.detach().numpy(), name, config) if architecture == "llama" else weight.detach().numpy()
        )
        if target in without:
            continue
        if values.ndim > 1 and matrices != "F32":
            writer.add_tensor(target, quantize(values, kind), raw_dtype=kind)
        else:
            writer.add_tensor(target, values)
    for name, values in (more or {}).items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def tokenizer_facts(pre: str = "gpt-2") -> dict[str, Any]:
    """Return the metadata of a byte-level tokenizer of at most 300 tokens."""
    fitted = json.loads(train_tokenizer([TEXT] * 3, TokenizerSettings(vocabulary=300)).backend_tokenizer.to_str())
    tokens = sorted(fitted["model"]["vocab"], key=fitted["model"]["vocab"].__getitem__)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if place < 3 else 1 for place in range(len(tokens))],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in fitted["model"]["merges"]],
        "tokenizer.ggml.padding_token_id": 0,
        "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.bos_token_id": 2,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": TEMPLATE,
    }


def add_value(writer: GGUFWriter, key: str, value: Any) -> None:
    """Write one entry of the metadata with the GGUF type that matches the Python type of its value."""
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


def interleaved(values: np.ndarray, name: str, config: Any) -> np.ndarray:
    """Interleave the halves of each head's rotary dimensions in Llama's queries and keys. Return others unchanged."""
    heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}
    count = next((number for part, number in heads.items() if part in name), None)
    if count is None:
        return values
    return values.reshape(count, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape).copy()
