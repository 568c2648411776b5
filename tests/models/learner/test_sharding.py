"""Models that are sharded over several processes: gradients and metrics equal those of one process.

The processes are real, on this machine and through gloo; all cases of a number of ranks run in one group of them.
"""

import random
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.base.errors import UserError
from models.base.ranks import ALONE, Ranks, whole
from models.learner import supervised
from models.learner.all_completions import all_log_probs
from models.learner.distribution import MODEL_DISTRIBUTION
from models.learner.optimiser import OptimiserSettings
from models.learner.packing import Sequences, by_prompt, pack_shares
from models.learner.sharding import shard
from models.method.fit import fit_round
from models.method.judge import Answer
from models.method.learner import Companion, Learner
from models.method.schedule import ScheduleSettings
from models.parts.objective.grpo import Grpo
from models.parts.rewards.models.implicit_process import ImplicitProcess
from models.parts.shared.reinforced import JudgedQuestion, reinforce
from models.policies.build import LoraSettings, with_adapter
from models.policies.update_sparsity import SubnetworkSettings, learn_only, masks_of
from models.reward_models import fit as reward_fit
from models.reward_models.critic.fit import fit_critic
from models.reward_models.critic.model import Critic, new_critic, read_values
from models.reward_models.critic.settings import CriticSettings
from models.reward_models.fit import Pair, RewardModelSettings
from tests.support.device_here import OF_A_PROCESSOR
from tests.support.rank_group import on_ranks
from tests.support.tiny_models import SEQUENCES, each_token, scored, tiny_policy
from tests.support.tiny_resources import make_resources

pytestmark = [OF_A_PROCESSOR, pytest.mark.rotating(of=8)]

STEP = OptimiserSettings(learning_rate=1.0, warmup_steps=0, clip_norm=1e9)
SHARED = Sequences(
    [*SEQUENCES.prompts, SEQUENCES.prompts[0], SEQUENCES.prompts[2]], [*SEQUENCES.completions, [7, 8, 1], [5]]
)
SIZES = [2, 3, 2]
FEW = Sequences(SEQUENCES.prompts[:2], SEQUENCES.completions[:2])
Made = dict[str, Tensor]


def untied(dtype: torch.dtype) -> Any:
    """Make a policy whose output projection is not its embedding."""
    model = tiny_policy(dtype, spread=2.0)
    model.config.tie_word_embeddings = False
    model.lm_head.weight = nn.Parameter(model.lm_head.weight.detach().clone() * 0.5)
    return model


def policy_of(kind: str, dtype: torch.dtype) -> Any:
    torch.manual_seed(3)
    if kind == "lora":
        adapted: Any = with_adapter(tiny_policy(dtype, spread=2.0), LoraSettings(rank=4), seed=0)
        with torch.no_grad():
            for name, weight in adapted.named_parameters():
                if "lora_B" in name:
                    weight.normal_(std=0.1)  # with B zero, A has no gradient
        return adapted.to(dtype)
    return untied(dtype) if kind == "untied" else tiny_policy(dtype, spread=2.0)


def gradient_seen(model: nn.Module, optimiser: torch.optim.Optimizer, learn: Callable[[], Any]) -> Made:
    """Return the gradient of the first step that `learn` takes, by name, and the metrics that it returns."""
    seen: Made = {}

    def see(*_: Any) -> None:
        for name, weight in model.named_parameters():
            if weight.grad is not None and name not in seen:
                seen[name] = whole(weight.grad).clone()

    with_hook = optimiser.register_step_pre_hook(see)
    metrics = learn()
    with_hook.remove()
    numbers = [float(metrics[name]) for name in sorted(metrics)]
    return {**seen, "metrics": torch.tensor(numbers, dtype=torch.float64)}


def of_policy(
    kind: str, sequences: Sequences, sizes: Sequence[int], ranks: Ranks, dtype: torch.dtype, budget: int
) -> Made:
    policy = policy_of("plain" if kind == "subnetwork" else kind, dtype)
    chosen = scored([0.0] * len(sequences), sizes, sequences=sequences)
    advantage = torch.linspace(-1.0, 1.0, len(sequences), dtype=dtype)
    optimiser = torch.optim.SGD([weight for weight in policy.parameters() if weight.requires_grad])
    reference = tiny_policy(dtype, seed=1, spread=2.0).requires_grad_(False)
    masks = masks_of(policy, SubnetworkSettings(share=0.3)) if kind == "subnetwork" else {}
    shard(policy, ranks, optimiser)
    shard(reference, ranks)
    learn_only(policy, masks)
    learner = Learner(policy, optimiser, reference, None, None, MODEL_DISTRIBUTION)
    schedule = ScheduleSettings(rounds=4, optimiser=STEP, token_budget=budget)
    tokens = each_token(advantage, chosen)
    return gradient_seen(policy, optimiser, lambda: fit_round(learner, Grpo(kl=0.1), chosen, tokens, schedule, 8))


def of_critic(ranks: Ranks, dtype: torch.dtype, budget: int) -> Made:
    torch.manual_seed(1)
    companion = new_critic(tiny_policy(dtype, spread=2.0), CriticSettings(optimiser=STEP))
    critic = companion.model
    assert isinstance(critic, Critic)
    nn.init.normal_(critic.head.weight)
    shard(critic, ranks, companion.optimiser)
    chosen = scored([0.0] * len(SHARED), SIZES, sequences=SHARED)
    old = read_values(critic, SHARED, token_budget=budget)
    wanted = [row * 0.5 + 0.1 for row in old]
    learn = partial(fit_critic, companion, chosen, wanted, old, token_budget=budget)
    return {**gradient_seen(critic, companion.optimiser, learn), "values": torch.cat(old)}


def of_process_reward(ranks: Ranks, dtype: torch.dtype, budget: int) -> Made:
    rollouts = scored([0.0] * len(SHARED), SIZES, sequences=SHARED).rollouts
    policy: Any = tiny_policy(dtype, spread=2.0)
    part = ImplicitProcess(passes=1)
    reference = tiny_policy(dtype, seed=1, spread=2.0).requires_grad_(False)
    companion = part.accompany(policy)
    for model, optimiser in ((companion.model, companion.optimiser), (policy, None), (reference, None)):
        shard(model, ranks, optimiser)
    named = {"process_reward": companion}
    learner = Learner(
        policy, torch.optim.SGD(policy.parameters()), reference, None, None, MODEL_DISTRIBUTION, companions=named
    )
    resources = make_resources(learner=learner, token_budget=budget)
    outcome = {"exact_answer": torch.tensor([1.0, 0.0, 0.0, 1.0, 0.0, 1.0, 1.0])}
    seen = gradient_seen(companion.model, companion.optimiser, lambda: part.learn(resources, rollouts, outcome))
    return {**seen, "rewards": torch.cat(part.tokens(resources, rollouts))}


def of_judge(ranks: Ranks, dtype: torch.dtype, budget: int) -> Made:
    """Return the gradients of a judge that learns from rewards of its own answers."""
    judge: Any = tiny_policy(dtype, spread=2.0)
    companion = Companion(judge, torch.optim.SGD(judge.parameters()))
    shard(judge, ranks, companion.optimiser)
    rows = zip(SHARED.prompts, SHARED.completions, strict=True)
    answers = [Answer("", True, None, tuple(asked), tuple(said)) for asked, said in rows]
    answered = [
        JudgedQuestion("first", answers[:4], [1.0, 0.0, 0.5, 1.0], 0.7),
        JudgedQuestion("other", answers[4:], [0, 1, 1]),
    ]
    resources = make_resources(token_budget=budget)

    def learn() -> dict[str, float]:
        return reinforce(resources, companion, answered, temperature=1.3, passes=1, optimiser=STEP, key="rewards.x")

    return gradient_seen(judge, companion.optimiser, learn)


def of_reward_model(ranks: Ranks, dtype: torch.dtype, budget: int) -> Made:
    from transformers import Qwen3Config, Qwen3ForSequenceClassification

    torch.manual_seed(0)
    shape: Any = {**tiny_policy().config.to_dict(), "num_labels": 1}
    model: Any = Qwen3ForSequenceClassification(Qwen3Config(**shape))
    model.to(dtype).eval()
    chance = random.Random(0)
    pairs = [Pair([3, 4 + number], [5, chance.randint(6, 9), 1], [7, 1]) for number in range(5)]
    seen: Made = {}

    def report(step: int, metrics: dict[str, float]) -> None:
        seen["metrics"] = torch.tensor([metrics[name] for name in sorted(metrics)], dtype=torch.float64)

    shard(model, ranks)
    settings = RewardModelSettings(steps=1, token_budget=budget, optimiser=STEP)
    total = reward_fit.accumulate(model, pairs, settings)
    seen |= {name: whole(weight.grad).clone() for name, weight in model.named_parameters() if weight.grad is not None}
    seen |= {f"seen {name}": value for name, value in total.items()}
    model.zero_grad()
    reward_fit.fit_reward_model(model, pairs, settings, seed=0, report=report)
    return seen


def of_supervised(ranks: Ranks, dtype: torch.dtype, budget: int) -> Made:
    model = tiny_policy(dtype, spread=2.0)
    shard(model, ranks)
    loss = supervised.accumulate(model, SHARED, budget, None)
    held_out = supervised.negative_log_likelihood(model, SHARED, budget)
    numbers = torch.tensor([float(loss), held_out], dtype=torch.float64)
    said = torch.cat(all_log_probs(model, SHARED, token_budget=budget))
    return {**{name: whole(weight.grad) for name, weight in model.named_parameters()}, "metrics": numbers, "said": said}


CASES: dict[str, Callable[[Ranks, torch.dtype, int], Made]] = {
    **{kind: partial(of_policy, kind, SHARED, SIZES) for kind in ("tied", "untied", "lora", "subnetwork")},
    "a rank without rows": partial(of_policy, "tied", FEW, [1, 1]),
    "critic": of_critic,
    "process reward": of_process_reward,
    "judge": of_judge,
    "reward model": of_reward_model,
    "supervised": of_supervised,
}
BUDGETS = (16, 1000)
"""Token budgets: for rows of a prompt with one or two completions, and for a single row."""
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-7}
"""Largest gap of a gradient, multiplied by its norm if that is above one. For other values: ten times as much,
multiplied by the largest value if above one. Rows are cut differently, so the last digit differs."""


def every_case(ranks: Ranks) -> dict[tuple[str, str, int], Made]:
    return {
        (name, str(dtype), budget): made(ranks, dtype, budget)
        for name, made in CASES.items()
        for dtype in TOLERANCE
        for budget in BUDGETS
    }


@cache
def alone() -> dict[tuple[str, str, int], Made]:
    return every_case(ALONE)


@cache
def apart(count: int) -> list[dict[tuple[str, str, int], Made]]:
    return on_ranks(count, every_case)


@pytest.mark.parametrize("budget", BUDGETS)
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("case", CASES)
def test_gradients_and_metrics_of_several_ranks_are_those_of_one(
    case: str, count: int, dtype: torch.dtype, budget: int
) -> None:
    key = (case, str(dtype), budget)
    expected = alone()[key]
    gradients = [value for name, value in expected.items() if "." in name]
    norm = float(torch.stack([value.double().norm() for value in gradients]).norm())
    assert norm > 0
    for made in (of_rank[key] for of_rank in apart(count)):
        assert made.keys() == expected.keys()
        for name, value in expected.items():
            gap = float((made[name].double() - value.double()).abs().max())
            scale = norm if "." in name else 10 * float(value.abs().max())
            assert gap <= TOLERANCE[dtype] * max(1.0, scale), f"{name}: {gap / scale:.1e}"


def poisoned(ranks: Ranks) -> tuple[str, Made]:
    """Return the error of a loss that is not finite in one row, and the weights after a fit that skips it."""
    policy = policy_of("tied", torch.float64)
    optimiser = torch.optim.SGD(policy.parameters())
    shard(policy, ranks, optimiser)
    learner = Learner(policy, optimiser, None, None, None, MODEL_DISTRIBUTION)
    chosen = scored([0.0] * len(SHARED), SIZES, sequences=SHARED)
    tokens = list(each_token(torch.linspace(-1.0, 1.0, len(SHARED), dtype=torch.float64), chosen))
    tokens[0] = torch.full_like(tokens[0], torch.nan)
    said = ""
    try:
        fit_round(learner, Grpo(), chosen, tokens, ScheduleSettings(rounds=4, optimiser=STEP), 8)
    except UserError as error:
        said = str(error)
    skips = ScheduleSettings(rounds=4, optimiser=STEP, minibatches=3, skip_nonfinite=1)
    metrics = fit_round(learner, Grpo(), chosen, tokens, skips, 8)
    numbers = torch.tensor([metrics["skipped_updates"], learner.tally.skipped], dtype=torch.float64)
    return said, {**{name: whole(weight.detach()) for name, weight in policy.named_parameters()}, "counts": numbers}


def test_a_loss_that_is_not_finite_on_one_rank_stops_all_with_one_line_or_is_skipped_by_all() -> None:
    said, expected = poisoned(ALONE)
    assert said.startswith("round 1, update 0: the loss is not finite; lower schedule.optimiser.learning_rate")
    assert expected["counts"].tolist() == [1, 0]
    for line, made in on_ranks(2, poisoned):
        assert line == said
        for name, value in expected.items():
            torch.testing.assert_close(made[name], value, rtol=0, atol=1e-12)


def test_what_the_first_rank_reads_of_a_model_that_is_cut_is_refused_at_once() -> None:
    for line in on_ranks(2, read_by_first):
        assert "was read by the first alone" in line


def read_by_first(ranks: Ranks) -> str:
    policy = policy_of("tied", torch.float32)
    shard(policy, ranks)
    try:
        ranks.from_first(lambda: all_log_probs(policy, SHARED))
    except RuntimeError as error:
        return str(error)
    return ""


def test_shares_are_even_where_no_bundle_is_large() -> None:
    """With at least 8 bundles a rank, each at most a tenth of a share, no share is above 1.15 times the mean."""
    held = 0
    for seed in range(60):
        chance = random.Random(seed)
        shares, prompts = chance.choice([2, 3, 8]), chance.randint(80, 200)
        given = [[number, *range(chance.randint(1, 40))] for number in range(prompts)]
        rows = [(prompt, range(chance.randint(1, 60))) for prompt in given for _ in range(chance.randint(1, 4))]
        sequences = Sequences([prompt for prompt, _ in rows], [completion for _, completion in rows])
        packed = pack_shares(sequences, 512, shares, width=64)
        costs = [sum(bundle_cost(sequences.take(row)) for row in share) for share in packed]
        every = [bundle_cost(sequences.take(members)) for members in by_prompt(sequences)]
        mean = sum(every) / shares
        if max(every) <= mean / 10:
            assert max(costs) <= 1.15 * sum(costs) / shares
            held += 1
    assert held >= 20


def bundle_cost(sequences: Sequences) -> float:
    """Return the cost of a packed row in tokens by its definition, pair by pair."""
    total = 0.0
    for members in by_prompt(sequences):
        part = sequences.take(members)
        prompt = len(part.prompts[0])
        seen = prompt * (prompt + 1) / 2
        seen += sum(place + 1 for ids in part.completions for place in range(prompt, prompt + len(ids)))
        total += prompt + sum(map(len, part.completions)) + seen / (6 * 64)
    return total


def test_every_completion_is_in_one_share_and_no_row_is_too_long() -> None:
    for seed in range(50):
        chance = random.Random(seed)
        prompts = [[number, *range(chance.randint(1, 9))] for number in range(chance.randint(1, 6))]
        rows = [(prompt, range(chance.randint(1, 9))) for prompt in prompts for _ in range(chance.randint(1, 6))]
        sequences = Sequences([prompt for prompt, _ in rows], [completion for _, completion in rows])
        shares = pack_shares(sequences, 24, chance.randint(2, 5), width=64)
        assert sorted(index for share in shares for row in share for index in row) == list(range(len(sequences)))
        for row in (row for share in shares for row in share):
            part = sequences.take(row)
            assert sum(len(part.prompts[each[0]]) for each in by_prompt(part)) + sum(map(len, part.completions)) <= 24
