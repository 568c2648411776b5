"""docs/league.md from the league's results: one row per recipe, sorted by the accuracy at the end."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from benchmarks.league.records import LeagueResult
from models.evaluation.bootstrap import Interval, bootstrap_mean, paired_bootstrap
from models.recipes.find import find_recipe

HEAD = """# The league

This page compares all recipes that train a policy on one task: that of the main recipe (`arithmetic`). All start from
the same warm start (one per seed) and have the same budget of completions. A reward that needs a fitted reward model is
left out if the recipe has other rewards, because all recipes are measured by the verifier. `make league` writes this
page and resumes an interrupted run; see benchmarks.md.

Accuracy is the share of right samples on {problems} held-out problems of the validation split, the mean over the seeds,
with a 95 % bootstrap interval over the problems. *By seed* is the accuracy at the end of each training. *Best* is the
best point of the mean curve, and *drop* is its distance to the end. *Gain* is the difference of end and start, problem
by problem; its interval is narrower because a hard problem is hard at both times. A recipe is `above` if the intervals
of start and end do not overlap, and `above, paired` if they overlap but the interval of the gain is above zero. `below`
and `below, paired` are the same for a loss; otherwise the verdict is `not apart`. Length (tokens) and entropy (nats per
token) are those of the last round. Seconds are those of a training on one thread, without the measurements.
"""
COLUMNS = ("recipe", "start", "best", "end", "by seed", "gain", "drop", "verdict", "greedy", "length", "entropy",
           "step size", "s")  # fmt: skip
REASON = "# League: "
"""Prefix of the lines in a recipe's head that give the reason why it does not end above its start."""
VERDICTS = ("above", "above, paired", "not apart", "below, paired", "below")


@dataclass(frozen=True)
class LeagueRow:
    """A recipe over its seeds."""

    recipe: str
    start: Interval
    best: float
    end: Interval
    by_seed: tuple[float, ...]
    """End of each training."""
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
        """Distance of the end below the best point."""
        return self.best - self.end.estimate

    @property
    def verdict(self) -> str:
        """Comparison of the end with the start: one of `VERDICTS`."""
        if self.gain.low > 0.0:
            return "above" if self.end.low > self.start.high else "above, paired"
        if self.gain.high < 0.0:
            return "below" if self.end.high < self.start.low else "below, paired"
        return "not apart"


def line(results: Sequence[LeagueResult]) -> LeagueRow:
    """Make one recipe's line from its trainings, none of which failed."""
    first, last = results[0], [result.curve[-1] for result in results]
    length = min(len(result.curve) for result in results)
    means = [statistics.fmean(result.curve[at].accuracy for result in results) for at in range(length)]
    entropies = [result.rounds["policy/entropy"][-1] for result in results if result.rounds.get("policy/entropy")]
    names = list(dict.fromkeys(name for result in results for name in result.claims))
    return LeagueRow(
        first.recipe,
        _over_problems(results, 0),
        max(means),
        _over_problems(results, -1),
        tuple(point.accuracy for point in last),
        paired_bootstrap(_by_problem(results, -1), _by_problem(results, 0), resamples=2000),
        statistics.fmean(point.greedy for point in last),
        statistics.fmean(point.tokens for point in last),
        statistics.fmean(entropies) if entropies else None,
        statistics.fmean(result.seconds for result in results),
        first.completions,
        first.learning_rate,
        {name: statistics.fmean(result.claims[name] for result in results) for name in names},
    )


def reason(recipe: str) -> str:
    """Return the reason why a recipe does not end above its start, from the last lines of its head; "" without a
    reason."""
    head = "\n".join(takewhile(lambda text: text.startswith("#"), recipe.splitlines()))
    _, _, text = head.partition(f"\n{REASON}")
    return " ".join(text.replace("\n#", " ").split())


def page(results: Sequence[LeagueResult], wanted: int, code: str, recipes: Mapping[str, str]) -> str:
    """Render the page.

    Args:
        wanted: how many trainings a whole league has.
        code: digest of the present code.
        recipes: name -> text, whose heads give the reason why a recipe does not end above its start.
    """
    measured = [result for result in results if result.curve]
    by_name: dict[str, list[LeagueResult]] = {}
    for result in measured:
        by_name.setdefault(result.recipe, []).append(result)
    lines = sorted((line(group) for group in by_name.values()), key=lambda row: -row.end.estimate)
    problems = len(measured[0].curve[0].by_problem) if measured else 0
    text = [HEAD.format(problems=problems)]
    budgets = ", ".join(f"{budget:,}" for budget in sorted({result.budget for result in measured})) or "no"
    commits = ", ".join(sorted({result.commit for result in measured if result.commit})) or "none"
    text.append(f"{len(results)} of {wanted} trainings; budget {budgets} completions; commits {commits}.")
    if older := sum(result.code_digest != code for result in results):
        text.append(f"**{older} of them were trained with other code than this commit's** (`--older`).")
    counts = {name: sum(line.verdict == name for line in lines) for name in VERDICTS}
    text.append("; ".join(f"{count} {name}" for name, count in counts.items()) + ".\n")
    text.append(f"| {' | '.join(COLUMNS)} |")
    text.append("| --- " * len(COLUMNS) + "|")
    text += [_row(line) for line in lines]
    if without_gain := [line for line in lines if line.verdict != VERDICTS[0]]:
        text += ["", "## Recipes without a clear gain", ""]
        text += [
            f"- {line.recipe} ({line.verdict}): {reason(recipes[line.recipe]) or 'no reason is given.'}"
            for line in without_gain
        ]
    if claimed := [line for line in lines if line.claims]:
        text += ["", "## Pair accuracy and win rate", ""]
        text.append(
            "Methods that learn from preferences or from data are also measured by these two numbers. Pair accuracy: "
            "share of held-out preference pairs in which training raised the log-probability of the chosen answer more "
            "than that of the rejected one. Win rate: against the start, by the verifier; a tie counts one half.\n"
        )
        text += ["| recipe | pair accuracy | win rate |", "| --- | --- | --- |"]
        text += [
            f"| {line.recipe} | {_share(line.claims.get('pair_accuracy'))} | {_share(line.claims.get('win_rate'))} |"
            for line in claimed
        ]
    if failed := [result for result in results if result.failed]:
        text += ["", "## Failed", ""] + [f"- {result.recipe}, seed {result.seed}: {result.failed}" for result in failed]
    return "\n".join(text) + "\n"


def _by_problem(results: Sequence[LeagueResult], at: int) -> list[float]:
    """Return the accuracy at each problem, [problems], the mean over seeds."""
    rows = [result.curve[at].by_problem for result in results]
    return [statistics.fmean(values) for values in zip(*rows, strict=True)]


def _over_problems(results: Sequence[LeagueResult], at: int) -> Interval:
    return bootstrap_mean(_by_problem(results, at), resamples=2000)


def _row(line: LeagueRow) -> str:
    entropy = "" if line.entropy is None else f"{line.entropy:.3f}"
    gain = f"{line.gain:+.1%}"
    cells = (
        f"[{line.recipe}](../{find_recipe(line.recipe)})", _interval(line.start), f"{line.best:.1%}",
        _interval(line.end), ", ".join(f"{share:.1%}" for share in line.by_seed), gain, f"{line.drop:.1%}",
        line.verdict, f"{line.greedy:.1%}", f"{line.tokens:.1f}", entropy, f"{line.learning_rate:g}",
        f"{line.seconds:.0f}",
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _interval(interval: Interval) -> str:
    return f"{interval:.1%}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.1%}"
