"""A training small enough to be repeated a hundred times: short arithmetic, a policy of 0.1M parameters, real parts.

The data set of the main recipe at its two easiest levels with its flawed demonstrations, and a supervised warm start
for every seed; then any recipe's slots through the unchanged loop, with the transformers engine, and pass@k on held-out
problems. The shared inputs of a seed's arms (data, warm start, the evaluation's draws) are the same to the bit, so that
they can be compared in pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from models.base.ranks import ALONE
from models.datasets.make_arithmetic import ArithmeticSettings, write
from models.datasets.params import checked, read_section
from models.datasets.prepare import prepare
from models.datasets.settings import DataSettings
from models.engines.engine import Engine, EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.evaluation.evaluate import evaluate
from models.evaluation.metrics import prompt_values
from models.evaluation.records import PromptRecord
from models.learner.optimiser import OptimiserSettings
from models.learner.supervised import SupervisedSettings, fit_supervised
from models.method.alarm import Collapse
from models.method.learner import Learner
from models.method.reward import Reward
from models.policies.build import SizeSettings, new_policy
from models.policies.fitted_tokenizer import fitted_tokenizer
from models.policies.folder import save_model_folder
from models.policies.weights import merged_weights
from models.recipes.load import load_recipe
from models.recipes.schema import Recipe
from models.reward_models.scorer import Scorer
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, load_tokenizer
from models.training.read_demonstrations import demonstrations
from models.training.read_problems import PromptSections, read_problems, read_prompts
from models.training.train import Training, TrainingFolders, open_training
from models.training.watchers import Watchers
from tasks.compute.open_engine import ScorerSections, reward_scorer
from tasks.registered.reward_model import RewardModelFiles

PARAMS = Path(__file__).resolve().parents[2] / "params.yaml"
FEW = {
    "start": [1, 9],
    "operand": [1, 5],
    "value": [-10, 20],
    "problems": {"train": [44, 460], "validation": [22, 170], "gate": [3, 5]},
    "demonstrations": {"train": 5000},
    "preferences": {"train": 300, "validation": 50},
}
SIZE = SizeSettings(hidden=64, layers=2, heads=2, key_value_heads=1, feed_forward=192, positions=64)
WARM_START = SupervisedSettings(
    steps=500, batch=64, optimiser=OptimiserSettings(learning_rate=4e-3, warmup_steps=20, decay="cosine")
)
COMMON = (
    "policy.precision=float32", "evaluation.problems=200", "rollouts.max_tokens=24", "schedule.samples_every=100000",
    "schedule.checkpoint_every=100000", "policy.size.positions=64", "validation.max_tokens=40",
    "alarm=null",
)  # fmt: skip


@dataclass(frozen=True)
class Toy:
    """Data and warm starts, one a seed."""

    folder: Path

    @property
    def data(self) -> Path:
        """The prepared data set."""
        return self.folder / "prepared"

    def start(self, seed: int) -> Path:
        """Return the warm-started policy of a seed, made on first use."""
        place = self.folder / f"start_{seed}"
        if not place.is_dir():
            tokenizer = fitted_tokenizer(self.data, TokenizerSettings(kind="words", vocabulary=512))
            model = new_policy(SIZE, tokenizer, seed)
            shown = demonstrations(self.data, Codec(tokenizer), "train", SIZE.positions)
            fit_supervised(model, shown, WARM_START, seed=seed)
            save_model_folder(model, tokenizer, place)
        return place


def make_toy(folder: Path, changed: Mapping[str, Any] = FEW) -> Toy:
    """Write the data set into `folder`; `changed`: the differences from the main recipe's data."""
    section: dict[str, Any] = read_section(PARAMS, "arithmetic")
    write(checked(ArithmeticSettings, section | changed, str(PARAMS)), folder / "raw")
    prepare(DataSettings(name="toy", path=(folder / "raw",), format="kinds"), folder / "prepared")
    return Toy(folder)


@dataclass(frozen=True)
class Arm:
    """One way to train: a recipe, overrides, and rewards instead of its own."""

    recipe: str
    overrides: tuple[str, ...] = ()
    rewards: tuple[Reward, ...] = ()


@dataclass
class ArmResult:
    """Result of an arm's training."""

    recipe: Recipe
    learner: Learner
    codec: Codec
    before: dict[str, Tensor]
    """The policy's weights when the loop began."""
    rounds: list[dict[str, float]] = field(default_factory=list)
    """Metrics of the loop for each round."""
    collapse: Collapse | None = None
    """Finding of the alarm, if the recipe has one and it fired."""

    def curve(self, name: str) -> list[float]:
        """Return one metric, round by round, for the rounds that have it."""
        return [metrics[name] for metrics in self.rounds if name in metrics]


def recipe_of(arm: Arm, seed: int, rounds: int) -> Recipe:
    """Load the recipe of an arm as the toy trains it."""
    return load_recipe(arm.recipe, [*COMMON, f"schedule.rounds={rounds}", f"seed={seed}", *arm.overrides])


def train(
    toy: Toy,
    arm: Arm,
    seed: int,
    rounds: int,
    reward_model: Path | None = None,
    watch: Callable[[int, Learner], None] = lambda number, learner: None,
) -> ArmResult:
    """Run an arm's loop from the warm start of its seed.

    Args:
        toy: data and warm starts.
        arm: what is trained; with `alarm` among its overrides the loop may stop before the last round.
        seed: seed of warm start and training.
        rounds: number of rounds of the loop.
        reward_model: folder of a fitted one, which the recipe's rewards read; None: those that need one are left out.
        watch: called after every round with the learner.
    """
    recipe = recipe_of(arm, seed, rounds)
    start = toy.start(seed)
    codec = Codec(load_tokenizer(start))
    rewards = tuple(reward for reward in recipe.rewards if reward_model or not reward.needs_reward_model)
    with TemporaryDirectory() as folder:
        training = Training.of(
            recipe,
            start,
            read_prompts(toy.data, codec, PromptSections(recipe)),
            Path(folder),
            folders=replace(TrainingFolders.below(Path(folder)), reference_log_probs=toy.folder),
            slots=replace(recipe.slots, rewards=arm.rewards or rewards),
            reward_model=reward_model,
        )

        def engine(autocast: torch.dtype | None) -> AbstractContextManager[Engine]:
            return closing(TransformersEngine(start, EngineSettings(), end=codec.end))

        with open_training(training, ALONE, engine) as opened:
            before = {name: value.detach().clone() for name, value in opened.learner.policy.state_dict().items()}
            trained = ArmResult(recipe, opened.learner, opened.codec, before)

            def keep(number: int, metrics: dict[str, float]) -> None:
                trained.rounds.append(metrics)
                watch(number, opened.learner)

            trained.collapse = opened.run(Watchers(metrics=keep))
    return trained


def open_reward_model(toy: Toy, recipe: Recipe, folder: Path) -> Scorer:
    """Open the scorer of completions with the fitted reward model in `folder`."""
    codec = Codec(load_tokenizer(toy.start(recipe.seed)))
    scorer: Scorer = reward_scorer(RewardModelFiles(folder, "", ""), ScorerSections(recipe), toy.folder, codec)
    return scorer


def held_out(
    toy: Toy, trained: ArmResult, names: Sequence[str], samples: int = 16, score: Scorer | None = None
) -> Mapping[str, float]:
    """Return means of held-out metrics, such as sampled_accuracy or pass_at_8, by name; all arms have the same
    draws."""
    records = answers(toy, trained, samples, score)
    return {name: float(prompt_values(records, name).mean()) for name in names}


def answers(toy: Toy, trained: ArmResult, samples: int = 16, score: Scorer | None = None) -> list[PromptRecord]:
    """Return the present policy's answers to the held-out problems, [problems]; `score` is a reward model's."""
    problems = read_problems(toy.data, trained.codec, "validation", PromptSections(trained.recipe))
    engine = TransformersEngine(toy.start(trained.recipe.seed), EngineSettings(), end=trained.codec.end)
    engine.load(merged_weights(trained.learner.policy))
    sampling = Sampling(max_tokens=trained.recipe.slots.rollouts.max_tokens, samples=samples)
    return evaluate(engine, trained.codec, problems, sampling, trained.recipe.seed, score)


def state_bytes(learner: Learner) -> int:
    """Count the bytes of every model that is kept and of the optimisers' moments."""
    modules = list(learner.moving.values())
    weights = sum(p.numel() * p.element_size() for module in modules for p in module.parameters())
    moments = sum(
        value.numel() * value.element_size()
        for optimiser in learner.optimisers.values()
        for entry in optimiser.state.values()
        for value in entry.values()
        if isinstance(value, Tensor)
    )
    return weights + moments
