"""Checks that a folder can be the base model of a policy, before anything starts and without loading its weights.

Checked are the files, the tokenizer, and the shapes of the weights against the config. transformers would report these
errors after half a minute, in pages of text, or not at all. Shapes are compared for architectures that name their
weights as Llama does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from models.base.errors import UserError, listed, shortened
from models.base.strict_json import JsonError, parse_json
from models.base.weights_header import tensor_shapes
from models.learner.model_parts import part_of
from models.policies.folder import check_model_folder

TOKENIZERS = (
    "tokenizer.json",
    "tokenizer.model",
    "vocab.json",
    "vocab.txt",
    "*.tiktoken",
    "tekken.json",
    "*.model",
    "tokenization*.py",
)
"""Tokenizer files; a folder with a tokenizer has at least one."""
JSON_FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "special_tokens_map.json")
"""Files that must be JSON objects if they exist."""
LLAMA_LIKE = ("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "granite", "olmo2", "cohere")
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.")
EMBEDDINGS = ("embed_tokens.weight", "wte.weight")

NEW_POLICY_MODULES = (
    *(f"model.layers.0.self_attn.{name}_proj" for name in ("q", "k", "v", "o")),
    *(f"model.layers.0.mlp.{name}_proj" for name in ("gate", "up", "down")),
    "model.embed_tokens",
    "lm_head",
)
"""Modules with a matrix in a policy that is made from its size."""

Shapes = Mapping[str, tuple[int, ...]]


def check_base_folder(folder: Path, *, chat: bool = False) -> tuple[int | None, list[str]]:
    """Check that a policy can start from the model in `folder`.

    Args:
        folder: a local model folder.
        chat: whether prompts use its chat template.

    Returns:
        The longest sequence that it reads, in tokens, None if its config does not define it; and the names of its
        modules with a matrix.

    Raises:
        UserError: a file is missing or of another kind, or weights, config and tokenizer do not fit together.
    """
    check_model_folder(folder)
    config = _object(folder / "config.json")
    if not isinstance(config.get("model_type"), str):
        raise UserError(f"{folder}/config.json: no model_type; this is not a config of transformers")
    files = {name: _object(folder / name) for name in JSON_FILES if (folder / name).is_file()}
    if not any(file for pattern in TOKENIZERS for file in folder.glob(pattern)):
        raise UserError(f"{folder}: no tokenizer, tokenizer.json is missing")
    if chat and not files.get("tokenizer_config.json", {}).get("chat_template") and not _has_template(folder):
        raise UserError(f"{folder}: its tokenizer has no chat template, which policy.chat asks for")
    text = config["text_config"] if isinstance(config.get("text_config"), dict) else config
    shapes = _shapes(folder)
    if "quantization_config" not in config:
        of_text = {name: shape for name, shape in shapes.items() if part_of(name) == "language"}
        _check_shapes(folder, text, of_text)
    _check_vocabulary(folder, files.get("tokenizer.json"), shapes)
    positions = text.get("max_position_embeddings", text.get("n_positions"))
    modules = [name.removesuffix(".weight") for name, shape in shapes.items() if len(shape) == 2]
    return positions if isinstance(positions, int) else None, [*modules, "lm_head"]


def check_targets(targets: str | Sequence[str], modules: Sequence[str]) -> None:
    """Check that the target modules of the adapters exist.

    Args:
        targets: as in `policy.lora.targets`: `all-linear`, a regular expression of whole names, or ends of names.
        modules: names of modules that can have adapters.

    Raises:
        UserError: one of them does not exist.
    """
    ends = sorted({name.rpartition(".")[2] for name in modules})
    if targets == "all-linear":
        return
    if isinstance(targets, str):
        try:
            pattern = re.compile(targets)
        except re.error as error:
            raise UserError(
                f"policy.lora.targets: {shortened(targets)!r} is not a regular expression ({error})"
            ) from None
        if not any(pattern.fullmatch(name) for name in modules):
            hint = f"write [{targets}]" if targets in ends else f"the policy has {listed(ends)}"
            raise UserError(f"policy.lora.targets: {shortened(targets)!r} matches no module's whole name; {hint}")
        return
    if not targets:
        raise UserError("policy.lora.targets: an empty list; leave it out for all-linear")
    for target in targets:
        if not any(name == target or name.endswith(f".{target}") for name in modules):
            hint = "write targets: all-linear" if target == "all-linear" else f"it has {listed(ends)}"
            raise UserError(f"policy.lora.targets: the policy has no module {shortened(target)!r}; {hint}")


def _object(file: Path) -> dict[str, Any]:
    """Return the JSON object in a file."""
    try:
        value = parse_json(file.read_text(encoding="utf-8"))
    except (JsonError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: not valid JSON ({error})") from None
    except OSError as error:
        raise UserError(f"{file}: cannot be read ({error.strerror})") from None
    if not isinstance(value, dict):
        raise UserError(f"{file}: not a JSON object but a {type(value).__name__}")
    return value


def _has_template(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("chat_template.jinja", "chat_template.json"))


def _shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Return the shapes of all weights; with an index, those of the shards that it names."""
    index = folder / "model.safetensors.index.json"
    files = sorted(folder.glob("*.safetensors"))
    if index.is_file():
        weight_map = _object(index).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise UserError(f"{index}: no weight_map from weights to files")
        files = [folder / name for name in sorted(set(weight_map.values()))]
        if missing := [file.name for file in files if not file.is_file()]:
            raise UserError(f"{folder}: {missing[0]} is missing, which {index.name} names")
    return {name: shape for file in files for name, shape in tensor_shapes(file).items()}


def _whole(config: Mapping[str, Any], *names: str) -> int | None:
    """Return the integer of a config under the first of these names that it has."""
    return next((config[name] for name in names if type(config.get(name)) is int), None)


def _check_shapes(folder: Path, config: Mapping[str, Any], shapes: Shapes) -> None:
    """Compare the shapes of the weights with the config."""
    width, rows = _whole(config, "hidden_size", "n_embd"), _whole(config, "vocab_size")
    expected: dict[str, tuple[int | None, int | None]] = {}
    if "word_embed_proj_dim" not in config:
        expected |= dict.fromkeys(EMBEDDINGS, (rows, width))
    if config.get("model_type") in LLAMA_LIKE:
        heads, inner = _whole(config, "num_attention_heads"), _whole(config, "intermediate_size")
        if heads == 0:
            raise UserError(f"{folder}/config.json: num_attention_heads is 0")
        head = _whole(config, "head_dim") or (width // heads if width and heads else None)
        shared = _whole(config, "num_key_value_heads") or heads
        queries, keys = (count * head if count and head else None for count in (heads, shared))
        expected |= {
            "self_attn.q_proj.weight": (queries, width),
            "self_attn.k_proj.weight": (keys, width),
            "self_attn.v_proj.weight": (keys, width),
            "self_attn.o_proj.weight": (width, queries),
            "mlp.up_proj.weight": (inner, width),
            "mlp.down_proj.weight": (width, inner),
        }
        layers = {int(layer[1]) for name in shapes if (layer := LAYER.search(name))}
        depth = _whole(config, "num_hidden_layers")
        if depth is not None and layers != set(range(depth)):
            raise UserError(
                f"{folder}: its weights have {len(layers)} layers, but num_hidden_layers of config.json is {depth}"
            )
    for name, shape in shapes.items():
        for end, expected_shape in expected.items():
            differs = [
                (size, required)
                for size, required in zip(shape, expected_shape, strict=False)
                if required not in (None, size)
            ]
            if name.endswith(end) and differs:
                shape_text = " x ".join("?" if required is None else str(required) for required in expected_shape)
                raise UserError(
                    f"{folder}: {name} is {' x '.join(map(str, shape))}, but config.json asks for {shape_text}"
                )


def _check_vocabulary(folder: Path, tokenizer: Mapping[str, Any] | None, shapes: Shapes) -> None:
    """Check that every token has an embedding."""
    model = (tokenizer or {}).get("model", {})
    if tokenizer is not None and not isinstance(model, dict):
        raise UserError(f"{folder}/tokenizer.json: no model; this is not a tokenizer of the tokenizers library")
    vocabulary, added = model.get("vocab"), (tokenizer or {}).get("added_tokens") or []
    ids = list(vocabulary.values()) if isinstance(vocabulary, dict) else list(range(len(vocabulary or [])))
    ids += [token.get("id") for token in added if isinstance(token, dict)]
    tokens = 1 + max((token_id for token_id in ids if type(token_id) is int), default=-1)
    rows = next((shape[0] for name, shape in shapes.items() if name.endswith(EMBEDDINGS) and shape), None)
    if rows is not None and tokens > rows:
        raise UserError(f"{folder}: its tokenizer has {tokens} tokens, but its weights only {rows} embeddings")
