"""A reward model: the policy's architecture with a linear score head instead of the language-model head.

The score of a sequence is read at its last token, which is found by length only. Sequences are not padded, so an end
token that is also the padding token cannot shift the position. The class's own forward is not used: it looks for the
last token that is not the padding id, and reads the wrong position if the two ids are equal.

On disk it is an ordinary Hugging Face folder of a sequence classifier with one label. transformers has no such classes
for models with a vision tower; they are made here of its parts, and keep its names of weights.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from models.base.errors import UserError
from models.base.ranks import whole
from models.base.remote_code import refuse_untrusted
from models.learner.log_probs import row_states, use_packed_attention
from models.learner.packing import Sequences, packed_row
from models.learner.whole_weights import with_whole_weights
from models.policies.folder import check_classifier_code, check_model_folder

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def reward_model_from_policy(
    policy: Path, *, seed: int, head_std: float = 0.01, trust_remote_code: bool = False
) -> PreTrainedModel:
    """Create a reward model with the body of a policy folder and a new head, in float32 on the CPU.

    Args:
        policy: folder of a causal language model.
        seed: seed of the head's weights; no other random state is read or changed.
        head_std: standard deviation of the head's weights. Small, so that all scores start near zero.
        trust_remote_code: run code that the model ships.

    Raises:
        UserError: the folder is not a model folder, or its architecture has no sequence classifier.
    """
    model = _load(policy, trust_remote_code)
    generator = torch.Generator().manual_seed(seed)
    head = _head(model)
    with torch.no_grad():
        head.copy_(torch.randn(head.shape, generator=generator, dtype=torch.float32) * head_std)
    return model


def load_reward_model(folder: Path, *, trust_remote_code: bool = False) -> PreTrainedModel:
    """Load the reward model in `folder`, in float32 on the CPU, in eval mode.

    `trust_remote_code` runs code that the folder contains.

    Raises:
        UserError: the folder is not a model folder, or holds a language model without a score head.
    """
    check_model_folder(folder)
    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if not _is_classifier(settings):
        held = ", ".join(settings.get("architectures") or []) or "no architecture"
        raise UserError(f"{folder}: holds {held}, not a reward model")
    return _load(folder, trust_remote_code)


def score(model: PreTrainedModel, sequences: Sequences, *, autocast: torch.dtype | None = None) -> Tensor:
    """Score each prompt with its completion, [completions], float32 (float64 for a float64 model); gradient flows.

    Args:
        model: a reward model.
        sequences: prompts and completions, [completions]; they are read as one row, equal prompts once.
        autocast: precision of the body's matrix products; the head is always computed in the precision of its weights.
    """
    use_packed_attention(model)
    row = packed_row(sequences, model.device)

    def read() -> Tensor:
        states = row_states(model, row.ids, row.positions, row.layout, autocast).index_select(0, row.last)
        return scores_of(model, states)

    return with_whole_weights(model, read)


def score_and_states(
    model: PreTrainedModel, sequences: Sequences, autocast: torch.dtype | None = None
) -> tuple[Tensor, list[Tensor]]:
    """Return the result of `score`, and the hidden states of each completion's tokens, from one forward pass.

    The states are [completions] tensors of [tokens of it, hidden], float32 at least; gradient flows through both.

    Args:
        model: a reward model.
        sequences: prompts and completions, [completions], not nested: in a row a completion is contiguous.
        autocast: see `score`.
    """
    use_packed_attention(model)
    row = packed_row(Sequences(sequences.prompts, sequences.completions), model.device)

    def read() -> tuple[Tensor, list[Tensor]]:
        states = row_states(model, row.ids, row.positions, row.layout, autocast)
        wide = states.to(torch.promote_types(states.dtype, torch.float32))
        ends = (row.last + 1).tolist()
        lengths = map(len, sequences.completions)
        stretches = [wide[end - length : end] for end, length in zip(ends, lengths, strict=True)]
        return scores_of(model, states.index_select(0, row.last)), stretches

    return with_whole_weights(model, read)


def scores_of(model: PreTrainedModel, states: Tensor) -> Tensor:
    """Apply the head to the hidden states of last tokens, [completions, hidden] -> [completions]."""
    head = _head(model)
    return functional.linear(states.to(head.dtype), head).squeeze(-1)


def _load(folder: Path, trust_remote_code: bool) -> PreTrainedModel:
    from transformers.utils import logging as transformers_logging

    check_model_folder(folder)
    if trust_remote_code:
        check_classifier_code(folder)
    options: dict[str, Any] = {
        "dtype": torch.float32,
        "use_safetensors": True,
        "local_files_only": True,
        "trust_remote_code": trust_remote_code,
    }
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.ERROR)  # the new head is intended, and must not warn the user
    try:
        with torch.random.fork_rng(devices=[]):
            model: PreTrainedModel = _open(folder, options)
    except (OSError, ValueError, KeyError) as error:
        refuse_untrusted(error, folder)
        raise UserError(
            f"{folder}: cannot be opened as a reward model ({str(error).strip().splitlines()[0]})"
        ) from None
    finally:
        transformers_logging.set_verbosity(verbosity)
    if not hasattr(model, "score"):
        raise UserError(f"{folder}: a {model.config.model_type} model has no score head to learn a reward with")
    for values in model.parameters():
        # Values read from a file may be unaligned, and rounding depends on the alignment; a copy is aligned.
        values.data = values.data.clone()
    model.train(False)
    return model


def _open(folder: Path, options: dict[str, Any]) -> Any:
    """Open a policy folder or the folder of a reward model as a sequence classifier with one label."""
    from transformers import AutoModelForImageTextToText, AutoModelForSequenceClassification

    settings = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if settings.get("vision_config") is None:
        return AutoModelForSequenceClassification.from_pretrained(folder, num_labels=1, **options)
    if _is_classifier(settings):
        return _class_with_tower(_config_of(folder, options)).from_pretrained(folder, **options)
    policy: Any = AutoModelForImageTextToText.from_pretrained(folder, **options)
    policy.config.num_labels = 1
    with torch.device("meta"):  # all weights are replaced
        model: Any = _class_with_tower(policy.config)(policy.config)
    setattr(model, model.base_model_prefix, policy.base_model)
    model.score = nn.Linear(model.score.in_features, 1, bias=False)
    return model


def _is_classifier(settings: dict[str, Any]) -> bool:
    """Return whether the content of a config.json is that of a sequence classifier."""
    return any(name.endswith("ForSequenceClassification") for name in settings.get("architectures") or [])


def _config_of(folder: Path, options: dict[str, Any]) -> Any:
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(folder, trust_remote_code=options["trust_remote_code"])


def _class_with_tower(config: Any) -> Any:
    """Make the class of sequence classifiers with a vision tower, from the parts of transformers' classes.

    Raises:
        KeyError: transformers has no models of this config that read images.
    """
    from transformers import PreTrainedModel
    from transformers.modeling_layers import GenericForSequenceClassification
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING

    policy: Any = MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING[type(config)]
    own = next(base for base in policy.__bases__ if issubclass(base, PreTrainedModel))
    name = f"{policy.__name__.removesuffix('ForConditionalGeneration')}ForSequenceClassification"
    return type(name, (GenericForSequenceClassification, own), {})


def _head(model: PreTrainedModel) -> Tensor:
    """Return the weights of the score head, [1, hidden]."""
    return whole(cast(nn.Linear, model.score).weight)
