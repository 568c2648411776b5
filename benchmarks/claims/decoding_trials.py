"""Claims about decoding: a small tuned model lifts a larger untouched one (172), and values guide a policy (166)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.claims.toy import WARM_START, Arm, ArmResult, Toy, held_out, train
from models.agents.strategies.combined import Combined
from models.agents.strategies.value_guided import ValueGuided
from models.agents.strategy import Strategic, Strategy
from models.engines.engine import EngineSettings, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.evaluation.evaluate import evaluate
from models.evaluation.metrics import prompt_values
from models.learner.supervised import fit_supervised
from models.policies.build import SizeSettings, new_policy
from models.policies.folder import save_model_folder
from models.policies.weights import plain_model
from models.text.encoding import Codec
from models.text.tokenizer import load_tokenizer
from models.training.read_demonstrations import demonstrations
from models.training.read_problems import PromptSections, read_problems

ROUNDS = 40
METRIC = "sampled_accuracy"
PROMPTS = ("rollouts.prompts=32", "rewards=[{name: exact_answer}]")
TUNED = Arm("grpo", PROMPTS)
VALUED = Arm("value_augmented_sampling", PROMPTS)
PPO = Arm("ppo", ("rollouts.prompts=32", "rollouts.group_size=8", "rewards=[{name: exact_answer}]"))
"""PPO with as many completions."""
LARGE = SizeSettings(hidden=128, layers=3, heads=4, key_value_heads=2, feed_forward=384, positions=64)
BETA = 10.0
"""Factor of the values of a reward that is 0 or 1."""


def large_start(toy: Toy, seed: int) -> Path:
    """Return a larger policy with the same warm start as the toy's, made on first use."""
    place = toy.folder / f"large_start_{seed}"
    if not place.is_dir():
        tokenizer = load_tokenizer(toy.start(seed))
        model = new_policy(LARGE, tokenizer, seed)
        fit_supervised(
            model, demonstrations(toy.data, Codec(tokenizer), "train", LARGE.positions), WARM_START, seed=seed
        )
        save_model_folder(model, tokenizer, place)
    return place


def accuracy_with(toy: Toy, policy: Path, strategy: Strategy, trained: ArmResult) -> float:
    """Return the held-out accuracy of a policy's folder with a strategy, on the draws of `held_out`."""
    problems = read_problems(toy.data, trained.codec, "validation", PromptSections(trained.recipe))
    engine = TransformersEngine(policy, EngineSettings(), end=trained.codec.end)
    sampling = Sampling(max_tokens=trained.recipe.slots.rollouts.max_tokens, samples=16, log_probs=False)
    strategic = Strategic(engine, trained.codec, strategy, LARGE.positions)
    records = evaluate(strategic, trained.codec, problems, sampling, trained.recipe.seed, None)
    return float(prompt_values(records, METRIC).mean())


def lift_of_the_large(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure the gain of an untouched large policy by what reinforcement learning changed in a small one."""
    small, large = toy.start(seed), large_start(toy, seed)
    trained = train(toy, TUNED, seed, ROUNDS)
    with TemporaryDirectory() as folder:
        tuned = Path(folder) / "tuned"
        save_model_folder(plain_model(trained.learner.policy), trained.codec.tokenizer, tuned)
        combined = Combined(tuned=str(tuned), base=str(small))
        reached = {
            "large alone": accuracy_with(toy, large, Combined(b=0.0), trained),
            "large with small": accuracy_with(toy, large, combined, trained),
            "small tuned": held_out(toy, trained, [METRIC])[METRIC],
            "small alone": accuracy_with(toy, small, Combined(b=0.0), trained),
        }
    return reached["large with small"] - reached["large alone"], reached


def lead_of_values_over_ppo(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure the lead of a frozen policy with values over PPO, both with as many completions of the same prompts."""
    valued = train(toy, VALUED, seed, ROUNDS)
    with TemporaryDirectory() as folder:
        policy = Path(folder) / "policy"
        save_model_folder(
            plain_model(valued.learner.policy),
            valued.codec.tokenizer,
            policy,
            lambda into: valued.recipe.slots.advantage.export(valued.learner, into),
        )
        reached = {
            f"values, beta {beta:g}": accuracy_with(
                toy, policy, ValueGuided(values=(str(policy),), betas=(beta,)), valued
            )
            for beta in (0.0, BETA / 3, BETA)
        }
    reached["ppo"] = held_out(toy, train(toy, PPO, seed, ROUNDS), [METRIC])[METRIC]
    return reached[f"values, beta {BETA:g}"] - reached["ppo"], reached
