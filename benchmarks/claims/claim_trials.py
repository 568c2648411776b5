"""The claims that are tested: for each the arms that are trained, and the effect that is computed from them."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256

import torch
from torch import Tensor

from benchmarks.claims.easy_to_hard_trials import easy_to_hard
from benchmarks.claims.hacking_trials import caught
from benchmarks.claims.minority_trials import worst_served
from benchmarks.claims.reward_trials import ensembles_under_flips
from benchmarks.claims.shaping_trials import CENTRED, CONSTRAINED, RAW_SCORE, WEIGHTED, by_one_reward_model
from benchmarks.claims.step_reward_trials import better_labels, repetition
from benchmarks.claims.toy import Arm, ArmResult, Toy, held_out, state_bytes, train
from models.answers.exact import solves
from models.datasets.schema import read_rows
from models.learner.all_completions import all_log_probs
from models.learner.packing import Sequences
from models.learner.supervised import SupervisedSettings, fit_supervised
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.policies.build import load_causal_model
from models.policies.update_sparsity import COARSEST_STEP, changed_weights
from models.training.read_demonstrations import demonstrations

Effect = tuple[float, dict[str, float]]
"""The effect of one seed, and the numbers behind it."""

ROUNDS = 40
PROMPTS = ("rollouts.prompts=32", "rewards=[{name: exact_answer}]")
"""Overrides of every arm that samples: 32 prompts a round, and the verifier alone."""
ALL = "select=[{name: all}]"
"""Every completion is trained on, in both arms of a claim, so that filtering does not affect the comparison."""


@dataclass(frozen=True)
class Trial:
    """One claim and its test."""

    name: str
    paper: int | str
    """Number in the catalogue, or the paper's address if it has none."""
    claim: str
    measures: str
    """Name and unit of the effect."""
    measure: Callable[[Toy, int], Effect]
    line: float = 0.0
    """Line that the effect must exceed according to the claim."""
    larger: bool = True
    """Whether the effect must be above the line, or below."""


def accuracy_of(toy: Toy, arm: Arm, seed: int, rounds: int = ROUNDS, metric: str = "sampled_accuracy") -> float:
    """Return a held-out metric after training an arm."""
    return held_out(toy, train(toy, arm, seed, rounds), [metric])[metric]


def contrast(arm: Arm, other: Arm, reached: Callable[[Toy, Arm, int], float]) -> Callable[..., Effect]:
    """Return a measure of the lead of an arm over the other; `reached` trains one with a seed and measures it."""

    def measure(toy: Toy, seed: int) -> Effect:
        first, second = (reached(toy, each, seed) for each in (arm, other))
        return first - second, {arm.recipe: first, f"{other.recipe}, other": second}

    return measure


def difference(arm: Arm, other: Arm, metric: str = "sampled_accuracy", rounds: int = ROUNDS) -> Callable[..., Effect]:
    """Return a measure of the lead of an arm over the other in a held-out metric."""
    return contrast(arm, other, lambda toy, each, seed: accuracy_of(toy, each, seed, rounds, metric))


ONE_EACH = (*PROMPTS, "rollouts.group_size=1", ALL, "reference={name: none}")
"""Settings of both ReMax and PPO: every completion is learned from, once, without a reference; the critics differ."""
REMAX = Arm("remax", (*ONE_EACH, "advantage.kl_in_reward=0.0"))
PPO = Arm("ppo", (*ONE_EACH, "advantage.kl_in_reward=0.0", "advantage.critic.pretraining=0", "schedule.minibatches=1",
                  "schedule.epochs=1", "advantage.critic.epochs=1", "advantage.critic.minibatches=1"))  # fmt: skip
STAGES = ("generate", "score", "learn")
"""Stages of a round; ReMax's greedy completions are among `generate`."""


def memory_of_remax(toy: Toy, seed: int) -> Effect:
    """Measure the bytes of models and moments that ReMax keeps, as a share of PPO's."""
    kept = {arm.recipe: float(state_bytes(train(toy, arm, seed, 2).learner)) for arm in (REMAX, PPO)}
    return kept["remax"] / kept["ppo"], kept


def time_of_remax(toy: Toy, seed: int) -> Effect:
    """Measure the ratio of PPO's time a round to ReMax's, for as many completions to learn from: medians over rounds.

    Steps are so small that both arms sample from the same policy to the end, and so completions of the same length;
    they run in turns, so that a machine that is slow for a while is slow for both.
    """
    rounds: dict[str, list[dict[str, float]]] = {REMAX.recipe: [], PPO.recipe: []}
    for arm in (REMAX, PPO) * 3:
        still = replace(arm, overrides=(*arm.overrides, "schedule.optimiser.learning_rate=0.000001"))
        rounds[arm.recipe] += train(toy, still, seed, 14).rounds[2:]  # the first two warm up
    spent: dict[str, float] = {}
    for name, rounds_of_arm in rounds.items():
        spent[name] = statistics.median(
            sum(metrics[f"seconds/{stage}"] for stage in STAGES) for metrics in rounds_of_arm
        )
        for stage in STAGES:
            spent[f"{name}, {stage}"] = statistics.median(metrics[f"seconds/{stage}"] for metrics in rounds_of_arm)
    spent["learn alone, ppo / remax"] = spent["ppo, learn"] / spent["remax, learn"]
    return spent["ppo"] / spent["remax"], spent


def pair_accuracy(toy: Toy, trained: ArmResult, seed: int) -> float:
    """Return the share of held-out preferences in which the policy has raised the better answer more than the worse."""
    rows = read_rows(toy.data, "preferences", "validation")
    prompts = trained.codec.prompts([str(row["prompt"]) for row in rows])
    margins: list[Tensor] = []
    for model, sign in ((trained.learner.policy, 1.0), (load_causal_model(toy.start(seed), torch.float32), -1.0)):
        for column, side in (("chosen", 1.0), ("rejected", -1.0)):
            answers = trained.codec.completions([str(row[column]) for row in rows])
            sums = torch.stack([row.sum() for row in all_log_probs(model, Sequences(prompts, answers))])
            margins.append(sign * side * sums)
    return float((sum(margins) > 0).float().mean())


FLIPS = ("rollouts.prompts=32", "schedule.optimiser.learning_rate=0.0003")
RDPO = Arm("rdpo", FLIPS)
DPO = Arm("rdpo", (*FLIPS, "objective.name=dpo"))
CDPO = Arm("rdpo", (*FLIPS, "objective={name: dpo, label_smoothing: 0.3}"))


def under_flips(toy: Toy, arm: Arm, seed: int) -> float:
    """Return held-out pair accuracy after training with 30 % of the labels flipped, different ones for each seed."""
    flipped = replace(arm, overrides=(*arm.overrides, f"rewards.0.seed={seed}"))
    return pair_accuracy(toy, train(toy, flipped, seed, 60), seed)


@dataclass(frozen=True, kw_only=True)
class Noisy(Reward):
    """The verifier with added noise: the same for the same text, so that a repeated training gives the same."""

    name = "exact_answer"
    spread: float

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        """Return truth plus noise, [completions]."""
        seeds = [sha256(f"{rollout.problem.id} {rollout.completion}".encode()).digest()[:7] for rollout in rollouts]
        chances = [torch.Generator().manual_seed(int.from_bytes(seed, "big")) for seed in seeds]
        noise = [torch.randn((), generator=chance).item() for chance in chances]
        truth = [float(solves(rollout)) for rollout in rollouts]
        return torch.tensor(truth) + self.spread * torch.tensor(noise)


NOISE = (Noisy(spread=0.6),)
FILTERED = Arm("pf_ppo", PROMPTS, NOISE)
UNFILTERED = Arm("pf_ppo", (*PROMPTS, "select=[{name: drop_flat, by: exact_answer}]"), NOISE)
"""The same without the filter: twice the completions to learn from, in as many optimiser steps."""

LONG = 80
AS_GRPO = (*PROMPTS, "rollouts.group_size=8", "rollouts.temperature=1.0", "advantage.deviation=n", "objective.kl=0.1")
"""Only the reset is tested, with GRPO's own samples and deviation."""
RESETS = Arm("prorl", (*AS_GRPO, "reference.every=20"))
FROZEN = Arm("prorl", (*AS_GRPO, "reference={name: frozen}"))


def changed_share(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> float:
    """Return the share of all weights that differ between two states of a policy at the resolution of bfloat16."""
    changed = changed_weights(before, after, COARSEST_STEP).values()
    return sum(int(mask.sum()) for mask in changed) / sum(mask.numel() for mask in changed)


def sparsity(toy: Toy, seed: int) -> Effect:
    """Return the share of weights changed by supervised learning less the share changed by RL, in as many updates."""
    reinforced = train(toy, Arm("grpo", (*PROMPTS, "schedule.optimiser.learning_rate=0.00001")), seed, ROUNDS)
    by_rl = changed_share(reinforced.before, reinforced.learner.policy.state_dict())
    policy = load_causal_model(toy.start(seed), torch.float32)
    shown = demonstrations(toy.data, reinforced.codec, "train", 64)
    settings = SupervisedSettings(steps=ROUNDS, batch=256, optimiser=reinforced.recipe.schedule.optimiser)  # type: ignore[union-attr]
    fit_supervised(policy, shown, settings, seed=seed)
    by_imitation = changed_share(reinforced.before, policy.state_dict())
    return by_imitation - by_rl, {"supervised": by_imitation, "reinforced": by_rl}


MORE = ("rollouts.prompts=128", "rewards=[{name: exact_answer}]")
CLASSIFICATION = Arm("ppo_hl_gauss", MORE)
REGRESSION = Arm("ppo_hl_gauss", (*MORE, "advantage.critic.loss=mse"))


def steadier_critic(toy: Toy, seed: int) -> Effect:
    """Return the spread of the critic's explained variance in the last half of the rounds, regression less
    classification."""
    effects = {
        name: statistics.pstdev(train(toy, arm, seed, ROUNDS).curve("critic/explained_variance")[ROUNDS // 2 :])
        for name, arm in (("regression", REGRESSION), ("classification", CLASSIFICATION))
    }
    return effects["regression"] - effects["classification"], effects


PACS = Arm("pacs", (*PROMPTS, ALL))
GRPO = Arm("grpo", (*PROMPTS, ALL, "schedule.minibatches=4", "objective.kl=0.0", "reference={name: none}"))
"""As PACS: four steps a round, and no reference."""
TOPR = Arm("topr", (*PROMPTS, ALL))
ONLY_POSITIVES = Arm("topr", (*TOPR.overrides, "advantage.baseline=0.0", "rewards.0.weight=0.5"))
"""Advantages of 0.5 and 0 instead of 0.5 and -0.5: only the weight of the wrong completions differs."""
SHANNON = Arm("f_dpg", (*PROMPTS, "rollouts.group_size=8"))
FORWARD = Arm("f_dpg", (*SHANNON.overrides, "objective.to=forward_kl"))

PASS_AT_K = Arm("pass_at_k", PROMPTS)
PASS_AT_1 = Arm("pass_at_k", (*PROMPTS, "advantage={name: group_relative}"))
PKPO = Arm("pkpo", PROMPTS)
LEAVE_ONE_OUT = Arm("pkpo", (*PROMPTS, "advantage={name: leave_one_out}"))
MAXRL = Arm("maxrl", PROMPTS)
BY_DEVIATION = Arm("maxrl", (*PROMPTS, "advantage.scale=group"))
CLIP_COV = Arm("clip_cov", PROMPTS)
WIDE_CLIP = Arm("clip_cov", (*PROMPTS, "objective={name: grpo, kl: 0.0, clip_low: 1.0, clip_high: 1.0}"))
KL_COV = Arm("kl_cov", PROMPTS)
NO_CLIP = Arm("kl_cov", (*PROMPTS, "objective={name: grpo, kl: 0.0, clip_low: null, clip_high: null}"))
"""Each with the objective that it equals if no token is singled out."""
FORKS = Arm("top_entropy", PROMPTS)
EVERY_TOKEN = Arm("top_entropy", (*PROMPTS, "objective={name: grpo, kl: 0.0, clip_low: 0.2, clip_high: 0.28}"))


def entropy_kept(toy: Toy, arm: Arm, seed: int) -> float:
    """Return the entropy of the policy in the last quarter of the rounds, nats a token."""
    return statistics.fmean(train(toy, arm, seed, ROUNDS).curve("policy/entropy")[-ROUNDS // 4 :])


TRIALS = (
    Trial("remax_memory", 384, "ReMax keeps less than PPO", "bytes, ReMax / PPO", memory_of_remax, 1.0, larger=False),
    Trial("remax_time", 384, "ReMax is faster than PPO", "seconds a round, PPO / ReMax", time_of_remax, 1.0),
    Trial("rdpo", 311, "rDPO beats DPO at 30 % flips", "held-out pair accuracy", contrast(RDPO, DPO, under_flips)),
    Trial("pacs", 263, "PACS beats GRPO at pass@8", "pass@8", difference(PACS, GRPO, "pass_at_8")),
    Trial("topr", 317, "TOPR gains from negatives", "sampled accuracy", difference(TOPR, ONLY_POSITIVES)),
    Trial("f_dpg", 333, "Jensen-Shannon beats forward KL", "sampled accuracy", difference(SHANNON, FORWARD)),
    Trial("pf_ppo", 176, "a rank filter helps under noise", "sampled accuracy", difference(FILTERED, UNFILTERED)),
    Trial("prorl", 72, "resetting the reference helps", "sampled accuracy", difference(RESETS, FROZEN, rounds=LONG)),
    Trial("subnetworks", 62, "RL changes fewer weights than SFT", "share of weights", sparsity),
    Trial("hl_gauss", 112, "a classifying critic is steadier", "spread of explained variance", steadier_critic),
    Trial("cdpo", "cDPO", "cDPO beats DPO at 30 % flips", "held-out pair accuracy", contrast(CDPO, DPO, under_flips)),
    Trial("pass_at_k", "2508.10751", "pass@k training lifts pass@8", "pass@8",
          difference(PASS_AT_K, PASS_AT_1, "pass_at_8")),
    Trial("pkpo", "2505.15201", "PKPO beats leave-one-out at pass@8", "pass@8",
          difference(PKPO, LEAVE_ONE_OUT, "pass_at_8")),
    Trial("maxrl", "2602.02710", "MaxRL beats GRPO at pass@8", "pass@8", difference(MAXRL, BY_DEVIATION, "pass_at_8")),
    Trial("clip_cov", "2505.22617", "Clip-Cov keeps entropy", "nats a token",
          contrast(CLIP_COV, WIDE_CLIP, entropy_kept)),
    Trial("kl_cov", "2505.22617", "KL-Cov keeps entropy", "nats a token", contrast(KL_COV, NO_CLIP, entropy_kept)),
    Trial("ensembles", 182, "the worst of four beats one at 25 % flips", "right among the best of 16",
          ensembles_under_flips),
    Trial("reward_hacking", "2210.10760", "the alarm ends reward hacking within 5 points", "truth lost at the stop",
          caught, 0.05, larger=False),
    Trial("process_hacking", 86, "Clip and Delta end repetition", "repeated steps, raw less shaped", repetition),
    Trial("maxmin", 368, "a model for each group lifts the worst served", "the lower of two win rates", worst_served),
    Trial("easy_to_hard", 282, "steps of easy problems judge hard ones better than outcomes",
          "right among the best of 16", easy_to_hard),
    Trial("consensus", 279, "consensus labels beat Monte-Carlo labels", "first wrong step, F1", better_labels),
    Trial("constrained", 85, "learned multipliers beat fixed weights", "sampled accuracy",
          by_one_reward_model(CONSTRAINED, WEIGHTED)),
    Trial("par", 223, "a centred sigmoid beats the raw score", "sampled accuracy",
          by_one_reward_model(CENTRED, RAW_SCORE)),
    Trial("top_entropy", "2506.01939", "forks alone are enough", "sampled accuracy", difference(FORKS, EVERY_TOKEN)),
)  # fmt: skip
