"""Reward models of the toy: fitted as in the flow's steps, into a folder that a training of the toy opens."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.claims.toy import Toy
from models.datasets.schema import Split
from models.engines.engine import EngineSettings
from models.engines.transformers_engine import TransformersEngine
from models.policies.folder import save_model_folder
from models.recipes.schema import Recipe
from models.reward_models.fit_process import fit_process_model
from models.reward_models.model import reward_model_from_policy
from models.reward_models.process import write_reading
from models.reward_models.solutions import Solution
from models.text.encoding import Codec
from models.text.tokenizer import load_tokenizer
from models.training.read_problems import read_problems
from tasks.steps.label_steps import LabelSections, draw_and_label


def label(toy: Toy, recipe: Recipe, split: Split = "train") -> list[Solution]:
    """Draw solutions of a split's problems by the warm-started policy, labelled by the settings
    `recipe.reward_model.process`."""
    sections = LabelSections(recipe)
    count = sections.process.problems if split == "train" else sections.process.held_out
    start = toy.start(recipe.seed)
    codec = Codec(load_tokenizer(start))
    engine = TransformersEngine(start, EngineSettings(), end=codec.end)
    problems = read_problems(toy.data, codec, split, sections, count)
    return draw_and_label(sections, engine, codec, toy.data, split, problems)


def fit_to_steps(toy: Toy, recipe: Recipe, solutions: Sequence[Solution], folder: Path) -> Path:
    """Fit a process reward model to labelled solutions. Returns `folder`, which holds it."""
    section = recipe.reward_model
    assert section is not None and section.process is not None
    reading, start = section.process.reading, toy.start(recipe.seed)
    model = reward_model_from_policy(start, seed=recipe.seed)
    fit_process_model(model, solutions, section.fit, seed=recipe.seed)
    save_model_folder(model, load_tokenizer(start), folder, lambda into: write_reading(into, reading))
    return folder
