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
            with tempfile.TemporaryDirectory(dir=self.folder) as made:
                raw, prepared = Path(made) / "raw", Path(made) / "prepared"
                self._make(raw)
                prepare(DataSettings(name=self.task, path=(raw,), format="kinds"), prepared)
                _put(prepared, place)
        return place

    def _of_files(self, settings: DataSettings) -> Path:
        """Return the prepared data set of a user's files, made on first use."""
        files = (*files_of(settings.path or ()), *files_of(settings.test_path or (), "data.test_path"))
        made_of = digest(settings.model_dump(mode="json"), [sha256_of(file) for file in files])
        place = self.folder / f"prepared_{made_of[:12]}"
        if not place.is_dir():
            with tempfile.TemporaryDirectory(dir=self.folder) as made:
                prepare(settings, Path(made) / "prepared")
                _put(Path(made) / "prepared", place)
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
        said = plain(recipe)
        role = None if episodes is None else episodes.role
        made_of = digest(
            said["policy"]["size"], said["policy"]["tokenizer"], said["policy"]["precision"],
            said["warm_start"], self.data.name, role or "",
            *([said["rollouts"]["feedback"]] if settings.shows == "feedback" else []),
        )  # fmt: skip
        place = self.folder / f"start_{recipe.seed}_{made_of[:12]}"
        if not place.is_dir():
            tokenizer = fitted_tokenizer(self.data, recipe.policy.tokenizer)
            model = new_policy(recipe.policy.size, tokenizer, recipe.seed)
            longest = recipe.policy.size.positions
            shown = demonstrations(
                self.data, Codec(tokenizer), "train", longest, settings, role, adviser=recipe.rollouts.adviser
            )
            fit_supervised(model, shown, settings, seed=recipe.seed, autocast=self.autocast(recipe, model))
            half = self.folder / f".{place.name}.{torch.randint(2**40, ()).item()}"
            save_model_folder(model, tokenizer, half)
            _put(half, place)
        return place

    def autocast(self, recipe: Recipe, model: nn.Module) -> torch.dtype | None:
        """Return the dtype of the recipe's precision for a model on this machine, measured once; None: float32."""
        return autocast_rule(recipe.policy.precision, self.folder / "precision")(model)


def _put(made: Path, place: Path) -> None:
    """Move what was made to its place, complete; another process may have been first, with the same content."""
    try:
        made.rename(place)
    except OSError:
        shutil.rmtree(made)
