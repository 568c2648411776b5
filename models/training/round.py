"""One round of a training as a sequence of steps, and the state that is kept from round to round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch

from models.base.seeds import round_seed
from models.engines.canary import TOLERANCE, canary_gap, check, fixed_tokens
from models.learner.optimiser import learning_rate_at
from models.learner.packing import Sequences
from models.method import alarm as alarms
from models.method import memory as memories
from models.method import tally as tallies
from models.method.alarm import AlarmSettings, Collapse, History
from models.method.curriculum import choose, note, prompts_of_round
from models.method.fit import fit_round
from models.method.learner import Learner
from models.method.problem import Problem
from models.method.readings import Readings
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.method.schedule import ScheduleSettings
from models.method.scored import Scored
from models.method.slots import Slots
from models.policies.checkpoint import load_checkpoint, newest_checkpoint
from models.policies.checkpoint_writer import CheckpointWriter
from models.policies.weights import merged_weights
from models.training.ahead import InRounds
from models.training.gather import RoundCompletions, gather
from models.training.in_flight import InFlight
from models.training.meter import Meter
from models.training.round_metrics import rollout_metrics, sample_rows
from models.training.score import Scoring
from models.training.supply import Supply
from models.training.tries import Tries
from models.training.watchers import Watchers

CANARY_TOKENS = 64
"""Number of tokens per prompt that the canary reads: enough to distinguish policies, at almost no cost."""


@dataclass
class RunState:
    """State of a training that is kept from round to round."""

    resources: RunResources
    slots: Slots
    settings: ScheduleSettings
    problems: Sequence[Problem]
    """Problems that rounds draw prompts from; a curriculum may filter them before the first round."""
    watchers: Watchers
    alarm: AlarmSettings | None
    start: int
    """Number of rounds that are finished already, by earlier runs that were interrupted."""
    history: History
    """Metrics of earlier rounds that the alarm needs."""
    canary: Sequences
    meter: Meter
    scoring: Scoring
    tries: Tries
    writer: CheckpointWriter
    source: Supply = field(init=False)
    counted: int = 0
    """Number of completions so far that metrics have already reported."""

    @classmethod
    def resume(
        cls,
        resources: RunResources,
        slots: Slots,
        settings: ScheduleSettings,
        problems: Sequence[Problem],
        checkpoints: Path,
        watchers: Watchers,
        alarm: AlarmSettings | None,
    ) -> RunState:
        """Load the newest checkpoint, if there is one, sync its weights to the engine, and filter the prompts.

        Raises:
            UserError: engine and learner differ, or the curriculum's filter leaves no prompt.
        """
        learner = resources.learner
        start, history = load_newest(learner, checkpoints, problems)
        if learner.ranks.first:
            watchers.resumed(start)
        canary = fixed_tokens((problem.tokens[:CANARY_TOKENS] for problem in problems), resources.codec.end)
        sync_weights(resources, settings, canary, start)
        meter, scoring = Meter(learner, settings), Scoring(slots.rewards)
        run = cls(
            resources,
            slots,
            settings,
            problems,
            watchers,
            alarm,
            start,
            history,
            canary,
            meter,
            scoring,
            Tries(slots, scoring, settings.curriculum, meter),
            CheckpointWriter(checkpoints, ranks=learner.ranks),
            counted=learner.tally.completions,
        )
        if settings.curriculum.filters:
            run.problems = run.tries.passing(run.with_new_readings(), problems)
        run.source = run.supply()
        return run

    @property
    def learner(self) -> Learner:
        """The policy, and everything else that changes during the training."""
        return self.resources.learner

    @property
    def stops(self) -> bool:
        """Whether a policy that collapses ends the run."""
        return self.alarm is not None and self.alarm.action == "stop"

    def with_new_readings(self) -> RunResources:
        """Return a copy of the resources with an empty cache of log-probs, for new completions."""
        return replace(self.resources, readings=Readings(self.learner, self.settings.token_budget))

    def sample(self, number: int) -> list[Rollout]:
        """Generate the rollouts of round `number` with the current policy."""
        settings, count = self.settings, self.slots.rollouts.prompts
        curriculum, tally = settings.curriculum, self.learner.tally
        prompts = choose(self.problems, curriculum, tally, count, number, settings.rounds, self.resources.seed)
        return self.slots.rollouts(self.with_new_readings(), prompts, number)

    def supply(self) -> Supply:
        """Build the supply of rollouts that the schedule sets: on demand, one round ahead, or in flight."""
        settings, rollouts = self.settings, self.slots.rollouts
        if settings.staleness < 2:
            return InRounds(self.sample, self.meter, settings.staleness > 0)
        return InFlight(
            self.resources,
            lambda position: prompts_of_round(self.problems, 1, position, self.resources.seed)[0],
            rollouts.prompts,
            rollouts.sampling,
            settings.staleness,
            settings.too_old == "drop",
            settings.rounds,
            self.start,
            self.meter,
        )

    def restore_best(self) -> Collapse:
        """Restore the best weights of a collapsed policy. Returns the collapse."""
        assert self.history.collapse is not None, "the policy has collapsed"
        self.writer.restore_best(self.learner.policy)
        return replace(self.history.collapse, kept=self.history.best_round)


@dataclass
class Round:
    """One round of the training; its methods are its steps, in the order in which the loop calls them."""

    run: RunState
    number: int
    """Number of the round, from 0."""
    metrics: dict[str, float] = field(default_factory=dict)
    rollouts: list[Rollout] = field(default_factory=list)
    completions: RoundCompletions = field(init=False)
    resources: RunResources = field(init=False)
    """Resources of the run with the round's own cache of log-probs."""
    last: bool = False
    """Whether this is the last round, by the schedule's `rounds` or `completions`."""

    @property
    def done(self) -> int:
        """Number of rounds that are finished when this one is."""
        return self.number + 1

    @property
    def checkpoints(self) -> bool:
        """Whether a checkpoint is written after this round."""
        return self.done % self.run.settings.checkpoint_every == 0 and not self.last

    @property
    def collapsed(self) -> bool:
        """Whether the policy has collapsed and the run is to stop."""
        return self.run.stops and self.run.history.collapse is not None

    def collect(self) -> None:
        """Generate the round's rollouts, or take those that were generated ahead."""
        run = self.run
        run.learner.ranks.from_first(run.watchers.proceed)
        run.writer.raise_failed()
        torch.manual_seed(round_seed(run.resources.seed, self.number))
        if run.settings.curriculum.order == "adaptive":
            run.tries.order_block(run.with_new_readings(), run.problems, self.number, run.settings.rounds)
        self.rollouts, self.metrics = run.source.take(self.number)

    def score(self) -> None:
        """Score and select the completions, of further prompts too; then let the next round be generated ahead."""
        run, tally = self.run, self.run.learner.tally
        self.resources = run.with_new_readings()
        self.completions = gather(
            self.resources, run.slots, run.scoring, run.problems, self.rollouts, self.number, run.meter
        )
        scored, chosen = self.completions.scored, self.completions.chosen
        tally.completions += len(scored.rollouts)
        if run.settings.curriculum.order in ("signal", "phases", "by_level"):
            note(tally, scored, run.settings.curriculum)
        run.meter.lap("score")
        self.last = self.done == run.settings.rounds or run.settings.spent(tally.completions)
        if not self.checkpoints and not self.last:
            run.source.begin(self.number + 1)
        self.metrics |= rollout_metrics(scored, chosen, run.resources.truncated)
        if any(select.refills for select in run.slots.select):
            self.metrics["rollouts/draws"] = self.completions.draws
        self.metrics["rollouts/completions"] = tally.completions - run.counted
        run.counted = tally.completions

    def learn(self) -> None:
        """Compute the advantages of the chosen completions, then train the policy and the advantage's companion."""
        run, chosen = self.run, self.completions.chosen
        if len(chosen.rollouts):
            self.metrics |= learn_from(self.resources, run.slots, run.settings, chosen, self.number)
        run.meter.lap("learn")
        updates, settings = run.learner.updates, run.settings
        self.metrics["policy/learning_rate"] = learning_rate_at(
            max(0, updates - 1), settings.updates, settings.optimiser
        )

    def sync(self) -> None:
        """Sync the weights to the engine, check them with the canary, and let the reference follow the policy."""
        run, learner, reference = self.run, self.run.learner, self.run.slots.reference
        run.source.wait()
        with run.source.handing_over(self.done):
            self.metrics |= sync_weights(run.resources, run.settings, run.canary, self.done)
        moved = learner.reference is not None and reference.follow(learner.reference, learner.policy, self.number)
        if moved and reference.resets_optimiser:
            learner.optimiser.state.clear()
        run.meter.lap("hand_over")

    def show_samples(self) -> None:
        """Report a sample table, in the rounds that `schedule.samples_every` sets and the first one."""
        run = self.run
        if run.learner.ranks.first and (self.done % run.settings.samples_every == 0 or self.done == 1):
            run.watchers.samples(self.done, sample_rows(self.completions.scored))
        run.meter.lap("log")

    def watch(self) -> None:
        """Check whether the policy has collapsed."""
        run = self.run
        if run.alarm is not None:
            run.history = run.history.after(self.metrics, run.alarm)
            self.metrics["policy/collapsed"] = float(run.history.collapse is not None)

    def checkpoint(self) -> None:
        """Begin to write a checkpoint if one is due, and keep the weights if they are the best.

        This is the last step of a round: a round that a checkpoint contains has been reported. Its seconds are those of
        the next round's report.
        """
        run, learner = self.run, self.run.learner
        if self.checkpoints:
            if run.alarm is not None and run.stops and run.history.improved(run.alarm):
                run.writer.keep_best(learner.policy)
                run.history = run.history.keeping(run.alarm)
            updates = {name: companion.updates for name, companion in learner.companions.items()}
            files = {
                **memories.written(learner.memory),
                alarms.FILE: alarms.written(run.history),
                tallies.FILE: tallies.written(learner.tally),
            }
            run.writer.save(
                self.done, learner.moving, learner.optimisers, {"policy": learner.updates, **updates}, files
            )
        run.meter.lap("checkpoint")

    def report(self) -> None:
        """Report the metrics of the round, with its seconds, speeds and memory."""
        run = self.run
        self.metrics |= run.meter.end_round(self.completions.scored, self.completions.chosen)
        if run.learner.ranks.first:
            run.watchers.metrics(self.done, self.metrics)
        run.meter.lap("log")


def learn_from(
    resources: RunResources, slots: Slots, settings: ScheduleSettings, chosen: Scored, number: int
) -> dict[str, float]:
    """Compute the advantages, train the policy, then the advantage's companion. Returns the metrics of both."""
    signal = slots.advantage(resources, chosen)
    if resources.engine is not None and not settings.staleness:  # else it draws the next round
        resources.engine.sleep()
    metrics: dict[str, float] = {}
    trained = resources.truncated.to_train_on(chosen)
    if len(trained) and slots.advantage.trains_policy:
        mine = [signal.tokens[index] for index in trained.tolist()]
        longest = slots.rollouts.max_tokens
        fitted = fit_round(
            resources.learner,
            slots.objective,
            chosen.take(trained),
            mine,
            settings,
            longest,
            number,
            resources.readings,
        )
        metrics |= {f"policy/{name}": value for name, value in fitted.items()}
    if slots.advantage.companion:
        fitted = slots.advantage.learn(resources, chosen, signal, number)
        metrics |= {f"{slots.advantage.companion}/{name}": value for name, value in fitted.items()}
    return metrics


def sync_weights(resources: RunResources, settings: ScheduleSettings, canary: Sequences, done: int) -> dict[str, float]:
    """Sync the learner's weights to the engine and check them with the canary. Returns the canary's gap.

    Without an engine nothing is done and no metric is returned.

    Raises:
        UserError: after `done` rounds the engine does not run the learner's policy.
    """
    if resources.engine is None:
        return {}
    learner = resources.learner
    resources.engine.load(merged_weights(learner.policy), done)
    gap = canary_gap(resources.engine, learner.policy, canary, learner.autocast)
    coarse = torch.bfloat16 if torch.bfloat16 in (learner.autocast, resources.engine.dtype) else None
    check(gap, TOLERANCE[coarse] if settings.canary_tolerance is None else settings.canary_tolerance, done)
    return {"engine/canary_gap": gap}


def load_newest(learner: Learner, checkpoints: Path, problems: Sequence[Problem]) -> tuple[int, History]:
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
