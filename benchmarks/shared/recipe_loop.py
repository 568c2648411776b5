"""A recipe's loop on one machine, opened from a warm start with models/ alone: no orchestrator, no tracking."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.shared.warm_starts import Work
from models.base.ranks import ALONE
from models.engines.engine import Engine
from models.engines.open_engine import open_engine
from models.method.alarm import AlarmSettings
from models.method.learner import Role
from models.method.reward import Reward
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.prompt_form import PromptForm
from models.text.tokenizer import load_tokenizer
from models.training.read_problems import PromptSections, longest_in_training, read_prompts
from models.training.train import OpenTraining, Training, TrainingFolders, open_training


def codec_of(recipe: Any, folder: Path) -> Codec:
    """Open the tokenizer of a model folder with the recipe's chat, template and system message."""
    form = PromptForm.of(recipe.policy.system, recipe.data.template)
    return Codec(load_tokenizer(folder), recipe.policy.chat, ends_of_folder(folder), form)


@contextmanager
def open_loop(
    work: Work,
    recipe: Any,
    start: Path,
    rewards: Sequence[Reward],
    frozen: Mapping[Role, Path] | None = None,
    reward_model: Path | None = None,
    folder: Path | None = None,
    alarm: AlarmSettings | None = None,
) -> Iterator[OpenTraining]:
    """Open the models that a recipe's rounds need; they are closed at the end.

    Args:
        work: the data, and the measured precisions.
        recipe: what is trained.
        start: the model folder that it begins with.
        rewards: instead of the recipe's own.
        frozen: folders of the models that it learns from, by role.
        reward_model: folder of a fitted one, which rewards may read.
        folder: folder of the checkpoints; None: an empty one that is deleted.
        alarm: what ends the rounds early; None: nothing does.

    Raises:
        UserError: the data have no prompts that fit, or a folder holds no model.
    """
    codec, sections = codec_of(recipe, start), PromptSections(recipe)
    problems = read_prompts(work.data, codec, sections)

    def engine(autocast: torch.dtype | None) -> AbstractContextManager[Engine]:
        longest, dtype = longest_in_training(problems, codec, sections), autocast or torch.float32
        return closing(
            open_engine(start, recipe.engine, longest=longest, end=codec.ends, seed=recipe.seed, dtype=dtype)
        )

    with tempfile.TemporaryDirectory() as deleted:
        place = folder or Path(deleted)
        folders = replace(
            TrainingFolders.below(place), precisions=work.folder / "precision", reference_log_probs=work.folder
        )
        training = Training.of(
            recipe,
            start,
            problems,
            place,
            folders=folders,
            slots=replace(recipe.slots, rewards=tuple(rewards)),
            alarm=alarm,
            teachers=frozen or {},
            served=None,
            reward_model=reward_model,
        )
        with open_training(training, ALONE, engine) as opened:
            yield opened
