"""A policy learns hints for a frozen solver: the solver's weights stay, and another solver profits as well."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from models.agents.environments.solver import Solver
from models.agents.play.speakers import PARTNER
from models.engines.engine import EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.evaluation.bootstrap import Interval, bootstrap_mean
from models.evaluation.evaluate import evaluate
from models.evaluation.metrics import prompt_values
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings, build_optimiser
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings, fit_supervised
from models.method.environment import EpisodeSettings
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.schedule import ScheduleSettings
from models.method.slots import Slots
from models.parts.advantage.group_relative import GroupRelative
from models.parts.objective.grpo import Grpo
from models.parts.reference.frozen import Frozen
from models.parts.rewards.episodes.solved import Solved
from models.parts.rollouts.episodes import Episodes
from models.parts.select.drop_flat import DropFlat
from models.policies.build import SizeSettings, load_causal_model, new_policy
from models.policies.folder import save_model_folder
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, train_tokenizer
from models.training.loop import run_loop
from models.training.watchers import Watchers
from tests.support.tiny_resources import make_resources

DIGITS = "1234"
NAMES = ["a b", "b c", "c d", "d a"]
TOKENIZER = train_tokenizer(["a b c d 1 2 3 4 #### Hint: ask"], TokenizerSettings(kind="words", vocabulary=32))
CODEC = Codec(TOKENIZER)
PROBLEMS = [
    Problem(f"p{number}", text, DIGITS[number % 4], 1, tuple(CODEC.prompts([text])[0]))
    for number, text in enumerate(NAMES)
]
SIZE = SizeSettings(hidden=64, layers=1, heads=2, key_value_heads=1, feed_forward=64, positions=32)
FIT = SupervisedSettings(
    steps=150, batch=36, compile=False, optimiser=OptimiserSettings(learning_rate=0.01, warmup_steps=5)
)
SCHEDULE = ScheduleSettings(
    rounds=40,
    compile=False,
    checkpoint_every=100,
    samples_every=100,
    token_budget=4096,
    optimiser=OptimiserSettings(learning_rate=0.002, warmup_steps=1),
)
ROLLOUTS = Episodes(environment=Solver(asks="ask"), prompts=4, group_size=16, turns=1, turn_tokens=2, max_tokens=10)


def copying(seed: int, folder: Path) -> Path:
    """Write a model that copies a hint, answers at random without one, and writes hints at random."""
    shown = [(f"{name}\nHint: {digit}", f"#### {digit}") for name in NAMES for digit in DIGITS]
    shown += [(name, f"#### {digit}") for name in NAMES for digit in DIGITS]
    shown += [(f"{name}\nask\n", digit) for name in NAMES for digit in DIGITS]
    prompts, texts = ([row[side] for row in shown] for side in (0, 1))
    model = new_policy(SIZE, TOKENIZER, seed)
    fit_supervised(model, Sequences(CODEC.prompts(prompts), CODEC.completions(texts)), FIT, seed=seed)
    save_model_folder(model, TOKENIZER, folder)
    return folder


def accuracy(policy: Path, solver: Path) -> Interval:
    """Measure the accuracy of a solver with the hints of a policy."""
    settings = EpisodeSettings(
        environment=Solver(asks="ask", model=str(solver)), limits=ROLLOUTS.episodes.limits, role="user"
    )
    engine = TransformersEngine(policy, EngineSettings(precision="float32"), end=CODEC.ends)
    records = evaluate(engine, CODEC, PROBLEMS, Sampling(max_tokens=10, samples=16), 3, None, episodes=settings)
    return bootstrap_mean(prompt_values(records, "sampled_accuracy"))


def digest(folder: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in sorted(folder.glob("*.safetensors")))).hexdigest()


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Path]:
    place = tmp_path_factory.mktemp("solvers")
    return [copying(0, place / "own"), copying(1, place / "other")]


@pytest.mark.thorough
def test_training_lifts_a_frozen_solver_whose_weights_stay_and_a_solver_that_it_never_met(
    folders: Sequence[Path], tmp_path: Path
) -> None:
    own, other = folders
    hashes = [digest(folder) for folder in folders]
    before = [accuracy(own, solver) for solver in (own, other)]
    policy = load_causal_model(own, torch.float32)
    learner = Learner(policy, build_optimiser(policy, SCHEDULE.optimiser), None, None, None, MODEL_DISTRIBUTION)
    engine = TransformersEngine(own, EngineSettings(precision="float32"), end=CODEC.ends)
    slots = Slots(ROLLOUTS, [Solved()], [DropFlat(by="solved")], GroupRelative(), Grpo(kl=0.0), Frozen())
    resources = make_resources(engine, learner=learner, codec=CODEC, start=own)
    run_loop(resources, slots, SCHEDULE, PROBLEMS, tmp_path / "checkpoints", Watchers())
    trained = tmp_path / "trained"
    save_model_folder(policy, TOKENIZER, trained, lambda into: slots.rollouts.export(learner, CODEC, own, into))
    after = [accuracy(trained, solver) for solver in (own, other)]
    assert [digest(folder) for folder in folders] == hashes
    assert digest(trained / PARTNER) == hashes[0] != digest(trained)
    for start, end in zip(before, after, strict=True):
        assert end.estimate > start.estimate + 0.25, (start, end)
