"""The figures of a run, in one style; they show what MLflow's own charts cannot.

Every function takes plain data and returns a figure; nothing is shown or written here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ParamSpec

from models.training.clock import STAGES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from models.evaluation.aggregate import Profile, Standing
    from models.evaluation.bootstrap import Interval
    from models.evaluation.drift import Drift
    from models.evaluation.learning_curves import CurveBand
    from models.reward_models.calibration import ReliabilityBin
    from tasks.tracking.journal import JournalRow

Arguments = ParamSpec("Arguments")

INK, FAINT, GRID = "#1f2933", "#7b8794", "#e4e7eb"
COLOURS = ("#0b7285", "#e8590c", "#5f3dc4", "#2b8a3e", "#c2255c", "#868e96")
ROLES = {"base": "#868e96", "champion": "#e8590c", "candidate": "#0b7285"}
"""Role of a model -> its colour, which is the same on every figure."""


_STYLE: Any = {
    "font.size": 10, "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left",
    "axes.edgecolor": FAINT, "axes.labelcolor": INK, "axes.titlecolor": INK, "axes.grid": True,
    "axes.axisbelow": True, "grid.color": GRID, "axes.spines.top": False, "axes.spines.right": False,
    "xtick.color": FAINT, "ytick.color": FAINT, "legend.frameon": False, "legend.fontsize": 8.5,
    "figure.titlesize": 13, "figure.titleweight": "bold", "figure.facecolor": "white",
}  # fmt: skip


def _styled(draw: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    @functools.wraps(draw)
    def drawn(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        import matplotlib as mpl

        with mpl.rc_context(_STYLE):
            return draw(*args, **kwargs)

    return drawn


@dataclass(frozen=True)
class Panel:
    """One small chart of the training figure."""

    title: str
    keys: str
    """Regular expression for the metric keys that it shows; at most as many are shown as there are colours."""
    unit: str = ""


TRAINING_PANELS = (
    Panel("Reward", r"reward/(?!.*(std|weight))"),
    Panel("Accuracy", r"(.*/)?(accuracy|pass_at_1|correct)(/.*)?$"),
    Panel("KL to the reference", r"(.*/)?kl(/.*)?$", "nats"),
    Panel("Completion length", r"(.*/)?length(/.*)?$", "tokens"),
    Panel("Entropy", r"(.*/)?entropy(/.*)?$", "nats"),
    Panel("Gradient norm", r"(.*/)?grad(ient)?_norm$"),
)


@_styled
def training_curves(
    rows: Sequence[JournalRow], panels: Sequence[Panel] = TRAINING_PANELS, title: str = "Training"
) -> Figure:
    """Draw small multiples over training steps from the rows of a metric journal; panels without data are left out."""
    curves: dict[str, list[tuple[int, float]]] = {}
    for row in rows:
        for key, value in row.metrics.items():
            curves.setdefault(key, []).append((row.step, value))
    filled = []
    for panel in panels:
        keys = [key for key in sorted(curves) if re.match(panel.keys, key)][: len(COLOURS)]
        if keys:
            filled.append((panel, keys))
    wide = min(3, max(1, len(filled)))
    tall = max(1, -(-len(filled) // wide))
    figure, axes = _figure(tall, wide, width=4.2 * wide, height=3.0 * tall + 0.5)
    for axis, (panel, keys) in zip(axes, filled, strict=False):
        for colour, key in zip(COLOURS, keys, strict=False):
            points = sorted(curves[key])
            _curve(axis, [step for step, _ in points], [value for _, value in points], colour, _last_part(key, keys))
        axis.set_title(panel.title + (f" ({panel.unit})" if panel.unit else ""))
        axis.set_xlabel("step")
        if len(keys) > 1:
            axis.legend(loc="best")
    for axis in axes[len(filled) :]:
        axis.set_visible(False)
    if not filled:
        axes[0].set_visible(True)
        axes[0].text(0.5, 0.5, "no metrics in the journal", ha="center", color=FAINT, transform=axes[0].transAxes)
    figure.suptitle(title)
    return figure


@_styled
def accuracy_by_level(models: Mapping[str, Mapping[int, Interval]]) -> Figure:
    """Draw the accuracy at each level of difficulty with its interval, models side by side.

    Args:
        models: name of the model ("base", "champion", "candidate") -> level -> accuracy.
    """
    figure, (axis,) = _figure(1, 1, width=7.2, height=4.0)
    levels = sorted({level for accuracies in models.values() for level in accuracies})
    width = 0.8 / max(1, len(models))
    for number, (name, accuracies) in enumerate(models.items()):
        colour = ROLES.get(name, COLOURS[number % len(COLOURS)])
        for level, interval in accuracies.items():
            place = levels.index(level) + (number - (len(models) - 1) / 2) * width
            label = name if level == min(accuracies) else None
            axis.bar(place, interval.estimate, width * 0.9, color=colour, alpha=0.85, label=label)
            below, above = interval.estimate - interval.low, interval.high - interval.estimate
            axis.errorbar(place, interval.estimate, [[max(0, below)], [max(0, above)]], color=INK, lw=1, capsize=2.5)
            over = max(interval.high, interval.estimate) + 0.015
            axis.text(place, over, f"{100 * interval.estimate:.0f}", ha="center", fontsize=8, color=FAINT)
    axis.set_xticks(range(len(levels)), [f"level {level}" if level else "all" for level in levels])
    axis.set_ylim(0, 1.08)
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axis.grid(axis="x", visible=False)
    axis.set_title("Held-out accuracy by difficulty, with 95 % intervals")
    axis.legend(loc="upper right", ncols=len(models) or 1)
    return figure


@_styled
def comparison(standings: Sequence[Standing], metric: str) -> Figure:
    """Draw the interquartile mean of each method with its interval, and every seed as a point."""
    figure, (axis,) = _figure(1, 1, width=7.2, height=1.4 + 0.45 * len(standings))
    for place, standing in enumerate(standings):
        colour = COLOURS[place % len(COLOURS)]
        axis.plot([standing.middle.low, standing.middle.high], [place, place], color=colour, lw=6, alpha=0.35)
        axis.plot([standing.middle.estimate] * 2, [place - 0.22, place + 0.22], color=colour, lw=2.5)
        axis.scatter(standing.scores, [place] * len(standing.scores), s=14, color=INK, zorder=3, alpha=0.7)
    axis.set_yticks(range(len(standings)), [standing.method for standing in standings])
    axis.invert_yaxis()
    axis.set_xlabel(metric.replace("_", " "))
    axis.grid(axis="y", visible=False)
    axis.set_title("Interquartile mean with 95 % interval; points are seeds")
    return figure


@_styled
def performance_profiles(profiles: Mapping[str, Profile], metric: str) -> Figure:
    """Draw the share of the seeds whose score is above each threshold, with 95 % bands, a curve for each method."""
    figure, (axis,) = _figure(1, 1, width=7.2, height=4.0)
    for number, (method, profile) in enumerate(profiles.items()):
        colour, limits = COLOURS[number % len(COLOURS)], profile.thresholds
        axis.step(limits, profile.shares, where="post", color=colour, lw=1.8, label=method)
        axis.fill_between(limits, profile.low, profile.high, step="post", color=colour, alpha=0.15, lw=0)
    axis.set_ylim(-0.03, 1.03)
    axis.set_xlabel(metric.replace("_", " "))
    axis.set_ylabel("share of seeds above it")
    axis.set_title("Performance profiles with 95 % bands")
    axis.legend(loc="best")
    return figure


@_styled
def curve_bands(bands: Mapping[str, CurveBand], metric: str) -> Figure:
    """Draw the interquartile mean over the trainings of each method by steps, with its 95 % band."""
    figure, (axis,) = _figure(1, 1, width=7.2, height=4.0)
    for number, (label, band) in enumerate(bands.items()):
        colour = COLOURS[number % len(COLOURS)]
        axis.plot(band.steps, band.middle, color=colour, lw=1.8, label=f"{label} ({len(band.curves)})")
        axis.fill_between(band.steps, band.low, band.high, color=colour, alpha=0.15, lw=0)
    axis.set_xlabel("step")
    axis.set_title(f"{metric}: interquartile mean over trainings, 95 % bands")
    axis.legend(loc="best")
    return figure


@_styled
def accuracy_by_tokens(panels: Mapping[str, Mapping[str, Sequence[tuple[float, Interval]]]]) -> Figure:
    """Draw accuracy over the tokens that a policy writes per turn, a panel for each difficulty.

    Args:
        panels: difficulty -> name of a series -> tokens per turn and accuracy of each point, by rising tokens.
    """
    wide = min(3, len(panels))
    tall = -(-len(panels) // wide)
    figure, axes = _figure(tall, wide, width=4.4 * wide, height=3.2 * tall + 0.5)
    names = list(dict.fromkeys(name for series in panels.values() for name in series))
    for axis, (title, series) in zip(axes, panels.items(), strict=False):
        for name, points in series.items():
            number = names.index(name)
            below = [max(0.0, interval.estimate - interval.low) for _, interval in points]
            above = [max(0.0, interval.high - interval.estimate) for _, interval in points]
            axis.errorbar(
                [tokens for tokens, _ in points],
                [interval.estimate for _, interval in points],
                [below, above],
                color=COLOURS[number % len(COLOURS)],
                ls=("-", "--", ":")[number // len(COLOURS) % 3],
                marker="o", ms=4, lw=1.5, capsize=2, label=name,
            )  # fmt: skip
        axis.set_xscale("log")
        axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axis.set_xlabel("tokens written per turn")
        axis.set_title(title)
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    axes[0].legend(loc="best")
    figure.suptitle("Accuracy by tokens, with 95 % intervals")
    return figure


@_styled
def reliability(bins: Sequence[ReliabilityBin], ece: float) -> Figure:
    """Draw the reward model's accuracy over its confidence; on the diagonal it is perfectly calibrated."""
    figure, (axis, counts) = _figure(2, 1, width=5.2, height=5.4, heights=(3.4, 1))
    filled = [bin for bin in bins if bin.pairs]
    axis.plot([0, 1], [0, 1], color=FAINT, lw=1, ls=(0, (4, 3)), label="perfectly calibrated")
    axis.plot(
        [b.confidence for b in filled], [b.accuracy for b in filled], "o-", color=COLOURS[0], label="reward model"
    )
    for bin in filled:
        axis.plot([bin.confidence, bin.confidence], [bin.confidence, bin.accuracy], color=COLOURS[1], lw=1, alpha=0.7)
    left = min([bin.low for bin in filled], default=0.0)
    axis.set_xlim(left, 1.0)
    axis.set_ylim(min([left, *(bin.accuracy for bin in filled)]) - 0.03, 1.03)
    axis.set_ylabel("share of pairs ordered rightly")
    axis.set_title(f"Calibration of the reward model: ECE {ece:.3f}")
    axis.legend(loc="upper left")
    for bin in filled:
        counts.bar((bin.low + bin.high) / 2, bin.pairs, (bin.high - bin.low) * 0.9, color=COLOURS[0], alpha=0.5)
    counts.set_xlim(left, 1.0)
    counts.set_ylabel("pairs")
    counts.set_xlabel("confidence: sigmoid of the score's difference")
    return figure


@_styled
def best_of_n(policies: Mapping[str, tuple[Mapping[int, Interval], Mapping[int, float]]]) -> Figure:
    """Draw the share of right answers if the best of n samples is chosen by score, and by truth.

    Args:
        policies: name -> by n: the share by score with its interval, and the share by truth.
    """
    figure, (axis,) = _figure(1, 1, width=7.2, height=4.2)
    for number, (name, (chosen, known)) in enumerate(policies.items()):
        colour, ns = COLOURS[number % len(COLOURS)], sorted(chosen)
        axis.plot(ns, [chosen[n].estimate for n in ns], "o-", color=colour, label=f"{name}: best by score")
        axis.fill_between(ns, [chosen[n].low for n in ns], [chosen[n].high for n in ns], color=colour, alpha=0.15, lw=0)
        axis.plot(ns, [known[n] for n in ns], color=colour, lw=1, ls=(0, (4, 3)), label=f"{name}: best by truth")
    axis.set_xscale("log", base=2)
    axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    axis.set_xlabel("n: samples that the best is chosen among")
    axis.set_title("Right answers among the best of n, with 95 % intervals")
    axis.legend(loc="best")
    return figure


@_styled
def divergence(steps: Sequence[int], reward_model_score: Sequence[float], truth: Sequence[float]) -> Figure:
    """Draw the reward model's score and the truth over steps: if they diverge, the model is being exploited.

    Args:
        steps: training steps, [points].
        reward_model_score: mean score, [points], in the reward model's own unit.
        truth: accuracy by the verifier, [points], between 0 and 1.
    """
    figure, (axis,) = _figure(1, 1, width=7.2, height=4.0)
    _curve(axis, steps, truth, COLOURS[0], "truth: accuracy by the verifier")
    axis.set_ylabel("accuracy", color=COLOURS[0])
    axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    other = axis.twinx()
    _curve(other, steps, reward_model_score, COLOURS[1], "reward model's score")
    other.set_ylabel("reward model's score", color=COLOURS[1])
    other.grid(visible=False)
    other.spines[["top", "left"]].set_visible(False)
    other.spines["right"].set_visible(True)
    axis.set_xlabel("step")
    axis.set_title("Reward model compared with the truth")
    lines = [*axis.get_lines(), *other.get_lines()]
    named = [line for line in lines if not str(line.get_label()).startswith("_")]
    axis.legend(named, [str(line.get_label()) for line in named], loc="lower right")
    return figure


@_styled
def time_by_round(rows: Sequence[JournalRow], most: int = 60) -> Figure:
    """Draw the seconds of every round as stacked bars by stage, from the rows of a metric journal.

    Args:
        most: maximum number of bars; with more rounds a bar is the mean of several.
    """
    from matplotlib.ticker import MaxNLocator

    rounds = sorted((row for row in rows if "seconds/round" in row.metrics), key=lambda row: row.step)
    figure, (axis,) = _figure(1, 1, width=8.0, height=4.0)
    each = max(1, -(-len(rounds) // most))
    bars = [rounds[at : at + each] for at in range(0, len(rounds), each)]
    places = [sum(row.step for row in bar) / len(bar) for bar in bars]

    def mean(key: str) -> list[float]:
        return [sum(row.metrics.get(key, 0.0) for row in bar) / len(bar) for bar in bars]

    below = [0.0] * len(bars)
    for colour, stage in zip(COLOURS, STAGES, strict=True):
        seconds = mean(f"seconds/{stage}")
        axis.bar(places, seconds, 0.85 * each, bottom=below, color=colour, label=stage.replace("_", " "))
        below = [low + high for low, high in zip(below, seconds, strict=True)]
    if any("seconds/hidden" in row.metrics for row in rounds):  # stages overlapped
        axis.plot(places, mean("seconds/round"), "_", color=INK, ms=9, mew=1.6, label="time that passed")
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.set_xlabel("round" if each == 1 else f"round (means of {each})")
    axis.set_ylabel("seconds")
    axis.grid(axis="x", visible=False)
    axis.set_title("Where the time of a round goes")
    axis.legend(loc="upper right", ncols=4)
    axis.margins(y=0.25)
    return figure


@_styled
def drift(drifts: Sequence[Drift]) -> Figure:
    """Draw the share of each bin of every feature, when the champion was judged and now."""
    wide = min(2, len(drifts))
    tall = -(-len(drifts) // wide)
    figure, axes = _figure(tall, wide, width=4.8 * wide, height=2.8 * tall + 0.3)
    for axis, feature in zip(axes, drifts, strict=False):
        for side, (label, shares) in enumerate(zip(("when judged", "now"), feature.shares, strict=True)):
            places = [place + 0.4 * side - 0.2 for place in range(len(shares))]
            axis.bar(places, shares, 0.4, color=COLOURS[-1 if side == 0 else 0], label=label)
        axis.set_xticks(range(len(feature.bins)), feature.bins, rotation=45, ha="right", fontsize=7)
        axis.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
        axis.grid(axis="x", visible=False)
        axis.set_title(f"{feature.name.replace('_', ' ')}: PSI {feature.index:.2f}, {feature.state}")
    for axis in axes[len(drifts) :]:
        axis.set_visible(False)
    axes[0].legend(loc="best")
    return figure


def _figure(
    tall: int, wide: int, width: float, height: float, heights: Sequence[float] = ()
) -> tuple[Figure, list[Axes]]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    ratios = {"height_ratios": list(heights)} if heights else None
    return figure, list(figure.subplots(tall, wide, squeeze=False, gridspec_kw=ratios).flat)


def _curve(axis: Axes, steps: Sequence[int], values: Sequence[float], colour: str, label: str) -> None:
    """Draw a curve; a noisy one is faint behind its moving average."""
    window = len(values) // 20
    if window < 2:
        axis.plot(steps, values, color=colour, lw=1.8, label=label)
        return
    smooth = []
    for index in range(len(values)):
        near = values[max(0, index - window) : index + window + 1]
        smooth.append(sum(near) / len(near))
    axis.plot(steps, values, color=colour, lw=0.8, alpha=0.25)
    axis.plot(steps, smooth, color=colour, lw=1.8, label=label)


def _last_part(key: str, keys: Sequence[str]) -> str:
    """Return the shortest ending of `key` that no other key has."""
    parts = key.split("/")
    for count in range(1, len(parts)):
        ending = "/".join(parts[-count:])
        if sum(other.endswith(ending) for other in keys) == 1:
            return ending
    return key
