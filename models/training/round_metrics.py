"""Metrics and sample table of a round."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from models.base.errors import shortened
from models.method.episode import transcript
from models.method.rollout import Rollout
from models.method.scored import Scored
from models.method.truncation import WRONG, TruncationSettings
from models.parts.shared.group_statistics import group_spread
from models.training.first_rounds import FLAT

SAME = 1e-4
"""Largest difference between rewards that count as equal; sums of floats differ by rounding."""


def rollout_metrics(scored: Scored, chosen: Scored, truncated: TruncationSettings = WRONG) -> dict[str, float]:
    """Compute a round's metrics: rewards by component, lengths, and the share of completions that are trained on.

    If the policy sampled any completions, the means cover only these: not the greedy baselines, opponents, explanations
    and answers of the data in the same round. The trained share is relative to the completions that the source intends
    to train on.
    """
    if not scored.rollouts:  # no seat of the policy's had a turn
        names = ("reward/total", "reward/spread", "rollouts/length", "rollouts/cut_share", "rollouts/trained_share")
        return dict.fromkeys((*names, *(f"reward/{name}" for name in scored.components)), 0.0) | dict(scored.watched)
    sampled = scored.sampled
    measured = scored.take(torch.tensor(sampled)) if sampled else scored
    components = {f"reward/{name}": float(values.mean()) for name, values in measured.components.items()}
    return {
        "reward/total": float(measured.rewards.mean()),
        "reward/spread": float(measured.rewards.std(unbiased=False)),
        **components,
        **scored.watched,
        "rollouts/length": sum(rollout.written_tokens for rollout in measured.rollouts) / len(measured.rollouts),
        **_turn_metrics(measured.rollouts),
        "rollouts/cut_share": sum(not rollout.finished for rollout in measured.rollouts) / len(measured.rollouts),
        **_group_metrics(measured),
        "rollouts/trained_share": len(truncated.to_train_on(chosen)) / max(1, len(scored.trained)),
    }


def _group_metrics(scored: Scored) -> dict[str, float]:
    """Return the share of prompts whose completions all have the same reward, among prompts with several completions.

    The dict is empty if no prompt has several completions.
    """
    spread, sizes = group_spread(scored.rewards, scored.groups), torch.bincount(scored.groups)[scored.groups]
    several = sizes > 1
    if not several.any():
        return {}
    weights = several / sizes  # each prompt counts once
    return {FLAT: float(weights[spread <= SAME].sum() / weights.sum())}


def _turn_metrics(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Compute the metrics of episodes: turns, reward, seconds of the environment, share cut by each cause.

    The dict is empty if no rollout has turns.
    """
    if not any(rollout.episode.turns for rollout in rollouts):
        return {}
    turns = [turn for rollout in rollouts for turn in rollout.episode.turns]
    cuts = {
        cut: sum(rollout.episode.cut == cut for rollout in rollouts) / len(rollouts)
        for cut in ("turns", "time", "error")
    }
    return {
        "episodes/turns": len(turns) / len(rollouts),
        "episodes/reward": sum(turn.reward for turn in turns) / len(rollouts),
        "episodes/seconds_of_a_turn": sum(turn.seconds for turn in turns) / max(1, len(turns)),
        **{f"episodes/cut_by_{cut}": share for cut, share in cuts.items() if share},
    }


def sample_rows(scored: Scored, rows: int = 24) -> list[dict[str, object]]:
    """Build a table of completions for inspection, spread evenly over the round, with every reward component."""
    step = max(1, len(scored.rollouts) // rows)
    in_flight = any(rollout.source.versions for rollout in scored.rollouts)
    return [
        {
            "problem": scored.rollouts[i].problem.id,
            "level": scored.rollouts[i].problem.level,
            "prompt": scored.rollouts[i].problem.prompt,
            "completion": transcript(scored.rollouts[i].episode.turns) or scored.rollouts[i].text,
            "expected": scored.rollouts[i].problem.answer,
            "reward": round(float(scored.rewards[i]), 4),
            **{name: round(float(values[i]), 4) for name, values in scored.components.items()},
            **{f"{name}/reason": shortened(texts[i], 1000) for name, texts in scored.reasons.items()},
            "tokens": scored.rollouts[i].written_tokens,
            "finished": scored.rollouts[i].finished,
            **({"weights": _spans(scored.rollouts[i])} if in_flight else {}),
        }
        for i in range(0, len(scored.rollouts), step)
    ][:rows]


def _spans(rollout: Rollout) -> str:
    """Format the weights that drew a completion's tokens, for inspection: `0: round 3, 17: round 4`."""
    return ", ".join(f"{start}: round {version}" for start, version in rollout.source.versions)
