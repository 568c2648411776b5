"""docs/league.md from the league's results: one line a recipe, the best end first."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from benchmarks.league_records import Result
from models.evaluation.bootstrap import Interval, bootstrap_mean, paired_bootstrap

HEAD = """# The league

Every recipe that trains a policy, on the task and policy of the main recipe (`arithmetic`), from one warm start a seed,
at one budget of completions. Rewards that need a fitted reward model are left out where others stay: the verifier is
what all are judged by. `make league` makes this page and goes on where it was stopped; see benchmarks.md.

Accuracy is the share of right samples on {problems} held-out problems of the validation split, the mean over seeds,
with a 95 % bootstrap interval over the problems; *by seed* is the end of each training. *Best* is the best point of the
mean curve, *drop* how far the end lies below it. *Gain* is end less start of the same problems: its interval is
narrower, as hard problems are hard at both. A recipe is `above` where the intervals of start and end are apart, `above,
paired` where they overlap and that of the gain lies above zero, `below` the other way round. Length is in tokens,
entropy in nats a token, in the last round. Seconds are those of a training on one thread, measurements left out.
"""
COLUMNS = ("recipe", "start", "best", "end", "by seed", "gain", "drop", "verdict", "greedy", "length", "entropy",
           "step size", "s")  # fmt: skip
REASON = "# League: "
"""Begins the lines of a recipe's head that say why it does not end above its start."""
VERDICTS = ("above", "above, paired", "not apart", "below, paired", "below")


@dataclass(frozen=True)
class Line:
    """A recipe over its seeds."""

    recipe: str
    start: Interval
    best: float
    end: Interval
    by_seed: tuple[float, ...]
    """The end of each training."""
    gain: Interval
    """End less start, problem by problem."""
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
        """Where the end lies, against the start: one of `VERDICTS`."""
        if self.gain.low > 0.0:
            return "above" if self.end.low > self.start.high else "above, paired"
        if self.gain.high < 0.0:
            return "below" if self.end.high < self.start.low else "below, paired"
        return "not apart"


def line(results: Sequence[Result]) -> Line:
    """One recipe's line from its trainings, none of which failed."""
    first, last = results[0], [one.curve[-1] for one in results]
    length = min(len(one.curve) for one in results)
    means = [statistics.fmean(one.curve[at].accuracy for one in results) for at in range(length)]
    entropies = [one.rounds["policy/entropy"][-1] for one in results if one.rounds.get("policy/entropy")]
    names = list(dict.fromkeys(name for one in results for name in one.claims))
    return Line(
        first.recipe,
        _over_problems(results, 0),
        max(means),
        _over_problems(results, -1),
        tuple(point.accuracy for point in last),
        paired_bootstrap(_by_problem(results, -1), _by_problem(results, 0), resamples=2000),
        statistics.fmean(point.greedy for point in last),
        statistics.fmean(point.tokens for point in last),
        statistics.fmean(entropies) if entropies else None,
        statistics.fmean(one.seconds for one in results),
        first.completions,
        first.learning_rate,
        {name: statistics.fmean(one.claims[name] for one in results) for name in names},
    )


def reason(recipe: str) -> str:
    """Why a recipe does not end above its start, as the last lines of its head have it; "" where it says nothing."""
    head = "\n".join(takewhile(lambda text: text.startswith("#"), recipe.splitlines()))
    _, _, said = head.partition(f"\n{REASON}")
    return " ".join(said.replace("\n#", " ").split())


def page(results: Sequence[Result], wanted: int, code: str, recipes: Mapping[str, str]) -> str:
    """The page.

    Args:
        wanted: how many trainings a whole league has.
        code: digest of the code as it stands.
        recipes: name -> text, whose heads say why a recipe does not end above its start.
    """
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
    counts = {name: sum(one.verdict == name for one in lines) for name in VERDICTS}
    text.append("; ".join(f"{count} {name}" for name, count in counts.items()) + ".\n")
    text.append(f"| {' | '.join(COLUMNS)} |")
    text.append("| --- " * len(COLUMNS) + "|")
    text += [_row(one) for one in lines]
    if behind := [one for one in lines if one.verdict != VERDICTS[0]]:
        text += ["", "## Not above, and why", ""]
        text += [
            f"- {one.recipe} ({one.verdict}): {reason(recipes[one.recipe]) or 'its recipe does not say.'}"
            for one in behind
        ]
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


def _by_problem(results: Sequence[Result], at: int) -> list[float]:
    """Accuracy at each problem, [problems], the mean over seeds."""
    rows = [one.curve[at].by_problem for one in results]
    return [statistics.fmean(values) for values in zip(*rows, strict=True)]


def _over_problems(results: Sequence[Result], at: int) -> Interval:
    return bootstrap_mean(_by_problem(results, at), resamples=2000)


def _row(one: Line) -> str:
    entropy = "" if one.entropy is None else f"{one.entropy:.3f}"
    gain = f"{one.gain.estimate:+.1%} [{one.gain.low:+.1%}, {one.gain.high:+.1%}]"
    cells = (
        f"[{one.recipe}](../recipes/{one.recipe}.yaml)", _interval(one.start), f"{one.best:.1%}", _interval(one.end),
        ", ".join(f"{share:.1%}" for share in one.by_seed), gain, f"{one.drop:.1%}", one.verdict, f"{one.greedy:.1%}",
        f"{one.tokens:.1f}", entropy, f"{one.learning_rate:g}", f"{one.seconds:.0f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _interval(found: Interval) -> str:
    return f"{found.estimate:.1%} [{found.low:.1%}, {found.high:.1%}]"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
