"""Preference pairs by a jury: judges compare completions of the policy, and must agree (paper 253).

    v_k(a, b)   juror k's value of a minus its value of b, if it judges these two alone
    a over b    if enough of the jurors have v_k(a, b) > 0

A juror is a reward by a judge: one compares in both orders, another scores each completion, another ranks under a
principle. Preferences that jurors of different kinds share are correct more often than those of a single one. A juror
whose two orders contradict each other values both completions alike, and prefers neither. Pairs that are tied, disputed
or not read are dropped, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import Field

from models.base.bounds import Positive, Temperature
from models.base.errors import UserError
from models.method.judge import GenerativeJudge
from models.method.registry import slot_type
from models.method.reward import JudgedReward
from models.method.rollout import Rollout
from models.parts.rewards.judges.judge_pairs import JudgePairs, rivals_of
from models.reward_models.solutions import Solution

if TYPE_CHECKING:
    Jurors = list[JudgedReward]
else:
    Jurors = slot_type("rewards", JudgedReward, default="judge_pairs")

Fate = Literal["agreed", "tied", "disputed", "unread"]
"""Outcome of a pair that the jury judged.

agreed: enough of the jurors prefer the same one
tied: too many value both alike, and the others do not contradict each other
disputed: some prefer the one, some the other
unread: the value of some juror cannot be read
"""
FATES: tuple[Fate, ...] = get_args(Fate)


@dataclass(frozen=True, kw_only=True)
class JurySettings:
    """Preference pairs by judges on the policy's completions, instead of the data's. Section `reward_model.pairs:`."""

    jury: Jurors = field(default_factory=lambda: [JudgePairs()])
    """Rewards by a judge; their weights have no effect. Each judges each pair separately."""
    least_agreed: Annotated[float, Field(gt=0.5, le=1)] = 1.0
    """Minimum share of the jurors that must prefer the same completion."""
    problems: Positive = 200
    """Problems of the training split whose completions are paired, evenly spaced over it."""
    held_out: Positive = 50
    """Problems of the validation split; the held-out accuracy is measured on their pairs, with the jury's
    preferences."""
    samples: Annotated[int, Field(ge=2)] = 8
    """Completions per problem, sampled from the policy before it is trained."""
    temperature: Temperature = 1.0
    """Sampling temperature of the completions."""
    rivals: Positive = 2
    """Number of rivals from the same prompt per completion, in addition to those that have it as a rival."""
    most: Positive | None = None
    """Maximum number of pairs per prompt: those with the largest gap between the jurors' values; null: all agreed
    ones."""
    cut: bool = False
    """Whether completions that did not end are included."""
    unread: Literal["drop", "drawn"] = "drop"
    """Treatment of unread pairs: drop them, or prefer the completion that was drawn first, so that a jury whose
    verdicts cannot be read can be tried out."""

    def __post_init__(self) -> None:
        if not self.jury:
            raise UserError("reward_model.pairs.jury: no juror is given")


@dataclass(frozen=True)
class JudgedPair:
    """Two completions of a prompt of which the jury prefers one."""

    chosen: Solution
    rejected: Solution
    gap: float
    """Mean of the readable jurors' values of the chosen one minus the other."""


@dataclass(frozen=True)
class Verdicts:
    """Pairs of completions that a jury agrees on, and outcome counts."""

    pairs: list[JudgedPair]
    """Pairs that are kept, in the order of their prompts."""
    fates: Mapping[Fate, int]
    """Number of judged pairs with each outcome."""

    @property
    def pair_count(self) -> int:
        """Number of pairs that the jury judged."""
        return sum(self.fates.values())

    @property
    def summary(self) -> str:
        """Number of pairs with each outcome as text, such as `12 agreed, 3 tied, 0 disputed, 1 unread`."""
        return ", ".join(f"{self.fates[fate]} {fate}" for fate in FATES)


def ask_jury(settings: JurySettings, judge: GenerativeJudge, solutions: Sequence[Solution], seed: int) -> Verdicts:
    """Return the pairs of completions that the jury agrees on.

    Args:
        judge: the judge that the jurors use.
        solutions: completions of the policy; those of a prompt need not be adjacent.
        seed: seed of the jurors' own random choices.

    Raises:
        models.base.http_client.NoAnswer: no question got an answer.
    """
    usable = list({(each.problem.id, each.text): each for each in solutions if each.finished or settings.cut}.values())
    prompts = {name: number for number, name in enumerate(dict.fromkeys(each.problem.id for each in usable))}
    places = rivals_of([prompts[each.problem.id] for each in usable], settings.rivals)
    pairs = [(usable[mine], usable[other]) for mine, other in places]
    rollouts = [_rollout(each, number) for number, pair in enumerate(pairs) for each in pair]
    votes_by_juror: list[list[float]] = []
    for juror in settings.jury:
        values = juror.judged(judge, rollouts, seed).values.double()
        votes_by_juror.append((values[0::2] - values[1::2]).tolist())
    fates: Counter[Fate] = Counter(dict.fromkeys(FATES, 0))
    agreed: dict[str, list[JudgedPair]] = {}
    for (first, second), votes in zip(pairs, zip(*votes_by_juror, strict=True), strict=True):
        fate, gap = decide(votes, settings.least_agreed)
        fates[fate] += 1
        if fate == "unread" and settings.unread == "drawn":
            gap = 1.0
        elif fate != "agreed":
            continue
        better, worse = (first, second) if gap > 0 else (second, first)
        agreed.setdefault(first.problem.id, []).append(JudgedPair(better, worse, abs(gap)))
    widest = [sorted(some, key=lambda pair: -pair.gap)[: settings.most] for some in agreed.values()]
    return Verdicts([pair for some in widest for pair in some], fates)


def decide(votes: Sequence[float], least: float) -> tuple[Fate, float]:
    """Return the outcome of a pair, and the mean gap of its first completion over the second.

    The gap is negative if the second is better.

    Args:
        votes: each juror's value of the first minus the second, NaN if it cannot be read, [jurors].
        least: minimum share of the jurors that must prefer the same one.
    """
    known = [vote for vote in votes if vote == vote]
    wins, losses = sum(vote > 0 for vote in known), sum(vote < 0 for vote in known)
    gap = sum(known) / len(known) if known else 0.0
    if max(wins, losses) >= least * len(votes) and gap * (wins - losses) > 0:
        return "agreed", gap
    if len(known) < len(votes):
        return "unread", gap
    return ("disputed" if wins and losses else "tied"), gap


def _rollout(solution: Solution, group: int) -> Rollout:
    """Return a completion as a rollout, in a group of its own with its rival."""
    return Rollout(solution.problem, group, solution.completion, None, solution.text, solution.finished)
