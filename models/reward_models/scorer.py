"""A reward model as the reward of a training: opened once, and called for scores every round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from models.base.device import on_device
from models.learner.packing import Sequences
from models.reward_models.bare_texts import bare_prompts, is_bare
from models.reward_models.ensemble import member_folders, read_ensemble
from models.reward_models.facts import FactScorer, read_facts
from models.reward_models.goal import nearness, read_goal, states_of
from models.reward_models.model import load_reward_model
from models.reward_models.principles import PrincipledScorer, read_principles
from models.reward_models.process import ProcessReading, aggregated, read_reading, step_values
from models.reward_models.scoring import score_all
from models.text.encoding import Codec

Scorer = Callable[[Sequences], Tensor]


@dataclass(frozen=True)
class StepScorer:
    """A process reward model: called like any other it scores completions; it also gives the value of each step."""

    read: Callable[[Sequences, Sequence[Sequence[int]]], list[Tensor]]
    reading: ProcessReading
    codec: Codec

    def steps(self, sequences: Sequences) -> tuple[list[tuple[int, ...]], list[Tensor]]:
        """Return the index of the last token of each step, and its value in (0, 1): [completions] of [steps] each."""
        ends = self.reading.ends(self.codec, sequences.completions)
        alike = Sequences(sequences.prompts, self.codec.ended_alike(sequences.completions))
        return ends, self.read(alike, ends)

    def __call__(self, sequences: Sequences) -> Tensor:
        """Return the aggregated step values of each completion, [completions]."""
        _, values = self.steps(sequences)
        return torch.stack([aggregated(row, self.reading.aggregate) for row in values]) if values else torch.zeros(0)


@dataclass(frozen=True)
class GoalScorer:
    """A reward model with a goal: called like any other it scores completions; it also gives their nearness to it."""

    score: Scorer
    nearness: Callable[[Sequences], list[Tensor]]
    """Cosine similarity of the state at each token to the goal, in [-1, 1], [completions] tensors of [tokens of it]."""

    def __call__(self, sequences: Sequences) -> Tensor:
        """Return scores, [completions]."""
        return self.score(sequences)


def open_scorer(
    folder: Path,
    codec: Codec,
    *,
    token_budget: int,
    autocast_for: Callable[[nn.Module], torch.dtype | None],
    trust_remote_code: bool = False,
) -> Scorer:
    """Return a function that scores prompts with their completions, [completions], on the learner's device.

    Whichever end token a completion has, the score is read at the one that the reward model was fitted with. A process
    reward model gives a `StepScorer`, one with a goal a `GoalScorer`, one with principles a `PrincipledScorer`, and
    one that reads facts a `FactScorer`.

    Args:
        folder: folder of the reward model.
        codec: the policy's.
        token_budget: tokens of a packed row.
        autocast_for: precision that the model computes in; None for plain float32.
        trust_remote_code: run code that the model ships.

    Raises:
        UserError: the folder holds no reward model, or an ensemble without one of its members.
    """
    if (reading := read_reading(folder)) is not None:
        return _step_scorer(folder, codec, reading, token_budget, autocast_for, trust_remote_code)
    ensemble = read_ensemble(folder)
    folders = [folder] if ensemble is None else member_folders(folder, len(ensemble.levels))
    models = [on_device(load_reward_model(member, trust_remote_code=trust_remote_code)) for member in folders]
    autocast, bare = autocast_for(models[0]), is_bare(folder)

    def as_fitted(sequences: Sequences) -> Sequences:
        prompts = bare_prompts(len(sequences), codec.end) if bare else sequences.prompts
        return Sequences(prompts, codec.ended_alike(sequences.completions))

    def score(sequences: Sequences) -> Tensor:
        alike = as_fitted(sequences)
        scores = [score_all(model, alike, token_budget=token_budget, autocast=autocast) for model in models]
        return scores[0] if ensemble is None else ensemble.read(torch.stack(scores))

    if principles := read_principles(folder):
        return PrincipledScorer(score, dict(zip(principles, codec.inside(principles), strict=True)))
    if (facts := read_facts(folder)) is not None:
        return FactScorer(score, facts, codec)
    if (goal := read_goal(folder)) is None:
        return score
    model = models[0]

    def near(sequences: Sequences) -> list[Tensor]:
        states = states_of(model, as_fitted(sequences), token_budget=token_budget, autocast=autocast)
        return nearness(states, goal)

    return GoalScorer(score, near)


def _step_scorer(
    folder: Path,
    codec: Codec,
    reading: ProcessReading,
    token_budget: int,
    autocast_for: Callable[[nn.Module], torch.dtype | None],
    trust_remote_code: bool,
) -> StepScorer:
    model = on_device(load_reward_model(folder, trust_remote_code=trust_remote_code))
    autocast = autocast_for(model)
    return StepScorer(
        lambda sequences, ends: step_values(model, sequences, ends, token_budget=token_budget, autocast=autocast),
        reading,
        codec,
    )
