"""Evaluation of a policy on held-out problems: one greedy and many sampled completions of each, verified and scored.

If the policy takes turns with an environment, a completion is an episode, as in training.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from models.agents.play.play import play
from models.answers.exact import by_answer
from models.engines.engine import Engine, Sampling
from models.evaluation.records import Completion, PromptRecord, TurnRecord, turns_to_json
from models.learner.packing import Sequences
from models.method.attempt import Attempt, Grade, Verify
from models.method.environment import EpisodeSettings
from models.method.episode import Episode
from models.method.problem import Problem
from models.text.encoding import Codec

ScoreAll = Callable[[Sequences], Tensor]

STAGES = ("samples", "greedy", "scores")
"""Stages, in order. The samples, most of the work, are one call, because engines are fastest with one batch."""


def evaluate(
    engine: Engine,
    codec: Codec,
    problems: Sequence[Problem],
    sampling: Sampling,
    seed: int,
    score: ScoreAll | None,
    begin: Callable[[str], None] = lambda stage: None,
    after_prompt: Sequence[int] = (),
    episodes: EpisodeSettings | None = None,
    policy_folder: Path | None = None,
    verify: Verify = by_answer,
    grade: Grade | None = None,
) -> list[PromptRecord]:
    """Evaluate a policy on each problem, [problems].

    Args:
        engine: runs the policy.
        codec: the policy's tokenizer.
        problems: problems with encoded prompts; the same for every policy that is compared.
        sampling: settings of the sampled completions; `samples` per problem. The greedy completion has the same token
            limit.
        seed: seed of the sampled completions.
        score: reward model's scores of prompts with their completions, [completions]; None leaves them NaN.
        begin: called with each of STAGES as it begins.
        after_prompt: ids that the policy needs between prompt and completion; the reward model does not see them.
        episodes: environment that the policy takes turns with, as in training; None: it answers in one turn.
        policy_folder: the policy's model folder, used to find the frozen model that it was trained with.
        verify: decides which completions are right, as in training.
        grade: measures the share of the requirements that a completion meets; None: not graded.
    """
    extended_problems = [replace(problem, tokens=(*problem.tokens, *after_prompt)) for problem in problems]
    begin("samples")
    if episodes is not None:
        episodes = replace(episodes, environment=episodes.environment.measured)
    judges = (verify, grade)
    sampled = _answers(
        engine, codec, episodes, extended_problems, replace(sampling, log_probs=False), seed, judges, policy_folder
    )
    begin("greedy")
    likeliest = Sampling(max_tokens=sampling.max_tokens, temperature=0.0, log_probs=False)
    greedy = _answers(engine, codec, episodes, extended_problems, likeliest, seed, judges, policy_folder)
    begin("scores")
    flat = [
        (problem, answer)
        for problem, first, rest in zip(problems, greedy, sampled, strict=True)
        for answer in [*first, *rest]
    ]
    sequences = Sequences([problem.tokens for problem, _ in flat], [answer.tokens for _, answer in flat])
    scores = score(sequences).tolist() if score else [float("nan")] * len(flat)
    completions = iter([answer.as_completion(value) for (_, answer), value in zip(flat, scores, strict=True)])
    return [
        PromptRecord(
            problem.id,
            problem.level,
            greedy=next(completions),
            samples=tuple(next(completions) for _ in range(sampling.samples)),
        )
        for problem in problems
    ]


@dataclass
class _Answer:
    """Answer of a policy, in one turn or in several."""

    text: str
    tokens: tuple[int, ...]
    """Tokens after the prompt by the policy, [tokens]: the only part of an episode that a reward model reads."""
    written: int
    """Number of tokens that the policy wrote."""
    finished: bool
    solved: bool | None = None
    """Whether the answer is right, by the environment or else by the verifier; None: not yet verified."""
    grade: float = Completion.grade
    """Share of the requirements that it meets; NaN if not graded."""
    turns: str = ""
    """Turns of an episode, as JSON."""

    def as_completion(self, score: float) -> Completion:
        correct = bool(self.solved) and self.finished
        return Completion(self.text, self.written, correct, self.finished, score, self.grade, turns=self.turns)


def _answers(
    engine: Engine,
    codec: Codec,
    episodes: EpisodeSettings | None,
    problems: Sequence[Problem],
    sampling: Sampling,
    seed: int,
    judges: tuple[Verify, Grade | None],
    policy_folder: Path | None,
) -> list[list[_Answer]]:
    """Return `sampling.samples` answers to each problem, [problems][samples]."""
    groups = _draw_answers(engine, codec, episodes, problems, sampling, seed, policy_folder)
    flat = [(problem, answer) for problem, group in zip(problems, groups, strict=True) for answer in group]
    unverified = [(problem, answer) for problem, answer in flat if answer.solved is None]
    attempts = [Attempt(problem, answer.text, answer.finished) for problem, answer in unverified]
    verify, grade = judges
    for (_, answer), right in zip(unverified, verify(attempts), strict=True):
        answer.solved = right
    if grade is not None:
        for (_, answer), share in zip(unverified, grade(attempts), strict=True):
            answer.grade = share
    return groups


def _draw_answers(
    engine: Engine,
    codec: Codec,
    episodes: EpisodeSettings | None,
    problems: Sequence[Problem],
    sampling: Sampling,
    seed: int,
    policy_folder: Path | None,
) -> list[list[_Answer]]:
    """Return the answers of `_answers` before verification; only those from an environment have a verdict."""
    if episodes is not None:
        episode_groups = play(engine, codec, episodes, problems, sampling, seed, policy_folder)
        silent = _Answer("", (codec.end,), 0, False, False)  # others ended the episode before the policy had a turn
        answers = [[_answer_of_episode(episode, episodes) for episode in group] for group in episode_groups]
        return [group + [silent] * (sampling.samples - len(group)) for group in answers]
    groups = engine.generate([problem.tokens for problem in problems], sampling, seed)
    texts = iter(codec.text([completion.tokens for group in groups for completion in group]))
    return [
        [_Answer(next(texts), completion.tokens, len(completion.tokens), completion.finished) for completion in group]
        for group in groups
    ]


def _answer_of_episode(episode: Episode, settings: EpisodeSettings) -> _Answer:
    finished = settings.limits.rule(episode.cut) == "kept"
    tokens = tuple(id for turn in episode.turns for id in episode.tokens[turn.start : turn.stop])
    turns = turns_to_json([TurnRecord(turn.text, turn.response, turn.reward) for turn in episode.turns])
    return _Answer(episode.text, tokens, len(tokens), finished, episode.solved, turns=turns)
