"""The models that speak for the seats of an episode: the policy's engine, and frozen models.

A frozen model is one that a recipe names by its folder, or else the policy at the start of the run. A policy that was
trained with such a model keeps it in `partner/` of its own folder, so that it is measured with the same one. The words
of a frozen model depend only on the seeds of its seat, as the policy's do.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from models.base.errors import UserError
from models.engines.engine import Engine, EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.method.environment import Environment, Speaker
from models.policies.folder import check_model_folder
from models.text.bridge import Bridge, Role, bridge_of
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.prompt_form import PromptForm
from models.text.tokenizer import load_tokenizer

PARTNER = "partner"
"""Folder of the model that a policy was trained with, in its model folder."""


@dataclass(frozen=True, eq=False)
class SpeakerModel:
    """A model with its tokenizer and bridge."""

    engine: Engine
    codec: Codec
    bridge: Bridge | None
    """None if no seat takes a second turn."""


def voices_of(
    environment: Environment, policy: Engine, codec: Codec, role: Role, turns: int, policy_folder: Path | None
) -> Mapping[Speaker, SpeakerModel]:
    """Return the models of the speakers that an environment's seats name.

    Args:
        environment: names its frozen model, if it has one.
        policy: generates the policy's turns.
        codec: the policy's tokenizer.
        role: role of the environment in a chat template.
        turns: maximum number of turns of an episode.
        policy_folder: the policy's model folder, or that of the policy that a run begins with; None if it is unknown.

    Raises:
        UserError: a chat template cannot be continued, or the frozen model is missing.
    """
    bridge = bridge_of(codec, role) if turns > 1 else None
    voices: dict[Speaker, SpeakerModel] = {"policy": SpeakerModel(policy, codec, bridge)}
    if environment.asks_frozen:
        folder = frozen_folder(environment, policy_folder)
        voices["frozen"] = _opened(folder, (folder / "config.json").stat().st_mtime_ns, codec.chat, codec.form, role)
    return voices


def frozen_folder(environment: Environment, policy_folder: Path | None) -> Path:
    """Return the folder of an environment's frozen model.

    Raises:
        UserError: there is none.
    """
    folder = environment.frozen
    if folder is None and policy_folder is not None:
        folder = policy_folder / PARTNER if (policy_folder / PARTNER).is_dir() else policy_folder
    if folder is None:
        raise UserError(f"rollouts.environment: {environment.name} needs a model as partner; set its folder")
    check_model_folder(folder)
    return folder


def keep_partner(environment: Environment, start: Path, folder: Path) -> None:
    """Copy the frozen model into the folder of the trained policy, if it is the policy that the run began with."""
    if environment.asks_frozen and environment.frozen is None:
        shutil.copytree(
            frozen_folder(environment, start), folder / PARTNER, ignore=lambda at, names: {PARTNER} & set(names)
        )


@lru_cache(maxsize=1)
def _opened(folder: Path, changed: int, chat: bool, form: PromptForm, role: Role) -> SpeakerModel:
    """Open a frozen model and keep it open from round to round; `changed` is the time of its folder's last change."""
    ends = ends_of_folder(folder)
    codec = Codec(load_tokenizer(folder), chat, ends, form)
    engine = TransformersEngine(folder, EngineSettings(name="transformers", precision="float32"), end=codec.ends)
    return SpeakerModel(engine, codec, bridge_of(codec, role))
