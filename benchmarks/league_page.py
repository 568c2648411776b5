"""docs/league.md from the league's results: one line a recipe, the best end first."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.league_records import Result
from models.evaluation.bootstrap import Interval, bootstrap_mean

HEAD = """# The league

Every recipe that trains a policy, on the task and policy of the main recipe (`arithmetic`), from one warm start a seed,
at one budget of completions. Rewards that need a fitted reward model are left out where others stay: the verifier is
what all are judged by. `make league` makes this page and goes on where it was stopped; see benchmarks.md.

Accuracy is the share of right samples on {problems} held-out problems of the validation split, the mean over seeds,
with a 95 % bootstrap interval over the problems. *Best* is the best point of the mean curve, *drop* how far the end
lies below it. A recipe is `above` where the intervals of start and end are apart, `below` the other way round. Length
is in tokens, entropy in nats a token, in the last round. Seconds are those of a training on one thread, measurements
left out.
"""


@dataclass(frozen=True)
class Line:
    """A recipe over its seeds."""

    recipe: str
    seeds: int
    start: Interval
    best: float
    end: Interval
    greedy: float
    tokens: float
    entropy: float | None
    seconds: float
    completions: int
    learning_rate: float
    claims: dict[str, float]

    @property
    def drop(self) -> float:
        """How far the end lies below the best point."""
        return self.best - self.end.estimate

    @property
    def verdict(self) -> str:
        """Where the end lies, against the start."""
        if self.end.low > self.start.high:
            return "above"
        return "below" if self.end.high < self.start.low else "not apart"


def line(results: Sequence[Result]) -> Line:
    """One recipe's line from its trainings, none of which failed."""
    first, last = results[0], [one.curve[-1] for one in results]
    length = min(len(one.curve) for one in results)
    means = [statistics.fmean(one.curve[at].accuracy for one in results) for at in range(length)]
    entropies = [one.rounds["policy/entropy"][-1] for one in results if one.rounds.get("policy/entropy")]
    names = list(dict.fromkeys(name for one in results for name in one.claims))
    return Line(
        first.recipe,
        len(results),
        _over_problems(results, 0),
        max(means),
        _over_problems(results, -1),
        statistics.fmean(point.greedy for point in last),
        statistics.fmean(point.tokens for point in last),
        statistics.fmean(entropies) if entropies else None,
        statistics.fmean(one.seconds for one in results),
        first.completions,
        first.learning_rate,
        {name: statistics.fmean(one.claims[name] for one in results) for name in names},
    )


def page(results: Sequence[Result], wanted: int, code: str) -> str:
    """The page; `wanted` is how many trainings a whole league has, `code` the digest of the code as it stands."""
    told = [one for one in results if one.curve]
    by_name: dict[str, list[Result]] = {}
    for one in told:
        by_name.setdefault(one.recipe, []).append(one)
    lines = sorted((line(group) for group in by_name.values()), key=lambda one: -one.end.estimate)
    problems = len(told[0].curve[0].by_problem) if told else 0
    text = [HEAD.format(problems=problems)]
    budgets = ", ".join(f"{budget:,}" for budget in sorted({one.budget for one in told})) or "no"
    commits = ", ".join(sorted({one.commit for one in told if one.commit})) or "none"
    text.append(f"{len(results)} of {wanted} trainings; budget {budgets} completions; commits {commits}.")
    if older := sum(one.code_digest != code for one in results):
        text.append(f"**{older} of them were made by other code than this commit's** (`--older`).")
    counts = {name: sum(one.verdict == name for one in lines) for name in ("above", "not apart", "below")}
    text.append("; ".join(f"{count} {name}" for name, count in counts.items()) + ".\n")
    text.append("| recipe | seeds | start | best | end | drop | verdict | greedy | length | entropy | step size | s |")
    text.append("| --- " * 12 + "|")
    text += [_row(one) for one in lines]
    if claimed := [one for one in lines if one.claims]:
        text += ["", "## What methods of preferences or data claim", ""]
        text.append(
            "Pair accuracy: share of held-out preferences in which the policy has raised the better answer more than "
            "the worse. Win rate: against the start, by the verifier, ties half.\n"
        )
        text += ["| recipe | pair accuracy | win rate |", "| --- | --- | --- |"]
        text += [
            f"| {one.recipe} | {_share(one.claims.get('pair_accuracy'))} | {_share(one.claims.get('win_rate'))} |"
            for one in claimed
        ]
    if failed := [one for one in results if one.failed]:
        text += ["", "## Failed", ""] + [f"- {one.recipe}, seed {one.seed}: {one.failed}" for one in failed]
    return "\n".join(text) + "\n"


def _over_problems(results: Sequence[Result], at: int) -> Interval:
    rows = [one.curve[at].by_problem for one in results]
    return bootstrap_mean([statistics.fmean(values) for values in zip(*rows, strict=True)], resamples=2000)


def _row(one: Line) -> str:
    entropy = "" if one.entropy is None else f"{one.entropy:.3f}"
    cells = (
        f"[{one.recipe}](../recipes/{one.recipe}.yaml)", str(one.seeds), _interval(one.start), f"{one.best:.1%}",
        _interval(one.end), f"{one.drop:.1%}", one.verdict, f"{one.greedy:.1%}", f"{one.tokens:.1f}", entropy,
        f"{one.learning_rate:g}", f"{one.seconds:.0f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _interval(found: Interval) -> str:
    return f"{found.estimate:.1%} [{found.low:.1%}, {found.high:.1%}]"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
