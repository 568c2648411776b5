"""Construction of a policy: a small Qwen3 made from its size, or a base model that the recipe names.

A base model is a local folder or a hub id. Only safetensors are read, and the model's own code is not run unless
the recipe sets `trust_remote_code: true`. With `lora:` only low-rank adapters learn (peft) and the base
stays frozen; the adapter is merged into the folder that the policy is saved to.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import torch
from pydantic import Discriminator, Field, Tag, ValidationError
from safetensors import SafetensorError

from models.base.device import on_device
from models.base.errors import UserError
from models.base.picture_processor import has_tower
from models.base.remote_code import refuse_untrusted
from models.learner.model_parts import ALL_PARTS, Part
from models.policies.folder import check_model_folder, given_folder
from models.policies.hub import origin_of
from models.policies.skip_analysis import adapted_modules
from models.policies.update_sparsity import SubnetworkSettings
from models.policies.vision import VisionSettings, spread_by_inputs, vision_config
from models.text.base_images import adopt_images, adopt_processor
from models.text.image_tokens import ImageTokens, image_tokens_of
from models.text.tokenizer import TokenizerSettings

if TYPE_CHECKING:
    from transformers import Idefics3Config, PreTrainedModel, PreTrainedTokenizerBase, Qwen3Config

_LOADING = threading.Lock()
"""Lock for loading one model at a time: of two loaded by two threads, tied weights count as missing in one."""


@dataclass(frozen=True, kw_only=True)
class SizeSettings:
    """Size of a new Qwen3 model. Raises a UserError if widths and heads do not fit together."""

    hidden: Annotated[int, Field(ge=1, le=65_536)] = 128
    """Width of the residual stream."""
    layers: Annotated[int, Field(ge=1, le=1024)] = 4
    """Number of layers."""
    heads: Annotated[int, Field(ge=1, le=1024)] = 4
    """Number of attention heads of a layer."""
    key_value_heads: Annotated[int, Field(ge=1, le=1024)] = 2
    """Number of heads of keys and values, which groups of attention heads share."""
    feed_forward: Annotated[int, Field(ge=1, le=1_048_576)] = 384
    """Width of the gated feed-forward layer."""
    positions: Annotated[int, Field(ge=2, le=16_777_216)] = 1024
    """Longest sequence, in tokens."""
    head: Annotated[int, Field(ge=2, le=65_536)] | None = None
    """Width of an attention head; None: hidden / heads."""
    tied: bool = True
    """Whether the output projection shares the weights of the word embeddings."""
    spread: Literal["fixed", "fan_in"] = "fixed"
    """Standard deviation of the starting weights. fixed: 0.02, as transformers draws them; fan_in: one over the square
    root of a matrix' inputs, 1 for word embeddings, which narrow models with a vision tower need."""
    vision: VisionSettings | None = None
    """Vision tower of a policy that reads images; None: it reads text alone."""

    @property
    def head_width(self) -> int:
        """Width of an attention head."""
        return self.head or self.hidden // self.heads

    def __post_init__(self) -> None:
        if self.hidden % self.heads or self.heads % self.key_value_heads:
            raise UserError(
                f"policy.size: hidden {self.hidden} must be a multiple of heads {self.heads}, "
                f"and heads a multiple of key_value_heads {self.key_value_heads}"
            )
        if self.head_width % 2:
            setting = "head" if self.head else f"hidden {self.hidden} over heads {self.heads}"
            raise UserError(f"policy.size: {setting} is {self.head_width}, the width of a head, which must be even")
        if self.tied and self.spread == "fan_in":
            raise UserError(
                "policy.size.spread: fan_in draws embeddings and output projection apart; set policy.size.tied to false"
            )


@dataclass(frozen=True, kw_only=True)
class LoraSettings:
    """Low-rank adapters on the linear layers (Hu et al. 2021)."""

    rank: Annotated[int, Field(ge=1, le=4096)] = 16
    """Rank of the adapters' matrices."""
    alpha: Annotated[int, Field(ge=1, le=65_536)] = 32
    """Scale of the adapters; their product is multiplied by alpha / rank."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Dropout of the warm start only. The loop reads the policy without dropout: a ratio between two dropout masks
    would differ from 1 although the policy has not changed."""
    targets: str | tuple[str, ...] = "all-linear"
    """Names of the linear layers that get an adapter; all-linear: all except the output layer."""
    blocks: Annotated[int, Field(ge=1, le=4096)] | None = None
    """Number of blocks that get adapters: those whose removal changes the policy's own predictions least when the loop
    begins (skip analysis). None: all blocks."""


@dataclass(frozen=True, kw_only=True)
class StageSettings:
    """A recipe that runs before this one, and whose policy this one begins with."""

    recipe: Annotated[str, Field(min_length=1)]
    """Path or name of the recipe."""
    set: tuple[str, ...] = ()
    """Overrides of that recipe, `key.path=value` each."""


def _kind_of_base(base: object) -> str:
    return StageSettings.__name__ if isinstance(base, Mapping | StageSettings) else "str"


Base = Annotated[
    Annotated[str, Tag("str")] | Annotated[StageSettings, Tag(StageSettings.__name__)], Discriminator(_kind_of_base)
]
"""The model that a policy begins with: a name, or the recipe that makes it."""


@dataclass(frozen=True, kw_only=True)
class PolicySettings:
    """Policy that is trained, under `policy:`."""

    base: Base | None = None
    """Local model folder, GGUF file, name in the catalogue (`rewardflow base list`), hub id (OWNER/NAME@COMMIT; without
    a commit it is not pinned), or a registered version to continue training from: `champion` (the recipe's own),
    models:/NAME/VERSION, models:/NAME@ALIAS. `{recipe: NAME}`: the policy of another recipe, which runs first (a chain
    of stages). None: a new model of `size`, warm-started by supervised fine-tuning."""
    size: SizeSettings = SizeSettings()
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    lora: LoraSettings | None = None
    """Low-rank adapters that learn while the base stays frozen; None: all weights learn."""
    train: tuple[Part, ...] = ALL_PARTS
    """Parts that learn, of a policy that reads images: `language`, `connector`, `vision`. A new policy is warm-started
    whole."""
    subnetwork: SubnetworkSettings | None = None
    """Weights that learn by reinforcement; None: all."""
    chat: bool = False
    """Whether to wrap prompts in the tokenizer's chat template."""
    system: Annotated[str, Field(min_length=1)] | None = None
    """System message before every prompt of a chat policy; a row's own system message replaces it. None: none."""
    trust_remote_code: bool = False
    """Whether to run code that the base model ships. Leave it off unless you have read that code."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of matrix products; auto: bfloat16 on a GPU, float32 on a processor that emulates bfloat16, otherwise
    the faster one in a short measurement. Master weights are float32."""

    @property
    def named_base(self) -> str | None:
        """The base as a folder, hub id or address; None for a new model.

        Raises:
            UserError: another recipe makes it. A run replaces such a base by the version that the stage made.
        """
        if isinstance(self.base, StageSettings):
            raise UserError(
                f"policy.base: the recipe {self.base.recipe} makes the model in a run of its own; give the folder of "
                "its policy"
            )
        return self.base

    @property
    def room(self) -> int | None:
        """Longest sequence of a policy without a base model, in tokens; None: the limit of the base model."""
        return self.size.positions if self.base is None else None


def config_of(
    size: SizeSettings,
    vocabulary: int,
    *,
    pad: int | None = None,
    end: int | None = None,
    tokens: ImageTokens | None = None,
) -> Qwen3Config | Idefics3Config:
    """Build the config of a model from its size: Qwen3, or Idefics3 if it has a vision tower.

    Args:
        vocabulary: number of tokens.
        pad: id of the token that fills rows.
        end: id of the token that ends a completion.
        tokens: tokens of an image. Default: ids of 0, for callers that only need shapes.
    """
    from transformers import Qwen3Config

    text = _text_settings(size, vocabulary, pad, end)
    if size.vision is None:
        return Qwen3Config(**text, dtype="float32")
    if tokens is None:
        tokens = ImageTokens(size.vision.tokens, 0, (), (), size.vision.processor())
    return vision_config(size.vision, text, tokens)


def _text_settings(size: SizeSettings, vocabulary: int, pad: int | None, end: int | None) -> dict[str, Any]:
    """Return the settings that the configs of text models have in common; see `config_of`."""
    return {
        "vocab_size": vocabulary,
        "hidden_size": size.hidden,
        "num_hidden_layers": size.layers,
        "num_attention_heads": size.heads,
        "num_key_value_heads": size.key_value_heads,
        "head_dim": size.head_width,
        "intermediate_size": size.feed_forward,
        "max_position_embeddings": size.positions,
        "tie_word_embeddings": size.tied,
        "pad_token_id": pad,
        "eos_token_id": end,
        "bos_token_id": None,
    }


def new_shapes(config: Any) -> PreTrainedModel:
    """Build an untrained language model from its config, float32, for callers that only need shapes."""
    from transformers import PreTrainedModel

    model = _auto_class(config).from_config(config, dtype=torch.float32)
    assert isinstance(model, PreTrainedModel)
    return model


def new_policy(size: SizeSettings, tokenizer: PreTrainedTokenizerBase, seed: int) -> PreTrainedModel:
    """Build a Qwen3 model with random weights from `seed`, float32; with a vision tower if `size` has one."""
    pad, end = tokenizer.pad_token_id, tokenizer.eos_token_id
    tokens = image_tokens_of(tokenizer) if size.vision is not None else None
    if size.vision is not None and (tokens is None or tokens.count != size.vision.tokens):
        raise ValueError("the tokenizer was not made for the images of this policy")
    config = config_of(size, len(tokenizer), pad=pad, end=end, tokens=tokens)
    torch.manual_seed(seed)
    model = new_shapes(config)
    if size.spread == "fan_in":
        spread_by_inputs(model)
    return on_device(model)


def _auto_class(config: Any) -> Any:
    """Return the class of transformers that builds and loads models of this config."""
    from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

    return AutoModelForImageTextToText if has_tower(config) else AutoModelForCausalLM


def open_tokenizer(base: str | Path, *, trust_remote_code: bool = False) -> PreTrainedTokenizerBase:
    """Load the tokenizer of a base model.

    Raises:
        UserError: it is not available.
    """
    from transformers import AutoTokenizer

    origin = origin_of(base)
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            origin.name, revision=origin.revision, trust_remote_code=trust_remote_code
        )
    except (OSError, ValueError) as error:
        refuse_untrusted(error, base)
        raise UserError(f"policy.base: the tokenizer of {base} cannot be loaded ({first_line(error)})") from None
    adopt_images(tokenizer, origin.name, origin.revision)
    return tokenizer


def first_line(error: Exception) -> str:
    """Return the first line of an error's text, for a message of one line; of pydantic's errors the first message."""
    if isinstance(error, ValidationError):  # its first line is only the number of errors
        return str(error.errors()[0]["msg"]).removeprefix("Value error, ").split(". ")[0]
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def load_causal_model(name: str | Path, dtype: torch.dtype, *, trust_remote_code: bool = False) -> PreTrainedModel:
    """Load a causal language model from a model folder or a hub id, with every weight read from safetensors.

    Raises:
        UserError: it is not available or is broken, or weights are missing (transformers would initialise them
            randomly).
    """
    from transformers import AutoConfig, PreTrainedModel

    origin = origin_of(name)
    try:
        with _LOADING:
            config = AutoConfig.from_pretrained(
                origin.name, revision=origin.revision, trust_remote_code=trust_remote_code
            )
            loaded: Any = _auto_class(config).from_pretrained(
                origin.name,
                revision=origin.revision,
                dtype=dtype,
                use_safetensors=True,
                trust_remote_code=trust_remote_code,
                output_loading_info=True,
            )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        refuse_untrusted(error, name)
        raise UserError(f"{name}: the model cannot be loaded ({first_line(error)})") from None
    model, report = loaded
    if getattr(model, "_hf_peft_config_loaded", False):  # from the hub; folders are checked before anything is loaded
        raise UserError(f"{name}: holds an adapter next to the weights of a model; merge it first, or take its base")
    if report["missing_keys"]:
        missing = sorted(report["missing_keys"])
        raise UserError(f"{name}: the weights lack {missing[0]} ({len(missing)} missing in all)")
    assert isinstance(model, PreTrainedModel)
    adopt_processor(model.config, origin.name, origin.revision)
    return model


def open_policy(
    base: str | Path, *, trust_remote_code: bool = False
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Load a causal language model and its tokenizer, float32 master weights, on the learner's device.

    Raises:
        UserError: the folder is not a model folder, the hub model is not available, or vocabulary and weights differ.
    """
    name = str(base)
    folder = given_folder(name)
    if folder is not None:
        check_model_folder(folder)
        name = str(folder)
    tokenizer = open_tokenizer(name, trust_remote_code=trust_remote_code)
    model = load_causal_model(name, torch.float32, trust_remote_code=trust_remote_code)
    embeddings: Any = model.get_input_embeddings()
    rows = int(embeddings.weight.shape[0])
    if len(tokenizer) > rows:
        raise UserError(f"policy.base: {name} has {rows} embeddings but its tokenizer has {len(tokenizer)} tokens")
    return on_device(model), tokenizer


def with_adapter(model: PreTrainedModel, settings: LoraSettings, seed: int) -> PreTrainedModel:
    """Freeze `model` and add trainable low-rank adapters to it.

    Raises:
        UserError: the model has fewer blocks than `settings.blocks`, or none of its targets is in them.
    """
    from peft import LoraConfig, get_peft_model

    targets = settings.targets if isinstance(settings.targets, str) else list(settings.targets)
    if settings.blocks is not None:
        targets = adapted_modules(model, targets, settings.blocks, seed)
    torch.manual_seed(seed)
    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        lora_dropout=settings.dropout,
        target_modules=targets,
        task_type="CAUSAL_LM",
    )
    adapted: Any = get_peft_model(model, config)
    return cast("PreTrainedModel", adapted)  # it has the interface of the model that it wraps
