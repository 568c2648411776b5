"""Output of the command line about runs: plain text from plain data."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from flows.servers.server_record import running_servers
from flows.servers.servers import given_servers, page_address

if TYPE_CHECKING:
    from flows.train import TrainFlowResult
    from models.evaluation.aggregate import Standing
    from tasks.pages.comparison import TrainingCost
    from tasks.pages.timing import TimeLine
    from tasks.runner.step import StepResult
    from tasks.tracking.registry import VersionInfo
    from tasks.tracking.summaries import RunLine, RunSummary


def closing_lines(outcome: TrainFlowResult, home: Path) -> str:
    """Return the table of steps, the verdict, the champion's address, and the links to the run."""
    from tasks.pages import cost, timing
    from tasks.tracking import registry
    from tasks.tracking.verdict_text import hand_text

    lines = [f"not pinned: {outcome.unpinned}", ""] if outcome.unpinned else []
    lines += [*(f"stage      {line}" for line in outcome.stages), ""] if outcome.stages else []
    lines += [f"{'step':<20} {'seconds':>8}  {'':<7} key number"]
    lines += [
        f"{step.name:<20} {step.seconds:>8.1f}  {'reused' if step.reused else 'run':<7} {step.headline}"
        for step in outcome.steps
    ]
    lines += [f"{'cost':<20} {cost.cost_text(cost.of_steps(outcome.steps)[0])}", ""]
    if time_went := timing.recorded(outcome.run_id):
        lines += [time_table(time_went), ""]
    if outcome.promotion is not None:
        promotion = outcome.promotion
        before = "nothing changed, judged before: " if promotion.reused else ""
        lines.append(f"verdict    {before}{promotion.decision}: {promotion.reason}")
        if outcome.by_hand is not None:
            lines.append(f"by hand    the champion was set by hand; {hand_text(outcome.by_hand)}")
        champion = registry.champion(outcome.model)
        if champion is not None:
            lines.append(f"champion   models:/{outcome.model}@champion  (version {champion.version})")
    return "\n".join(["", *lines, _all_runs(outcome.run_id, home), *_where(outcome.run_id, home)])


def _all_runs(run_id: str, home: Path) -> str:
    """Return the line with the shared view of all runs of the experiment, which shows what each promoted."""
    from tasks.tracking.views import promotions_hint

    return f"all runs   {page_address(home, 'mlflow')}{promotions_hint(run_id)}"


def _where(run_id: str, home: Path) -> list[str]:
    """Return the line with the run's page in the MLflow UI, and a hint if no server runs."""
    from tasks.tracking.summaries import page_of_run

    lines = [f"run        {page_address(home, 'mlflow')}{page_of_run(run_id)}"]
    if not {**running_servers(home), **given_servers(home)}.get("mlflow"):
        lines.append(f"           (`rewardflow ui` starts the servers; `rewardflow show {run_id[:8]}` prints it here)")
    return lines


def comparison_lines(
    run_id: str,
    standings: Sequence[Standing],
    costs: Sequence[TrainingCost],
    lost: Sequence[str],
    metric: str,
    home: Path,
) -> str:
    """Return the table of a comparison, the trainings that did not learn, and the link to the run."""
    from tasks.pages.comparison import comparison_rows, intervals_heading

    rows = comparison_rows(standings, costs)
    head = list(rows[0])
    lines = columns([head, *([str(row[key]) for key in head] for row in rows)])
    if lost:
        lines += ["", *(f"not learned  {line}" for line in lost)]
    heading = f"{metric}, {intervals_heading(len(standings[0].scores))}"
    return "\n".join(["", heading, *lines, "", *_where(run_id, home)])


def report_lines(run_id: str, report: StepResult, home: Path) -> str:
    """Return a reward model's report: every number, the headline, and the link to the run."""
    rows = [["measured", "value"], *([name.removeprefix("reward_report/"), f"{value:.4f}"]
            for name, value in report.metrics.items())]  # fmt: skip
    return "\n".join(["", *columns(rows), "", f"report     {report.headline}", *_where(run_id, home)])


def strategy_lines(run_id: str, plain: StepResult, strategy: StepResult, home: Path) -> str:
    """Return the table of an evaluation with and without a strategy, its cost, and the link to the run."""
    rows = [["metric", "alone", strategy.name.removeprefix("evaluate "), "difference", "95 % interval"]]
    for key, gain in strategy.metrics.items():
        name = key.removeprefix("gain/")
        if key.startswith("gain/") and not name.endswith(("_low", "_high")):
            low, high = strategy.metrics[f"{key}_low"], strategy.metrics[f"{key}_high"]
            sides = (plain.metrics.get(f"eval/{name}"), strategy.metrics.get(f"eval/{name}"))
            shown = ["" if side is None else f"{side:.4f}" for side in sides]
            rows.append([name, *shown, f"{gain:+.4f}", f"[{low:+.4f}, {high:+.4f}]"])
    partner_wins = {
        key.removeprefix("cross_play/"): value for key, value in strategy.metrics.items() if "cross_play/" in key
    }
    spent = {key.removeprefix("strategy/"): value for key, value in strategy.metrics.items() if key.startswith("strat")}
    took = (
        f"{spent['calls_a_turn']:.1f} calls a turn ({spent['calls']:,.0f} for {spent['turns']:,.0f}), "
        f"{spent['tokens_read']:,.0f} tokens read, {spent['tokens_written']:,.0f} written"
    )
    lines = ["", *columns(rows), "", f"took       {took}"]
    if partner_wins:
        lines.append("partners   " + ", ".join(f"{name} wins {value:+.4f}" for name, value in partner_wins.items()))
    if "log_prob_gap" in spent:
        lines.append(f"gap        {spent['log_prob_gap']:+.4f} nats a token, log-probs as drawn less the policy's own")
    if spent["no_room"]:
        lines.append(f"           {spent['no_room']:,.0f} questions were left out: the policy has no room for them")
    return "\n".join([*lines, *_where(run_id, home)])


def columns(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows of equal length as lines, every column as wide as its widest cell."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def time_table(lines: Sequence[TimeLine]) -> str:
    """Return the table of the time per stage, one line per stage."""
    from tasks.pages.timing import remark

    shown = [f"{'time of fine_tune':<20} {'seconds':>8}  {'share':>7} {'tokens/s':>9}"]
    for line in lines:
        tokens = "" if line.tokens_per_second is None else f"{line.tokens_per_second:,.0f}"
        share = "" if line.share is None else f"{line.share:.1%}"
        shown.append(f"  {line.stage:<18} {line.seconds:>8.1f}  {share:>7} {tokens:>9}  {remark(line)}".rstrip())
    return "\n".join(shown)


def run_lines(listed: Sequence[RunLine]) -> str:
    """Return one line per run, newest first."""
    if not listed:
        return "no runs yet"
    recipe = max(len("recipe"), *(len(run.experiment) for run in listed))
    lines = [f"{'run':<10} {'started':<17} {'seconds':>8}  {'status':<9} {'recipe':<{recipe}}  name"]
    for run in listed:
        seconds = f"{run.seconds:.0f}" if run.seconds is not None else "-"
        accuracy = run.metrics.get("verdict/candidate_sampled_accuracy")
        shown = f"  sampled accuracy {accuracy:.1%}" if accuracy is not None else ""
        when = f"{run.started:%Y-%m-%d %H:%M}"
        about = f"{run.status:<9} {run.experiment:<{recipe}}  {run.name}{shown}"
        lines.append(f"{run.run_id[:8]:<10} {when:<17} {seconds:>8}  {about}")
    return "\n".join(lines)


def version_lines(listed: Sequence[VersionInfo]) -> str:
    """Return one line per version of a registered model."""
    from tasks.tracking import tags
    from tasks.tracking.verdict_record import decided

    if not listed:
        return "no models yet"
    name = max(len("model"), *(len(version.name) for version in listed))
    also = max(len("aliases"), *(len(", ".join(version.aliases)) for version in listed))
    lines = [f"{'model':<{name}}  version  {'made':<16}  {'aliases':<{also}}  held out; verdict; difference"]
    for version in listed:
        facts = (version.tags.get(tags.HELDOUT_ACCURACY, ""), decided(version), version.tags.get(tags.IMPROVEMENT, ""))
        about = f"{', '.join(version.aliases):<{also}}  {'; '.join(fact for fact in facts if fact)}"
        lines.append(
            f"{version.name:<{name}}  {version.version:>7}  {version.created:%Y-%m-%d %H:%M}  {about}".rstrip()
        )
    return "\n".join(lines)


def print_run(summary: RunSummary, home: Path) -> None:
    """Print one run to the terminal: the description as Markdown, steps, data, address."""
    from rich.console import Console
    from rich.markdown import Markdown

    from tasks.pages import timing

    console = Console()
    console.print(f"[bold]{summary.line.name}[/]  {summary.line.run_id}  {summary.line.status}\n")
    console.print(Markdown(summary.description))
    for step in summary.steps:
        line = f"  {step.name:<16} {step.status:<9} {step.seconds or 0:8.1f} s  run {step.run_id[:8]}"
        console.print(line, highlight=False)
    console.print()
    for link in summary.data:
        console.print(f"  data {link.name:<36} {link.digest:<38} {link.context}", highlight=False, soft_wrap=True)
    if slowest := timing.bottleneck(timing.recorded(summary.line.run_id)):
        console.print(f"\n  slowest stage: {slowest}", highlight=False, soft_wrap=True)
    console.print(f"\n{page_address(home, 'mlflow')}{summary.address}", soft_wrap=True)
