"""Rounds in step, one ahead and in flight, with a long tail of lengths: `schedule.async` 0 to 8 side by side, from 2 on
with both rules for rollouts that would grow too old.

    measured     the current loop, with two engines in processes of their own (Ray) next to the learner, on this machine
    simulated    the same rules on a simulated clock (`benchmarks.speed.simulated_rounds`), for eight engines that share
                 nothing with the learner; lengths once from the measured run, once a Pareto tail from 24 to 1,024

The policy's weights are random but for two kinds of tokens: a completion continues with the kind of its first token,
and one kind ends soon, the other late. So lengths differ within a group, too. The peer of each row is `async: 0`. If
groups that grow too old are dropped (`too_old: drop`) rounds are also faster because the longest are left out:
`dropped` and `length` in the details show the size of this effect; `tokens` is the ratio of trained tokens a second,
which dropping does not improve.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.shared.batches import tail
from benchmarks.shared.learners import schedule
from benchmarks.shared.materials import SPECIALS, VOCABULARY, llama, save, token_lists, word_tokenizer
from benchmarks.shared.rows import Row, compare
from benchmarks.shared.settings import Settings
from benchmarks.speed.simulated_rounds import Plant, Simulated, simulate
from models.base.placement import PlacementSettings
from models.base.ranks import ALONE
from models.engines.engine import Engine, EngineSettings
from models.engines.hosted import Order
from models.method.problem import Problem
from models.method.resources import RunResources
from models.method.reward import Reward
from models.method.rollout import Rollout
from models.method.slots import Slots
from models.parts.advantage.group_relative import GroupRelative
from models.parts.objective.grpo import Grpo
from models.parts.reference.frozen import NoReference
from models.parts.rollouts.sample import Sample
from models.parts.select.everything import Everything
from models.policies.build import PolicySettings
from models.training.train import Training, TrainingFolders, open_training
from models.training.watchers import Watchers

SOON, LATE = 0.05, 0.003
"""Chance of the end after a token of each kind."""
SHARE_LATE = 0.25
ROOM = 16


@dataclass(frozen=True)
class StalenessRule:
    """Which rollouts may be trained on: their largest age, and whether older groups are dropped."""

    age: int
    drops: bool = False

    def __str__(self) -> str:
        return f"async {self.age}{', dropping' if self.drops else ''}"


IN_STEP = StalenessRule(0)
WAITING = tuple(StalenessRule(age) for age in (1, 2, 4, 8))
DROPPING = tuple(StalenessRule(age, drops=True) for age in (2, 4, 8))


@dataclass(frozen=True)
class AsyncRunShape:
    """Sizes of one run."""

    prompts: int
    group: int
    longest: int
    rounds: int
    skipped: int
    """Rounds at the beginning that are not counted."""


FULL = AsyncRunShape(8, 4, 768, 24, 9)
QUICK = AsyncRunShape(2, 2, 24, 12, 9)


class Even(Reward):
    """Share of a completion's tokens whose number is even: something to learn from, whatever the policy writes."""

    name = "even"

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        return torch.tensor([sum(1 - token % 2 for token in r.completion) / len(r.completion) for r in rollouts])


def two_kinds(hidden: int, layers: int) -> torch.nn.Module:
    """Build a policy that continues with the kind of token that it began with, and ends soon or late by that kind."""
    model = llama(hidden=hidden, layers=layers)
    with torch.no_grad():
        kind = torch.where(torch.rand(VOCABULARY, generator=torch.Generator().manual_seed(0)) < SHARE_LATE, 1.0, -1.0)
        model.model.embed_tokens.weight[:, 1] = kind
        for layer in model.model.layers:  # as channel 0, it is read by the head alone
            layer.self_attn.o_proj.weight[1] = 0.0
            layer.mlp.down_proj.weight[1] = 0.0
        ids = torch.arange(SPECIALS, VOCABULARY)[None, :64]
        size = float(model.model(ids).last_hidden_state[0, :, 0].mean())
        model.lm_head.weight[:, 1] = 12.0 * kind / size
        logits = model(ids).logits[0, :, SPECIALS:].logsumexp(-1)
        soon, late = (float(torch.logit(torch.tensor(chance))) for chance in (SOON, LATE))
        model.lm_head.weight[1] = 0.0
        model.lm_head.weight[1, 0] = (float(logits.mean()) + (late + soon) / 2) / size
        model.lm_head.weight[1, 1] = (late - soon) / 2 / size
    return model


def measure(settings: Settings, name: str) -> list[Row]:
    """Measure a row for each rule, then simulate each twice."""
    from tasks.compute.cluster import connected, placed_fleet

    shape = QUICK if settings.quick else FULL
    runs: dict[StalenessRule, list[_Run]] = {rule: [] for rule in (IN_STEP, *WAITING, DROPPING[0])}
    with tempfile.TemporaryDirectory() as place, connected(None) as cluster:
        start = save(two_kinds(64, 2), word_tokenizer(), Path(place) / "policy")
        engine = EngineSettings(name="transformers", max_sequences=ROOM)
        order = Order(start, engine, 16 + shape.longest, 1, torch.float32, False, threads=1)
        fleet = placed_fleet(cluster, PlacementSettings(engines=2), order)
        try:
            for number in range(settings.samples):
                for rule, results in runs.items():
                    results.append(_run(fleet, start, shape, rule, Path(place) / f"{rule} {number}"))
        finally:
            fleet.close()
    rows = [
        compare(
            f"rounds with {rule}, two engines, prompts {shape.prompts} x {shape.group}",
            [run.rate for run in results],
            [run.rate for run in runs[IN_STEP]],
            "rounds/s",
            None,
            against="async 0",
            details=_details(results, runs[IN_STEP]),
        )
        for rule, results in runs.items()
        if rule != IN_STEP
    ]
    measured = [lengths for run in runs[IN_STEP] for lengths in run.lengths]
    pareto = [tail(8, shortest=24, longest=1024, seed=seed) for seed in range(200)]
    for what, lengths in (("as measured", measured), ("24 to 1,024", pareto)):
        rows += _simulated(what, lengths, 30 if settings.quick else 200)
    return rows


@dataclass(frozen=True)
class _Run:
    rate: float
    """Rounds a second."""
    lengths: list[tuple[int, ...]]
    """Lengths of the completions that were trained on, [groups][G]."""
    dropped: float
    """Number of dropped groups."""
    age: float
    """Mean age of the tokens that were trained on."""

    @property
    def length(self) -> float:
        """Mean tokens of a completion."""
        return statistics.mean(length for group in self.lengths for length in group)


def _run(fleet: Engine, start: Path, shape: AsyncRunShape, rule: StalenessRule, folder: Path) -> _Run:
    """Run one training, from the beginning."""
    torch.set_num_threads(1)
    problems = [Problem(str(at), "", tokens=tuple(ids)) for at, ids in enumerate(token_lists(256, 12, seed=1))]
    rewards: list[Reward] = [_Noted()]
    sample = Sample(prompts=shape.prompts, group_size=shape.group, max_tokens=shape.longest)
    slots = Slots(sample, rewards, [Everything()], GroupRelative(), Grpo(kl=0.0), NoReference())
    ends: list[float] = []
    metrics: list[dict[str, float]] = []

    def note(number: int, values: dict[str, float]) -> None:
        ends.append(time.perf_counter())
        metrics.append(values)

    round_settings = replace(
        schedule(), rounds=shape.rounds, staleness=rule.age, too_old="drop" if rule.drops else "wait"
    )
    training = Training(
        seed=3,
        slots=slots,
        schedule=round_settings,
        start=start,
        problems=problems,
        folders=TrainingFolders.below(folder),
        policy=PolicySettings(precision="float32"),
    )
    with open_training(training, ALONE, lambda autocast: nullcontext(fleet)) as opened:
        opened.run(Watchers(metrics=note))
    round_lengths = rewards[0].seen[shape.skipped :]  # type: ignore[attr-defined]
    counted_metrics = metrics[shape.skipped :]
    return _Run(
        (shape.rounds - shape.skipped) / (ends[-1] - ends[shape.skipped - 1]),
        [group for groups in round_lengths for group in groups],
        sum(values.get("rollouts/dropped_by_age", 0.0) for values in counted_metrics),
        statistics.mean(
            values.get("rollouts/age_mean", values.get("rollouts/staleness", 0.0)) for values in counted_metrics
        ),
    )


class _Noted(Even):
    """Reward that records the lengths of each round, [rounds][groups][G]."""

    name = "noted_even"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "seen", [])

    def __call__(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Tensor:
        groups: dict[int, list[int]] = {}
        for rollout in rollouts:
            groups.setdefault(rollout.group, []).append(len(rollout.completion))
        self.seen.append([tuple(group) for group in groups.values()])  # type: ignore[attr-defined]
        return super().__call__(resources, rollouts)


def _details(runs: Sequence[_Run], peers: Sequence[_Run]) -> dict[str, float]:
    def tokens(side: Sequence[_Run]) -> float:
        return statistics.median(run.rate * run.length for run in side)

    return {
        "dropped": sum(run.dropped for run in runs),
        "length": statistics.mean(run.length for run in runs),
        "length_in_step": statistics.mean(run.length for run in peers),
        "age": statistics.mean(run.age for run in runs),
        "tokens": tokens(runs) / tokens(peers),
    }


def _simulated(what: str, lengths: Sequence[Sequence[int]], rounds: int) -> list[Row]:
    """Simulate rows for eight engines with steps of 20 ms, and a learner that takes as long as the full engines."""
    mean = statistics.mean(length for group in lengths for length in group)
    prompts, room = 64, 64
    learn = prompts * len(lengths[0]) * mean / (8 * room) * 0.02
    plant = Plant(8, room, 0.02, 0.0, learn, prompts)
    results: dict[StalenessRule, Simulated] = {
        rule: simulate(plant, lengths, rule.age, rounds, drops=rule.drops) for rule in (IN_STEP, *WAITING, *DROPPING)
    }
    in_step = results.pop(IN_STEP)
    return [
        compare(
            f"simulated rounds with {rule}, eight engines, lengths {what}",
            [1 / simulated.seconds],
            [1 / in_step.seconds],
            "rounds/s",
            None,
            against="async 0",
            details={
                "dropped_share": simulated.dropped / (rounds * prompts),
                "length": simulated.length,
                "length_in_step": in_step.length,
                "tokens": simulated.length / simulated.seconds / (in_step.length / in_step.seconds),
                "engines_idle": simulated.idle,
                "engines_idle_in_step": in_step.idle,
            },
        )
        for rule, simulated in results.items()
    ]
