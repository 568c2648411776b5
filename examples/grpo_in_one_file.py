"""GRPO in one file: a policy learns arithmetic, with every step of a round written out.

    python examples/grpo_in_one_file.py            # three rounds, under a minute on two cores

It makes a small data set and a policy that has seen 120 batches of solutions. Then each round samples a group of
completions for each prompt, scores them, compares each with its group, and takes one step on the clipped policy
gradient with a KL term to the policy as it began. The functions are those of the project; the loop is written here. The
recipe `grpo` with the settings of `RECIPE` ends at the same weights, bit for bit
(tests/examples/test_grpo_in_one_file.py).
"""

from __future__ import annotations

import argparse
import copy
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from models.answers.exact import is_right
from models.base.seeds import round_seed
from models.datasets import make_arithmetic
from models.datasets.make_arithmetic import ArithmeticSettings
from models.datasets.params import checked, read_section
from models.datasets.prepare import prepare
from models.datasets.settings import DataSettings
from models.engines.engine import EngineSettings, Generated, Sampling
from models.engines.transformers_engine import TransformersEngine
from models.learner.all_completions import all_log_probs
from models.learner.log_probs import completion_log_probs
from models.learner.optimiser import OptimiserSettings, build_optimiser, take_step
from models.learner.packing import Sequences
from models.learner.reduce import token_weights
from models.learner.rows import rows_of
from models.learner.supervised import SupervisedSettings, fit_supervised
from models.method.curriculum import prompts_of_round
from models.method.problem import Problem
from models.policies.build import SizeSettings, load_causal_model, new_policy
from models.policies.fitted_tokenizer import fitted_tokenizer
from models.policies.folder import save_model_folder
from models.recipes.load import load_recipe
from models.text.encoding import Codec
from models.text.tokenizer import TokenizerSettings, load_tokenizer
from models.training.read_demonstrations import demonstrations
from models.training.read_problems import PromptSections, read_prompts

PARAMS = Path(__file__).resolve().parents[1] / "params.yaml"
SEED, ROUNDS = 1, 3
PROMPTS, GROUP, MAX_TOKENS = 16, 8, 32
KL, CLIP, CEILING = 0.04, 0.2, 2.0
STEP = OptimiserSettings(learning_rate=3e-4, weight_decay=0.0, warmup_steps=5, decay="none")
RECIPE = (
    f"seed={SEED}", "policy.precision=float32", "reward_model=null", "rewards=[exact_answer]",
    f"rollouts={{name: sample, prompts: {PROMPTS}, group_size: {GROUP}, max_tokens: {MAX_TOKENS}}}",
    f"schedule.rounds={ROUNDS}",
)  # fmt: skip
"""Settings of the recipe `grpo` that make it this file."""


def make_data(folder: Path) -> Path:
    """Make and prepare a small data set of arithmetic in words. Returns its folder."""
    settings = checked(ArithmeticSettings, read_section(PARAMS, "arithmetic"), str(PARAMS))
    few = {
        "problems": {"train": [150, 400], "validation": [20, 40], "gate": [5, 5]},
        "demonstrations": {"train": 4000, "validation": 50},
        "preferences": {"train": 50, "validation": 10},
    }
    make_arithmetic.write(ArithmeticSettings.model_validate(settings.model_dump() | few), folder / "raw")
    prepare(DataSettings(name="arithmetic", path=(folder / "raw",), format="kinds"), folder / "prepared")
    return folder / "prepared"


def make_start(data: Path, folder: Path) -> Path:
    """Fit a tokenizer and a new policy of 0.7M parameters to demonstrations. Returns the model folder."""
    tokenizer, size = fitted_tokenizer(data, TokenizerSettings()), SizeSettings()
    policy = new_policy(size, tokenizer, SEED)
    settings = SupervisedSettings(steps=120, optimiser=OptimiserSettings(learning_rate=3e-3, warmup_steps=20))
    shown = demonstrations(data, Codec(tokenizer), "train", size.positions, settings, None)
    fit_supervised(policy, shown, settings, seed=SEED)
    save_model_folder(policy, tokenizer, folder / "start")
    return folder / "start"


def prompts_of(data: Path, start: Path) -> Sequence[Problem]:
    """Read the training prompts, encoded with the policy's tokenizer."""
    return read_prompts(data, Codec(load_tokenizer(start)), PromptSections(load_recipe("grpo", list(RECIPE))))


def rewards_of(prompts: Sequence[Problem], groups: Sequence[Sequence[Generated]], codec: Codec) -> Tensor:
    """Return one for each completion that states its problem's answer and has ended, else zero, [prompts, G]."""
    rows = []
    for problem, group in zip(prompts, groups, strict=True):
        texts = codec.text([made.tokens for made in group])
        ended = [made.finished for made in group]
        rows.append([float(is_right(t, problem.answer, finished=e)) for t, e in zip(texts, ended, strict=True)])
    return torch.tensor(rows)


def advantages(rewards: Tensor) -> Tensor:
    """Compare each completion with its group, [prompts, G]: the distance to the mean, in standard deviations."""
    centred = rewards - rewards.double().mean(-1, keepdim=True).to(rewards)
    variance = (centred**2).double().mean(-1, keepdim=True).to(rewards)
    return centred / (variance.sqrt() + 1e-4)


def loss_of_tokens(log_prob: Tensor, sampled: Tensor, reference: Tensor, advantage: Tensor) -> Tensor:
    """Compute GRPO's loss of each token, [tokens].

    Args:
        log_prob: log pi of the tokens, nats; gradient flows.
        sampled: their log-probs under the engine, which differs from the learner by rounding.
        reference: their log-probs under the policy as it began.
        advantage: advantage of the tokens' completions.
    """
    old = log_prob.detach()  # one step a round: the policy of the step is the one that the round began with
    weight = torch.exp(old - sampled).clamp(0.0, CEILING)
    ratio = torch.exp(log_prob - old)
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(1.0 - CLIP, 1.0 + CLIP) * advantage)
    distance = reference - log_prob
    return KL * (torch.exp(distance) - 1.0 - distance) - weight * surrogate


def train(data: Path, start: Path, rounds: int = ROUNDS) -> dict[str, Tensor]:
    """Train the policy in `start` and print a line for each round. Returns its weights."""
    policy = load_causal_model(start, torch.float32).eval()
    codec, problems = Codec(load_tokenizer(start)), prompts_of(data, start)
    reference = copy.deepcopy(policy).requires_grad_(False)
    optimiser = build_optimiser(policy, STEP)
    engine = TransformersEngine(start, EngineSettings(precision="float32"), end=codec.end)
    sampling = Sampling(max_tokens=MAX_TOKENS, samples=GROUP)
    for number in range(rounds):
        # Sample a group of completions for each prompt.
        prompts = prompts_of_round(problems, PROMPTS, number, SEED)
        groups = engine.generate([problem.tokens for problem in prompts], sampling, round_seed(SEED, number))
        # Score them: one for a right answer, else zero.
        rewards = rewards_of(prompts, groups, codec)
        # Leave out groups whose rewards are all equal: they have no signal. Compare the others within their group.
        kept = [index for index, row in enumerate(rewards) if row.max() - row.min() > 1e-4]
        if not kept:
            continue
        made = [each for index in kept for each in groups[index]]
        sampled = [each.log_probs for each in made if each.log_probs is not None]
        advantage = advantages(rewards[kept]).flatten()
        sequences = Sequences([prompts[index].tokens for index in kept for _ in range(GROUP)], [m.tokens for m in made])
        frozen = all_log_probs(reference, sequences)
        weights = token_weights([len(each.tokens) for each in made], "completion", MAX_TOKENS)
        # Add up the gradient of the loss over packed rows, then take one step.
        total = torch.zeros(())
        for row in rows_of(policy, sequences, 16384):
            log_prob, _ = completion_log_probs(policy, row.sequences)
            lengths = torch.tensor([len(made[index].tokens) for index in row.indices])
            losses = loss_of_tokens(
                log_prob,
                torch.cat([sampled[index] for index in row.indices]),
                torch.cat([frozen[index] for index in row.indices]),
                advantage[row.indices].repeat_interleave(lengths),
            )
            loss = (torch.cat([weights[index] for index in row.indices]).to(losses) * losses).sum()
            row.backward(loss)
            total += loss.detach()
        norm = take_step(optimiser, policy.parameters(), number, rounds, STEP, loss=total)
        # Give the engine the new weights.
        engine.load(policy.state_dict().items(), number + 1)
        print(f"round {number + 1}: reward {rewards.mean():.3f}, loss {total:.4f}, gradient norm {norm:.3f}")
    engine.close()
    return {name: tensor.detach().clone() for name, tensor in policy.state_dict().items()}


def main() -> None:
    """Make the data and the policy in a temporary folder, and train."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="rounds to train (default: %(default)s)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        data = make_data(Path(place))
        train(data, make_start(data, Path(place)), options.rounds)


if __name__ == "__main__":
    main()
