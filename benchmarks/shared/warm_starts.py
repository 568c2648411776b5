"""Starting points of trainings outside the pipeline: prepared data and warm-started policies, made once in a folder.

The data are made and prepared by params.yaml, or prepared from a user's files, without versions or validation; the warm
start is that of the recipe, its tokenizer fitted to the data. It needs models/ alone.
"""

from __future__ import annotations

import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from benchmarks.league.records import code_digest
from models.base.errors import UserError
from models.datasets import make_arithmetic
from models.datasets.built_in import TASK_SETS
from models.datasets.data_files import files_of
from models.datasets.make_arithmetic import ArithmeticSettings
from models.datasets.params import checked, read_section
from models.datasets.prepare import prepare, sha256_of
from models.datasets.settings import DataSettings
from models.learner.precision import autocast_rule
from models.learner.supervised import fit_supervised
from models.policies.build import new_policy
from models.policies.fitted_tokenizer import fitted_tokenizer
from models.policies.folder import save_model_folder
from models.recipes.load import digest, plain
from models.recipes.schema import Recipe
from models.task_sets import make_tasks
from models.text.encoding import Codec
from models.training.read_demonstrations import demonstrations

PARAMS = Path(__file__).resolve().parents[2] / "params.yaml"
TASK = "arithmetic"
"""The main recipe, and its data set."""


@dataclass(frozen=True)
class Work:
    """Data and warm starts that several trainings share."""

    folder: Path
    task: str = TASK
    """Name of the data set, one of those that are made here."""
    given: DataSettings | None = None
    """A user's files instead of the data set."""

    @property
    def data(self) -> Path:
        """The prepared data set of params.yaml, or of the given files, made on first use."""
        if self.given is not None:
            return self._of_files(self.given)
        place = self.folder / f"prepared_{digest(read_section(PARAMS, self.task), code_digest())[:12]}"
        if not place.is_dir():
            with tempfile.TemporaryDirectory(dir=self.folder) as temporary:
                raw, prepared = Path(temporary) / "raw", Path(temporary) / "prepared"
                self._make(raw)
                prepare(DataSettings(name=self.task, path=(raw,), format="kinds"), prepared)
                _put(prepared, place)
        return place

    def _of_files(self, settings: DataSettings) -> Path:
        """Return the prepared data set of a user's files, made on first use."""
        files = (*files_of(settings.path or ()), *files_of(settings.test_path or (), "data.test_path"))
        content_digest = digest(settings.model_dump(mode="json"), [sha256_of(file) for file in files])
        place = self.folder / f"prepared_{content_digest[:12]}"
        if not place.is_dir():
            with tempfile.TemporaryDirectory(dir=self.folder) as temporary:
                prepare(settings, Path(temporary) / "prepared")
                _put(Path(temporary) / "prepared", place)
        return place

    def _make(self, raw: Path) -> None:
        section, where = read_section(PARAMS, self.task), f"{PARAMS}: {self.task}"
        if self.task in TASK_SETS:
            make_tasks.write(checked(make_tasks.settings_type(self.task), section, where), raw)
        else:
            make_arithmetic.write(checked(ArithmeticSettings, section, where), raw)

    def start(self, recipe: Recipe) -> Path:
        """Return the warm-started policy of the recipe's data, policy and seed, made on first use.

        Raises:
            UserError: the recipe has no warm start, or begins with a model that is given.
        """
        settings, episodes = recipe.warm_start, recipe.rollouts.episodes
        if settings is None or recipe.policy.base is not None:
            raise UserError(f"{recipe.name}: a training here begins with a warm start of a new policy")
        plain_recipe = plain(recipe)
        role = None if episodes is None else episodes.role
        content_digest = digest(
            plain_recipe["policy"]["size"], plain_recipe["policy"]["tokenizer"], plain_recipe["policy"]["precision"],
            plain_recipe["warm_start"], self.data.name, role or "",
            *([plain_recipe["rollouts"]["feedback"]] if settings.shows == "feedback" else []),
            *([plain_recipe["rollouts"]["environment"]] if recipe.rollouts.teaches is not None else []),
        )  # fmt: skip
        place = self.folder / f"start_{recipe.seed}_{content_digest[:12]}"
        if not place.is_dir():
            tokenizer = fitted_tokenizer(self.data, recipe.policy.tokenizer)
            model = new_policy(recipe.policy.size, tokenizer, recipe.seed)
            longest = recipe.policy.size.positions
            parts = (role, None, recipe.rollouts.adviser, recipe.rollouts.teaches)
            rows = demonstrations(self.data, Codec(tokenizer), "train", longest, settings, *parts)
            fit_supervised(model, rows, settings, seed=recipe.seed, autocast=self.autocast(recipe, model))
            unfinished = self.folder / f".{place.name}.{torch.randint(2**40, ()).item()}"
            save_model_folder(model, tokenizer, unfinished)
            _put(unfinished, place)
        return place

    def autocast(self, recipe: Recipe, model: nn.Module) -> torch.dtype | None:
        """Return the dtype of the recipe's precision for a model on this machine, measured once; None: float32."""
        return autocast_rule(recipe.policy.precision, self.folder / "precision")(model)


def _put(folder: Path, place: Path) -> None:
    """Move a complete folder to its place; another process may have been first, with the same content."""
    try:
        folder.rename(place)
    except OSError:
        shutil.rmtree(folder)
