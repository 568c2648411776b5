"""Preference pairs by a jury: judges who must agree compare completions of the policy (paper 253).

    v_k(a, b)   what juror k holds of a, less what it holds of b, where the two stand before it by themselves
    a over b    where enough of the jurors have v_k(a, b) > 0

A juror is a reward by a judge: one compares both orders, another scores each, another ranks under a principle. What two
of other kinds agree on is more often true than what each says. A juror whose orders contradict each other holds both
alike, and so for neither. Pairs that are tied, disputed or not read are dropped, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal, get_args

from pydantic import Field

from models.bounds import Positive, Temperature
from models.errors import UserError
from models.judges.judge import GenerativeJudge
from models.loop.reward_forms import JudgedReward
from models.loop.rollout import Rollout
from models.part_types import slot_type
from models.reward_model.solutions import Solution
from models.rewards.judge_pairs import JudgePairs, rivals_of

if TYPE_CHECKING:
    Jurors = list[JudgedReward]
else:
    Jurors = slot_type("rewards", JudgedReward, default="judge_pairs")

Fate = Literal["agreed", "tied", "disputed", "unread"]
"""What became of a pair that the jury was asked about.

agreed: enough of the jurors prefer the same one
tied: too many hold both alike, and none who does not contradicts another
disputed: some prefer the one, some the other
unread: of some juror nothing can be read
"""
FATES: tuple[Fate, ...] = get_args(Fate)


@dataclass(frozen=True, kw_only=True)
class JurySettings:
    """Pairs that judges make of completions of the policy, in place of those of the data. Stands under
    `reward_model.pairs:`."""

    jury: Jurors = field(default_factory=lambda: [JudgePairs()])
    """Rewards by a judge, whose weights play no part; each is asked about each pair by itself."""
    least_agreed: Annotated[float, Field(gt=0.5, le=1)] = 1.0
    """Least share of the jurors that must prefer the same one."""
    problems: Positive = 200
    """Problems of the training split whose completions are paired, evenly spaced over it."""
    held_out: Positive = 50
    """Problems of the validation split; the held-out accuracy is that on their pairs, as the jury has them."""
    samples: Annotated[int, Field(ge=2)] = 8
    """Completions of each that the policy draws before it is trained."""
    temperature: Temperature = 1.0
    """Of the completions."""
    rivals: Positive = 2
    """How many others of its prompt each completion meets, beside those whose rival it is itself."""
    most: Positive | None = None
    """Most pairs of a prompt: those on which the jurors' values are furthest apart; null: all that are agreed."""
    cut: bool = False
    """Whether completions that did not end take part."""
    unread: Literal["drop", "drawn"] = "drop"
    """What becomes of pairs of which nothing can be read: they are dropped, or the one drawn first counts as the
    better, so that a jury that says nothing can be tried out."""

    def __post_init__(self) -> None:
        if not self.jury:
            raise UserError("reward_model.pairs.jury: there is no juror")


@dataclass(frozen=True)
class JudgedPair:
    """Two completions of a prompt of which the jury prefers one."""

    chosen: Solution
    rejected: Solution
    gap: float
    """What the jurors hold of the chosen one beyond the other, the mean over those that can be read."""


@dataclass(frozen=True)
class Verdicts:
    """What a jury makes of completions."""

    pairs: list[JudgedPair]
    """Those that are kept, prompts in their order."""
    fates: Mapping[Fate, int]
    """How many pairs the jury was asked about had which."""

    @property
    def asked(self) -> int:
        """Pairs that the jury was asked about."""
        return sum(self.fates.values())

    @property
    def said(self) -> str:
        """The counts in words."""
        return ", ".join(f"{self.fates[fate]} {fate}" for fate in FATES)


def ask_jury(settings: JurySettings, judge: GenerativeJudge, solutions: Sequence[Solution], seed: int) -> Verdicts:
    """Pairs of completions that the jury agrees on.

    Args:
        judge: whom the jurors ask.
        solutions: completions of the policy; those of a prompt need not stand side by side.
        seed: of what the jurors draw themselves.

    Raises:
        models.gateway.client.NoAnswer: nobody answers at all.
    """
    there = list({(each.problem.id, each.text): each for each in solutions if each.finished or settings.cut}.values())
    prompts = {name: number for number, name in enumerate(dict.fromkeys(each.problem.id for each in there))}
    places = rivals_of([prompts[each.problem.id] for each in there], settings.rivals)
    asked = [(there[mine], there[other]) for mine, other in places]
    rollouts = [_rollout(each, number) for number, pair in enumerate(asked) for each in pair]
    held: list[list[float]] = []
    for juror in settings.jury:
        values = juror.judged(judge, rollouts, seed).values.double()
        held.append((values[0::2] - values[1::2]).tolist())
    fates: Counter[Fate] = Counter(dict.fromkeys(FATES, 0))
    agreed: dict[str, list[JudgedPair]] = {}
    for (first, second), votes in zip(asked, zip(*held, strict=True), strict=True):
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
    """What becomes of a pair, and by how much its first completion is the better one, below zero where the second is.

    Args:
        votes: what each juror holds of the first beyond the second, NaN where it cannot be read, [jurors].
        least: share of the jurors that must prefer the same one.
    """
    known = [vote for vote in votes if vote == vote]
    ahead, behind = sum(vote > 0 for vote in known), sum(vote < 0 for vote in known)
    gap = sum(known) / len(known) if known else 0.0
    if max(ahead, behind) >= least * len(votes) and gap * (ahead - behind) > 0:
        return "agreed", gap
    if len(known) < len(votes):
        return "unread", gap
    return ("disputed" if ahead and behind else "tied"), gap


def _rollout(solution: Solution, group: int) -> Rollout:
    """A completion beside its rival alone."""
    return Rollout(solution.problem, group, solution.completion, None, solution.text, solution.finished)
