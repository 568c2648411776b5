"""The one loop that every method runs through: five slots and a reference, round after round.

    rollouts  = rollouts(policy, prompts)    sample completions
    scored    = rewards(rollouts)            compute the reward of each
    chosen    = select(scored)               choose those that the policy is trained on
    signal    = advantage(chosen)            compute how much better than expected they are
    policy    = fit(objective, signal)       take one or more optimiser steps
    reference = reference.follow(policy)     keep, move or reset the reference

With `schedule.async: 1` the source runs one round ahead of the fit (models.training.ahead). With more, its completions
are in flight while weights change (models.training.in_flight). If several processes learn together, each of them runs
the loop (`models.base.ranks`). With `schedule.async` below 2 the loop is exactly resumable: every random choice of a
round is drawn from the seed and the round's number, so a run that resumes from a checkpoint ends with the weights of a
run that was never interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from models.base.errors import UserError, shortened
from models.engines.canary import TOLERANCE, canary_gap, check, fixed_tokens
from models.learner.optimiser import learning_rate_at
from models.learner.packing import Sequences
from models.method import alarm as alarms
from models.method import memory as memories
from models.method import tally as tallies
from models.method.alarm import AlarmSettings, Collapse, History
from models.method.curriculum import choose, note
from models.method.fit import fit_round
from models.method.learner import Learner
from models.method.method import Slots
from models.method.problem_rows import prompt_lengths
from models.method.prompts import prompts_of_round
from models.method.readings import Readings
from models.method.rollout import Problem, Rollout, Scored
from models.method.round_seeds import round_seed
from models.method.schedule import ScheduleSettings
from models.method.slots import Objective, Rollouts
from models.method.truncation import WRONG, TruncationSettings
from models.method.turn import transcript
from models.method.world import World
from models.parts.shared.group_statistics import group_spread
from models.policies.checkpoint import load_checkpoint, newest_checkpoint
from models.policies.checkpoint_writer import CheckpointWriter
from models.policies.weights import merged_weights
from models.text.encoding import Codec
from models.training.added_tokens import added_tokens
from models.training.ahead import InRounds
from models.training.first_rounds import FLAT
from models.training.gather import gather
from models.training.in_flight import InFlight
from models.training.meter import Meter
from models.training.score import Scoring
from models.training.supply import Supply
from models.training.tries import Tries

SAME = 1e-4
"""Largest difference between rewards that count as equal; sums of floats differ by rounding."""
CANARY_TOKENS = 64
"""Tokens of a prompt that the canary reads: enough to distinguish policies, few enough to cost nothing."""


@dataclass(frozen=True)
class Watchers:
    """Callbacks for the metrics and samples of the loop. The loop logs nothing itself."""

    metrics: Callable[[int, dict[str, float]], None] = lambda round_number, metrics: None
    samples: Callable[[int, list[dict[str, object]]], None] = lambda round_number, rows: None
    resumed: Callable[[int], None] = lambda round_number: None
    """Called once before the first round, with the number of rounds that an earlier, interrupted run finished."""
    proceed: Callable[[], None] = lambda: None
    """Called before every round; an exception that it raises stops the training."""


def run_loop(
    world: World,
    slots: Slots,
    settings: ScheduleSettings,
    problems: Sequence[Problem],
    checkpoints: Path,
    watchers: Watchers,
    alarm: AlarmSettings | None = None,
) -> Collapse | None:
    """Train `world.learner.policy` in place for `settings.rounds` rounds, resuming from the newest checkpoint.

    With an `alarm` that stops, a policy that collapses ends the run. The policy is then the best of those that the run
    began with or had at a checkpoint. The collapse is returned, also for an alarm that only warns.

    Raises:
        UserError: a canary past its tolerance, a loss that is not finite, a reward that has failed for too long, a full
            disk, a token budget that a prompt with its longest completion does not fit.
    """
    learner, ranks = world.learner, world.learner.ranks
    require_room(problems, slots.rollouts, slots.objective, world.codec, settings.token_budget)
    canary = fixed_tokens((problem.tokens[:CANARY_TOKENS] for problem in problems), world.codec.end)

    def unread() -> World:
        return replace(world, readings=Readings(learner, settings.token_budget))

    def make(number: int) -> list[Rollout]:
        count, tally = slots.rollouts.prompts, learner.tally
        return slots.rollouts(
            unread(), choose(problems, curriculum, tally, count, number, settings.rounds, world.seed), number
        )

    def supply() -> Supply:
        """Return the supply of the rounds' rollouts."""
        if settings.staleness < 2:
            return InRounds(make, meter, settings.staleness > 0)
        count, sampling = slots.rollouts.prompts, slots.rollouts.sampling
        return InFlight(
            world,
            lambda position: prompts_of_round(problems, 1, position, world.seed)[0],
            count,
            sampling,
            settings.staleness,
            settings.too_old == "drop",
            settings.rounds,
            start,
            meter,
        )

    curriculum = settings.curriculum
    start, history = resume(learner, checkpoints, problems)
    stops = alarm is not None and alarm.action == "stop"
    if ranks.first:
        watchers.resumed(start)
    hand_over(world, settings, canary, start)
    meter, score = Meter(learner, settings), Scoring(slots.rewards)
    counted, tries = learner.tally.completions, Tries(slots, score, curriculum, meter)
    if curriculum.filters:
        problems = tries.passing(unread(), problems)
    with CheckpointWriter(checkpoints, ranks=ranks) as writer, supply() as source:
        if stops and not start:
            writer.keep_best(learner.policy)
        for number in range(start, settings.rounds):
            ranks.from_first(watchers.proceed)
            writer.raise_failed()
            done = number + 1
            torch.manual_seed(round_seed(world.seed, number))
            if curriculum.order == "adaptive":
                tries.order_block(unread(), problems, number, settings.rounds)
            rollouts, aged = source.take(number)
            seen = unread()
            gathered = gather(seen, slots, score, problems, rollouts, number, meter)
            scored, chosen = gathered.scored, gathered.chosen
            learner.tally.completions += len(scored.rollouts)
            if curriculum.order in ("signal", "phases", "by_level"):
                note(learner.tally, scored, curriculum)
            meter.lap("score")
            last = done == settings.rounds or settings.spent(learner.tally.completions)
            to_keep = done % settings.checkpoint_every == 0 and not last
            if not to_keep and not last:
                source.begin(number + 1)
            metrics = rollout_metrics(scored, chosen, world.truncated)
            if any(select.refills for select in slots.select):
                metrics["rollouts/draws"] = gathered.draws
            metrics["rollouts/completions"] = learner.tally.completions - counted
            counted = learner.tally.completions
            if len(chosen.rollouts):
                metrics |= _learn(seen, slots, settings, chosen, number)
            meter.lap("learn")
            metrics |= aged
            source.wait()
            with source.handing_over(done):
                metrics |= hand_over(world, settings, canary, done)
            moved = learner.reference is not None and slots.reference.follow(learner.reference, learner.policy, number)
            if moved and slots.reference.resets_optimiser:
                learner.optimiser.state.clear()
            meter.lap("hand_over")
            metrics["policy/learning_rate"] = learning_rate_at(
                max(0, learner.updates - 1), settings.updates, settings.optimiser
            )
            if ranks.first and (done % settings.samples_every == 0 or done == 1):
                watchers.samples(done, sample_rows(scored))
            meter.lap("log")
            if alarm is not None:
                history = history.after(metrics, alarm)
                metrics["policy/collapsed"] = float(history.collapse is not None)
                if to_keep and stops and history.improved(alarm):
                    writer.keep_best(learner.policy)
                    history = history.keeping(alarm)
            if to_keep:
                updates = {name: companion.updates for name, companion in learner.companions.items()}
                files = {
                    **memories.written(learner.memory),
                    alarms.FILE: alarms.written(history),
                    tallies.FILE: tallies.written(learner.tally),
                }
                writer.save(done, learner.moving, learner.optimisers, {"policy": learner.updates, **updates}, files)
            meter.lap("checkpoint")
            metrics |= meter.end_round(scored, chosen)
            if ranks.first:
                watchers.metrics(done, metrics)
            meter.lap("log")
            if stops and history.collapse is not None:
                writer.restore_best(learner.policy)
                return replace(history.collapse, kept=history.best_round)
            if last:
                break
    return history.collapse


def _learn(world: World, slots: Slots, settings: ScheduleSettings, chosen: Scored, number: int) -> dict[str, float]:
    """Compute the signal of the chosen completions, fit the policy, then the companion. Returns their metrics."""
    signal = slots.advantage(world, chosen)
    if world.engine is not None and not settings.staleness:  # else it draws the next round
        world.engine.sleep()
    metrics: dict[str, float] = {}
    trained = world.truncated.to_train_on(chosen)
    if len(trained):
        mine = [signal.tokens[index] for index in trained.tolist()]
        longest = slots.rollouts.max_tokens
        fitted = fit_round(
            world.learner, slots.objective, chosen.take(trained), mine, settings, longest, number, world.readings
        )
        metrics |= {f"policy/{name}": value for name, value in fitted.items()}
    if slots.advantage.companion:
        fitted = slots.advantage.learn(world, chosen, signal, number)
        metrics |= {f"{slots.advantage.companion}/{name}": value for name, value in fitted.items()}
    return metrics


def hand_over(world: World, settings: ScheduleSettings, canary: Sequences, done: int) -> dict[str, float]:
    """Sync the learner's weights to the engine and check them with the canary. Returns the canary's gap.

    Without an engine nothing is done and no metric is returned.

    Raises:
        UserError: after `done` rounds the engine does not run the learner's policy.
    """
    if world.engine is None:
        return {}
    learner = world.learner
    world.engine.load(merged_weights(learner.policy), done)
    gap = canary_gap(world.engine, learner.policy, canary, learner.autocast)
    coarse = torch.bfloat16 if torch.bfloat16 in (learner.autocast, world.engine.dtype) else None
    check(gap, TOLERANCE[coarse] if settings.canary_tolerance is None else settings.canary_tolerance, done)
    return {"engine/canary_gap": gap}


def require_room(
    problems: Sequence[Problem], source: Rollouts, objective: Objective, codec: Codec, budget: int
) -> None:
    """Refuse a token budget that is smaller than the longest possible row, before anything is generated.

    Raises:
        UserError: a prompt, its completions that are compared and the tokens that the source adds exceed `budget`.
    """
    together = 2 if objective.level == "pair" else 1
    if objective.level == "group":
        together = source.largest_group(problems)
    prompts, extras = prompt_lengths(problems), added_tokens(source, codec, problems)
    rows = prompts + together * source.max_tokens + extras
    if (needed := int(rows.max())) > budget:
        prompt, extra = max(zip(prompts[rows == needed].tolist(), extras[rows == needed].tolist(), strict=True))
        compared = f", the {together} completions that are compared are in one row" if together > 1 else ""
        added = f", rollouts {source.name} adds {extra}" if extra else ""
        raise UserError(
            f"schedule.token_budget is {budget}, smaller than its longest row: the prompt has {prompt} tokens, "
            f"rollouts.max_tokens is {source.max_tokens}{compared}{added}; make it at least {needed}"
        )


def resume(learner: Learner, checkpoints: Path, problems: Sequence[Problem]) -> tuple[int, History]:
    """Load the newest complete checkpoint, if any. Returns the number of finished rounds and the alarm's history."""
    checkpoint = learner.ranks.from_first(lambda: newest_checkpoint(checkpoints))
    if checkpoint is None:
        return 0, History()
    load_checkpoint(checkpoint, learner.moving, learner.optimisers)
    learner.updates = checkpoint.updates["policy"]
    learner.memory[:] = memories.read({name: checkpoint.read(name) for name in memories.FILES}, problems)
    learner.tally = tallies.read(checkpoint.read(tallies.FILE))
    for name, companion in learner.companions.items():
        companion.updates = checkpoint.updates[name]
    return checkpoint.round_number, alarms.read(checkpoint.read(alarms.FILE))


def rollout_metrics(scored: Scored, chosen: Scored, truncated: TruncationSettings = WRONG) -> dict[str, float]:
    """Compute a round's metrics: rewards by component, lengths, and the share of completions that are trained on.

    If the policy sampled any completions, the means cover only these: not the greedy baselines, opponents, explanations
    and answers of the data in the same round. The trained share is relative to the completions that the source intends
    to train on.
    """
    if not scored.rollouts:  # no seat of the policy's had a turn
        names = ("reward/total", "reward/spread", "rollouts/length", "rollouts/cut_share", "rollouts/trained_share")
        return dict.fromkeys((*names, *(f"reward/{name}" for name in scored.components)), 0.0) | dict(scored.watched)
    own = scored.sampled
    seen = scored.take(torch.tensor(own)) if own else scored
    components = {f"reward/{name}": float(values.mean()) for name, values in seen.components.items()}
    return {
        "reward/total": float(seen.rewards.mean()),
        "reward/spread": float(seen.rewards.std(unbiased=False)),
        **components,
        **scored.watched,
        "rollouts/length": sum(rollout.written_tokens for rollout in seen.rollouts) / len(seen.rollouts),
        **_of_turns(seen.rollouts),
        "rollouts/cut_share": sum(not rollout.finished for rollout in seen.rollouts) / len(seen.rollouts),
        **_of_groups(seen),
        "rollouts/trained_share": len(truncated.to_train_on(chosen)) / max(1, len(scored.trained)),
    }


def _of_groups(seen: Scored) -> dict[str, float]:
    """Return the share of prompts whose completions all have the same reward, among prompts with several completions.

    The dict is empty if no prompt has several completions.
    """
    spread, sizes = group_spread(seen.rewards, seen.groups), torch.bincount(seen.groups)[seen.groups]
    several = sizes > 1
    if not several.any():
        return {}
    weights = several / sizes  # each prompt counts once
    return {FLAT: float(weights[spread <= SAME].sum() / weights.sum())}


def _of_turns(rollouts: Sequence[Rollout]) -> dict[str, float]:
    """Compute the metrics of episodes: turns, reward, seconds of the environment, share cut by each cause.

    The dict is empty if no rollout has turns.
    """
    if not any(rollout.turns for rollout in rollouts):
        return {}
    turns = [turn for rollout in rollouts for turn in rollout.turns]
    cuts = {cut: sum(rollout.cut == cut for rollout in rollouts) / len(rollouts) for cut in ("turns", "time", "error")}
    return {
        "episodes/turns": len(turns) / len(rollouts),
        "episodes/reward": sum(turn.reward for turn in turns) / len(rollouts),
        "episodes/seconds_of_a_turn": sum(turn.seconds for turn in turns) / max(1, len(turns)),
        **{f"episodes/cut_by_{cut}": share for cut, share in cuts.items() if share},
    }


def sample_rows(scored: Scored, rows: int = 24) -> list[dict[str, object]]:
    """Build a table of completions for inspection, spread evenly over the round, with every reward component."""
    step = max(1, len(scored.rollouts) // rows)
    in_flight = any(rollout.versions for rollout in scored.rollouts)
    return [
        {
            "problem": scored.rollouts[i].problem.id,
            "level": scored.rollouts[i].problem.level,
            "prompt": scored.rollouts[i].problem.prompt,
            "completion": transcript(scored.rollouts[i].turns) or scored.rollouts[i].text,
            "expected": scored.rollouts[i].problem.answer,
            "reward": round(float(scored.rewards[i]), 4),
            **{name: round(float(values[i]), 4) for name, values in scored.components.items()},
            **{f"{name}/reason": shortened(said[i], 1000) for name, said in scored.reasons.items()},
            "tokens": scored.rollouts[i].written_tokens,
            "finished": scored.rollouts[i].finished,
            **({"weights": _spans(scored.rollouts[i])} if in_flight else {}),
        }
        for i in range(0, len(scored.rollouts), step)
    ][:rows]


def _spans(rollout: Rollout) -> str:
    """Format the weights that drew a completion's tokens, for inspection: `0: round 3, 17: round 4`."""
    return ", ".join(f"{start}: round {version}" for start, version in rollout.versions)
