"""The choice of each round's prompts, by rules that use the run's record of rewards for each prompt.

    shuffled    every prompt once an epoch, in a new order each time
    signal      at random in proportion to floor + (1 - floor) * 4 p (1 - p), four times the variance of a verdict:
                prompts that are always or never solved have none; one that was never seen counts as p = 1/2
    phases      prompts from the shortest to the longest, in as many phases as are set; in addition to the phase's own
                prompts, some of earlier phases again, at random in proportion to how rarely they are solved
                (QwenLong-L1, paper 215: phased context and difficulty-aware retrospective sampling)
    by_level    prompts of the lowest level that is not mastered yet, and some of lower ones; a level is mastered if
                the discounted share of its tries that succeed is large enough (QWeb, paper 44: a curriculum of
                growing sets of sub-goals)
    adaptive    blocks of rounds: the current policy tries the prompts of the next block, which are then ordered from
                the easiest to the hardest (adaptive difficulty curriculum learning, paper 244)

p is a running estimate of a prompt's mean reward, (1 + s) / (2 + n), where s and n sum rewards and completions and
earlier ones are discounted. Rewards are clamped to [0, 1].

`low` and `high` are an offline filter: before the first round the initial policy tries `tried` prompts, and those
solved more rarely or more often are never trained on. All tries count among the run's completions. Their results are
part of the checkpoints, and every choice follows from them, the seed and the round. For prompts that are not in memory
(`models.method.problem_rows`), an order keeps a few numbers each, except for those of the round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field

from models.base.bounds import Positive, Share
from models.base.seeds import seed_of
from models.method.problem import Problem
from models.method.problem_rows import ids_of, levels_of, places_of, prompt_lengths, taken
from models.method.scored import Scored
from models.method.tally import Tally


@dataclass(frozen=True, kw_only=True)
class CurriculumSettings:
    """Rule by which the prompts of each round are chosen. Set under `schedule.curriculum`."""

    order: Literal["shuffled", "signal", "phases", "by_level", "adaptive"] = "shuffled"
    """The rule: see the list in `models.method.curriculum`."""
    by: str = "total"
    """The reward component that decides whether a prompt is solved; `total` is the weighted sum."""
    discount: Annotated[float, Field(gt=0, le=1)] = 0.5
    """Factor on a prompt's earlier rewards each time it is sampled again; for by_level, on those of a level."""
    floor: Annotated[float, Field(gt=0, le=1)] = 0.1
    """For signal: probability of a prompt that is always or never solved, relative to one solved half the time."""
    phases: Positive = 3
    """For phases: number of phases."""
    again: Share = 0.25
    """For phases and by_level: share of a round's prompts that come from earlier phases or lower levels."""
    mastery: Share = 0.7
    """For by_level: share of a level's tries that must succeed before the next level begins."""
    every: Positive = 3
    """For adaptive: number of rounds in a block."""
    low: Share = 0.0
    """Smallest success rate of the initial policy at which a prompt is kept."""
    high: Share = 1.0
    """Largest success rate of the initial policy at which a prompt is kept."""
    tried: Positive = 256
    """Number of prompts that are tried if `low` or `high` is set; all other prompts are not trained on."""

    def __post_init__(self) -> None:
        """Refuse a filter that no prompt passes."""
        if self.low > self.high:
            raise ValueError(f"low is {self.low}, more than high, {self.high}: no prompt would be left")

    @property
    def filters(self) -> bool:
        """Whether prompts are filtered by `low` and `high` before the first round."""
        return self.low > 0.0 or self.high < 1.0

    @property
    def tries(self) -> bool:
        """Whether some completions are sampled only to measure how hard prompts are, and not trained on."""
        return self.filters or self.order == "adaptive"

    @property
    def foretold(self) -> bool:
        """Whether the prompts of a round depend only on its number and the seed, and not on earlier rewards."""
        return self.order == "shuffled" and not self.filters


def choose(
    problems: Sequence[Problem],
    settings: CurriculumSettings,
    tally: Tally,
    count: int,
    number: int,
    rounds: int,
    seed: int,
) -> list[Problem]:
    """Return the prompts of round `number`, [count].

    Args:
        problems: all that may be chosen.
        settings: the rule.
        tally: the run's record of the prompts.
        count: prompts of a round.
        number: number of the round, from 0.
        rounds: number of rounds of the whole run.
        seed: seed of the run.
    """
    if settings.order == "signal":
        return _by_signal(problems, settings, tally, count, number, seed)
    if settings.order == "phases":
        return _by_phase(problems, settings, tally, count, number, rounds, seed)
    if settings.order == "by_level":
        return _by_level(problems, settings, tally, count, number, seed)
    if settings.order == "adaptive":
        first = number % settings.every * count
        names = tally.order[first : first + count]
        known = {problem.id: problem for problem in taken(problems, places_of(problems, set(names)))}
        return [known[name] for name in names]
    return prompts_of_round(problems, count, number, seed)


def drawn_at_most(
    problems: Sequence[Problem], settings: CurriculumSettings, count: int, rounds: int, seed: int, open_ended: bool
) -> Sequence[Problem]:
    """Return the distinct prompts that a run will draw; all that it may draw if this is not known in advance.

    Args:
        problems: all that there are.
        settings: the rule.
        count: prompts of a round.
        rounds: number of rounds of the whole run.
        seed: seed of the run.
        open_ended: whether rounds draw further prompts.
    """
    if open_ended or not settings.foretold:
        return problems
    return first_drawn(problems, rounds * count, seed)


def note(tally: Tally, scored: Scored, settings: CurriculumSettings) -> None:
    """Record the rewards of the round's completions in the tally, by prompt and level; only of origin `policy`."""
    worth = scored.component(settings.by, "schedule.curriculum.by").clamp(0.0, 1.0).tolist()
    seen: dict[str, list[float]] = {}
    levels: dict[int, list[float]] = {}
    for rollout, value in zip(scored.rollouts, worth, strict=True):
        if rollout.source.origin == "policy":
            seen.setdefault(rollout.problem.id, []).append(value)
            levels.setdefault(rollout.problem.level, []).append(value)
    for name, values in seen.items():
        tally.seen[name] = _discounted(tally.seen.get(name, (0.0, 0.0)), values, settings.discount)
    for level, values in levels.items():
        tally.levels[level] = _discounted(tally.levels.get(level, (0.0, 0.0)), values, settings.discount)


def _discounted(known: tuple[float, float], values: Sequence[float], discount: float) -> tuple[float, float]:
    return discount * known[0] + sum(values), discount * known[1] + len(values)


def solved(tally: Tally, name: str) -> float:
    """Estimate the mean reward of the prompt with the id `name`, in (0, 1); 0.5 if it was never sampled."""
    total, weight = tally.seen.get(name, (0.0, 0.0))
    return (1.0 + total) / (2.0 + weight)


def level_reached(levels: Sequence[int], tally: Tally, mastery: float) -> int:
    """Return the lowest level that is not mastered, or the highest if all are; an unseen level is not mastered."""
    rates = {level: total / weight for level, (total, weight) in tally.levels.items()}
    return next((level for level in sorted(levels) if rates.get(level, -1.0) < mastery), max(levels))


def drawn(
    problems: Sequence[Problem], weights: Sequence[float] | NDArray[np.float64], count: int, seed: int
) -> list[Problem]:
    """Draw `count` problems at random in proportion to `weights`, none twice before all have been drawn.

    They are drawn one after the other without replacement, which is the order of log weight plus Gumbel noise.
    """
    whole, rest = divmod(count, len(problems))
    generator = torch.Generator().manual_seed(seed)
    chance = torch.rand(len(problems), dtype=torch.float64, generator=generator).clamp(min=1e-300)
    keys = torch.as_tensor(weights, dtype=torch.float64).log() - torch.log(-torch.log(chance))
    order = keys.argsort(descending=True, stable=True)[:rest].tolist()
    return [problem for _ in range(whole) for problem in problems] + [problems[place] for place in order]


def _by_signal(
    problems: Sequence[Problem], settings: CurriculumSettings, tally: Tally, count: int, number: int, seed: int
) -> list[Problem]:
    def weight(p: float) -> float:
        return settings.floor + (1.0 - settings.floor) * 4.0 * p * (1.0 - p)

    seen = places_of(problems, tally.seen)
    weights = np.full(len(problems), weight(0.5))
    weights[seen] = [weight(solved(tally, name)) for name in ids_of(taken(problems, seen))]
    return drawn(problems, weights, count, seed_of(seed, "signal", number))


def _by_phase(
    problems: Sequence[Problem],
    settings: CurriculumSettings,
    tally: Tally,
    count: int,
    number: int,
    rounds: int,
    seed: int,
) -> list[Problem]:
    phases = min(settings.phases, rounds, len(problems))
    phase = number * phases // rounds
    ordered = prompt_lengths(problems).argsort(kind="stable")
    first, end = (len(ordered) * at // phases for at in (phase, phase + 1))
    earlier = ordered[:first]
    before = taken(problems, earlier[np.isin(earlier, places_of(problems, tally.seen))])
    again = min(round(settings.again * count), len(before), count - 1)
    begun = -(-phase * rounds // phases)
    fresh = prompts_of_round(taken(problems, ordered[first:end]), count, number - begun, seed_of(seed, "phase", phase))
    if not again:
        return fresh
    weights = [1.0 - solved(tally, name) for name in ids_of(before)]
    return fresh[: count - again] + drawn(before, weights, again, seed_of(seed, "again", number))


def _by_level(
    problems: Sequence[Problem], settings: CurriculumSettings, tally: Tally, count: int, number: int, seed: int
) -> list[Problem]:
    levels = levels_of(problems)
    reached = level_reached(np.unique(levels).tolist(), tally, settings.mastery)
    own, lower = np.flatnonzero(levels == reached), np.flatnonzero(levels < reached)
    again = min(round(settings.again * count), len(lower), count - 1)
    fresh = prompts_of_round(taken(problems, own), count, number, seed_of(seed, "level", reached))
    if not again:
        return fresh
    back = drawn(taken(problems, lower), np.ones(len(lower)), again, seed_of(seed, "lower", number))
    return fresh[: count - again] + back


def prompts_of_round(problems: Sequence[Problem], count: int, number: int, seed: int) -> list[Problem]:
    """Return the prompts of round `number`: each problem once per epoch, in random order by seed and epoch."""
    chosen = []
    for position in range(number * count, (number + 1) * count):
        epoch, place = divmod(position, len(problems))
        chosen.append(problems[int(_order(len(problems), seed, "order", epoch)[place])])
    return chosen


def first_drawn(problems: Sequence[Problem], draws: int, seed: int) -> Sequence[Problem]:
    """Return the distinct prompts among the first `draws` draws of a shuffled run, in the order they are drawn."""
    return taken(problems, _order(len(problems), seed, "order", 0)[:draws])


def further_prompts(problems: Sequence[Problem], taken: Sequence[Problem], number: int, seed: int) -> Iterator[Problem]:
    """Iterate over the problems that round `number` has not drawn yet, in random order by seed and round.

    Args:
        problems: all that there are.
        taken: those that the round has drawn.
        number: number of the round.
        seed: seed of the run.
    """
    known = {problem.id for problem in taken}
    order = _order(len(problems), seed, "refill", number)
    others = (problems[int(place)] for place in order)
    return (problem for problem in others if problem.id not in known)


@lru_cache(maxsize=4)
def _order(size: int, seed: int, purpose: str, number: int) -> NDArray[np.int32]:
    generator = torch.Generator().manual_seed(seed_of(seed, purpose, number))
    order: NDArray[np.int32] = torch.randperm(size, generator=generator).numpy().astype(np.int32)
    return order
