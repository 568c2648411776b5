"""The frozen model that a policy is distilled from: a local model folder with the policy's own vocabulary.

Token ids and distributions are compared one to one, so a teacher with another tokenizer is refused. Additional rows of
its output projection beyond the tokens do not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from pydantic import Field

from models.base.device import on_device
from models.base.errors import UserError
from models.policies.build import load_causal_model
from models.policies.folder import check_model_folder
from models.text.tokenizer import load_tokenizer

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase


@dataclass(frozen=True, kw_only=True)
class FrozenSettings:
    """A frozen model: an existing one, or one that a recipe makes."""

    path: str | None = None
    """A local model folder with the policy's tokenizer."""
    recipe: str | None = None
    """Name of a recipe on the same data; its policy is made first, in the same run, and kept for other runs."""
    set: tuple[str, ...] = ()
    """Overrides of that recipe, `key.path=value` each."""
    _key: ClassVar[str] = "teacher"
    """Key of these settings in a recipe."""
    _least: ClassVar[int] = 1
    """Smallest number of settings that name the model; 0: the model is optional."""

    @property
    def _named(self) -> list[str]:
        return [name for name in ("path", "recipe") if getattr(self, name) is not None]

    def __post_init__(self) -> None:
        if not self._least <= len(self._named) <= 1:
            more = f", {' and '.join(self._named)}: set to null what is not meant" if self._named else ""
            raise UserError(
                f"{self._key}: exactly one of path, recipe and address must be set; {len(self._named)} are{more}"
            )
        if self.set and self.recipe is None:
            raise UserError(f"{self._key}.set: overrides are for {self._key}.recipe")


@dataclass(frozen=True, kw_only=True)
class ServedSettings(FrozenSettings):
    """A frozen model, local or on a server."""

    address: Annotated[str, Field(pattern=r"^https?://")] | None = None
    """Base address of an OpenAI-compatible server, such as http://127.0.0.1:8000/v1."""
    model: str | None = None
    """Name of the model on the server; None: the first that it lists."""

    @property
    def _named(self) -> list[str]:
        return [*super()._named, *(["address"] if self.address is not None else [])]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.model is not None and self.address is None:
            raise UserError(f"{self._key}.model: the name of a model is for {self._key}.address")


@dataclass(frozen=True, kw_only=True)
class ModelSettings(ServedSettings):
    """A frozen model that parts refer to by its name, an entry of `models:`."""

    _key: ClassVar[str] = "models"

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except UserError as error:  # the recipe's check adds the key of the entry
            raise ValueError(str(error).removeprefix("models: ").replace("models.", "")) from None


@dataclass(frozen=True, kw_only=True)
class RoleSettings(ServedSettings):
    """The model of a role, which may be an entry of `models:`."""

    name: str | None = None
    """Name of an entry of `models`, whose settings are taken; those given here replace them."""


@dataclass(frozen=True, kw_only=True)
class TeacherSettings(RoleSettings):
    """Teacher that the policy is distilled from, under `teacher:`; one on a server only scores given tokens."""

    contrast: FrozenSettings | None = None
    """Model that the teacher is contrasted with, for parts that need one."""


def open_frozen(
    folder: Path, tokenizer: PreTrainedTokenizerBase, role: str, *, dtype: torch.dtype, trust_remote_code: bool = False
) -> PreTrainedModel:
    """Load a frozen model with the policy's vocabulary on the learner's device.

    Args:
        folder: a model folder.
        tokenizer: the policy's tokenizer.
        role: key of the recipe that names it, for the error message.
        dtype: data type of its weights.

    Raises:
        UserError: the folder is not a model folder, cannot be loaded, or has another vocabulary than the policy.
    """
    check_model_folder(folder)
    check_vocabulary(folder, load_tokenizer(folder, trust_remote_code=trust_remote_code), tokenizer, role)
    model = load_causal_model(folder, dtype, trust_remote_code=trust_remote_code)
    on_device(model).eval().requires_grad_(False)
    return model


def check_vocabulary(folder: Path, theirs: PreTrainedTokenizerBase, ours: PreTrainedTokenizerBase, role: str) -> None:
    """Check that a model has the same vocabulary as the policy, with the same token ids.

    Raises:
        UserError: the vocabularies differ; the message names the first token that differs.
    """
    own: Mapping[str, int] = theirs.get_vocab()
    other: Mapping[str, int] = ours.get_vocab()
    if own == other:
        return
    different = [token for token in (*other, *own) if own.get(token) != other.get(token)]
    first = min(different, key=lambda token: (min(own.get(token, 2**62), other.get(token, 2**62)), token))
    shown = [f"id {ids[first]}" if first in ids else "no token" for ids in (own, other)]
    raise UserError(
        f"{role}: {folder} has another vocabulary than the policy: {first!r} is {shown[0]} there and {shown[1]} here "
        f"({len(different)} tokens differ); distillation compares distributions over the same tokens"
    )
