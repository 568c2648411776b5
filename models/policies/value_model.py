"""A folder with a value model of texts: a backbone and a linear head that reads its states.

    config.json, *.safetensors    the backbone, a model without an output layer
    value_head.safetensors        weight [outputs, hidden] and bias [outputs] of the head
    value.json                    how the head's outputs become a value

The value of a text is read at the state of its last token: the expected reward of the completion that begins with it.
A policy whose values were fitted has this folder in its model folder as `values/`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from models.base.atomic_write import write_file
from models.base.device import device
from models.base.errors import UserError
from models.learner.all_completions import all_states
from models.learner.log_probs import use_packed_attention
from models.learner.packing import Sequences

VALUES = "values"
"""Folder of a policy's value model, in its model folder."""
HEAD, READING = "value_head.safetensors", "value.json"
LEAST = 1e-30
"""Smallest mean of exponentials whose logarithm is taken."""


@dataclass(frozen=True)
class ValueReading:
    """Meaning of the head's outputs."""

    centres: tuple[float, ...] = ()
    """Value of each bin of a head that classifies, [outputs]; empty: the head has one output, which is the value."""
    risk: float = 0.0
    """0: the value is the expected reward. Above 0: the head estimates E[exp(risk * reward)], and the value is
    log E / risk."""

    def values(self, outputs: Tensor) -> Tensor:
        """Convert the head's outputs to values, [tokens, outputs] -> [tokens]."""
        if self.centres:
            expected = outputs.softmax(-1) @ torch.tensor(self.centres, dtype=outputs.dtype, device=outputs.device)
        else:
            expected = outputs.squeeze(-1)
        return expected.clamp(min=LEAST).log() / self.risk if self.risk else expected


@dataclass(frozen=True)
class ValueModel:
    """An open value model."""

    backbone: Any
    head: nn.Linear
    reading: ValueReading

    @property
    def vocabulary(self) -> int:
        """Rows of the backbone's embedding."""
        return vocabulary_of(self.backbone)

    def values(self, states: Tensor) -> Tensor:
        """Compute the value at each state of the backbone, [tokens, hidden] -> [tokens]."""
        return self.reading.values(
            functional.linear(states.to(self.head.weight.dtype), self.head.weight, self.head.bias)
        )

    def of_texts(self, prompts: Sequence[Sequence[int]], texts: Sequence[Sequence[int]]) -> list[float]:
        """Return the value of each text after its prompt, read at its last token, [texts].

        Args:
            prompts: token ids, [texts].
            texts: token ids, not empty, [texts].
        """
        closed = [(*text, text[-1]) for text in texts]  # the state that would predict one more token
        sequences = Sequences(prompts, closed)
        budget = max([16384, *sequences.lengths])
        rows = all_states(self.backbone, sequences, autocast=None, token_budget=budget, setting="token_budget")
        return [float(value) for value in self.values(torch.stack([row[-1] for row in rows]))] if rows else []


def vocabulary_of(model: Any) -> int:
    """Return the number of rows of a model's embedding."""
    return int(model.get_input_embeddings().weight.shape[0])


def save_value_model(backbone: Any, head: nn.Linear, reading: ValueReading, folder: Path) -> None:
    """Write a value model into `folder`, which is created."""
    folder.mkdir(parents=True, exist_ok=True)
    backbone.save_pretrained(folder)
    save_file({name: value.detach().cpu().contiguous() for name, value in head.state_dict().items()}, folder / HEAD)
    write_file(folder / READING, json.dumps(asdict(reading), indent=1) + "\n")


def value_folder(folder: Path) -> Path:
    """Return the folder of a value model: `folder` itself, or `values/` in a policy's model folder.

    Raises:
        UserError: neither holds a value model.
    """
    for place in (folder, folder / VALUES):
        if (place / READING).is_file() and (place / HEAD).is_file():
            return place
    raise UserError(
        f"{folder}: holds no value model; the recipe value_augmented_sampling writes {VALUES}/ into a policy"
    )


def load_value_model(folder: Path, dtype: torch.dtype = torch.float32) -> ValueModel:
    """Load the value model of a folder, read-only, on the learner's device.

    Args:
        folder: see `value_folder`.
        dtype: data type of backbone and head.

    Raises:
        UserError: there is none, or it is broken.
    """
    from transformers import AutoModel

    place = value_folder(folder)
    try:
        settings = json.loads((place / READING).read_text(encoding="utf-8"))
        reading = ValueReading(tuple(map(float, settings["centres"])), float(settings["risk"]))
        weights = load_file(place / HEAD)
        loaded: Any = AutoModel.from_pretrained(place, dtype=dtype, use_safetensors=True, output_loading_info=True)
        backbone, report = loaded
        if report["missing_keys"]:
            raise ValueError(f"the weights lack {sorted(report['missing_keys'])[0]}")
        outputs, hidden = weights["weight"].shape
        head = nn.Linear(hidden, outputs, dtype=dtype)
        head.load_state_dict(weights)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, SafetensorError) as error:
        first = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise UserError(f"{place}: the value model cannot be read ({first})") from None
    backbone.to(device()).eval().requires_grad_(False)
    use_packed_attention(backbone)
    return ValueModel(backbone, head.to(device()).requires_grad_(False), reading)
