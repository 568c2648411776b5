"""Answers of a policy under the recipe's evaluation settings, for evaluations and for reviews by people."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from models.agents.strategy import Spent, Strategic, Strategy
from models.answers.exact import by_answer
from models.base.errors import UserError
from models.base.sections import of
from models.engines.engine import Engine, EngineSettings, Sampling, has_vllm
from models.evaluation.evaluate import STAGES, evaluate
from models.evaluation.hallucination import HallucinationSettings, with_claims
from models.evaluation.other_images import ShownImages, with_images_shown
from models.evaluation.records import Completion, PromptRecord
from models.evaluation.wrapped import Wrapping, wrapped_problems
from models.method.attempt import Grade, Verify
from models.method.environment import EpisodeSettings
from models.method.problem import Problem
from models.method.reward import Reward
from models.policies.aspects import InUse
from models.policies.base_folder import check_base_folder
from models.policies.use import read_use
from models.text.encoding import Codec
from models.training.read_problems import LengthSections, longest_sequence
from tasks.compute.open_engine import ScorerSections, reward_scorer, turn_scorer_of
from tasks.compute.run_tokens import RunTokens
from tasks.compute.shared_engine import borrowed_engine
from tasks.registered.policy import PolicyFiles
from tasks.registered.reward_model import RewardModelFiles
from tasks.runner.progress import stages

_LOG = logging.getLogger("rewardflow.steps")


class EvaluationSections(LengthSections, ScorerSections):
    """The sections of the recipe that every evaluation reads."""

    policy: InUse = of("used_policy")
    engine: EngineSettings
    temperature: float = of("evaluation.temperature")
    top_p: float = of("evaluation.top_p")
    evaluation_seed: int = of("evaluation.seed")
    samples: int = of("evaluation.samples")
    wrap: Wrapping | None = of("evaluation.wrap")
    images: ShownImages = of("evaluation.images")
    hallucination: HallucinationSettings | None = of("gate.hallucination")
    episodes: EpisodeSettings | None = of("rollouts.episodes")
    verifier: Reward | None
    """Decides which answers are right; None: the problems' answers do."""

    @property
    def verify(self) -> Verify:
        """The rule that decides which answers are right."""
        return by_answer if self.verifier is None else self.verifier.right

    @property
    def grade(self) -> Grade | None:
        """The rule that grants partial scores; None: there is none."""
        return self.verifier.grade if self.verifier is not None and self.verifier.grades else None


def as_measured(problems: list[Problem], recipe: EvaluationSections, codec: Codec) -> list[Problem]:
    """Return the problems with the prompts that the policy reads, [problems].

    `evaluation.wrap` may rewrite them, and `evaluation.images` may show other pictures.

    Raises:
        UserError: a rewritten prompt has no room, or the prompts have no pictures to replace.
    """
    problems = with_images_shown(problems, codec, recipe.images)
    if recipe.wrap is None:
        return problems
    completion = recipe.longest_measured or recipe.longest_drawn
    return wrapped_problems(problems, codec, recipe.wrap, longest_sequence(recipe) - completion)


def answers(
    name: str,
    home: Path,
    policy: PolicyFiles,
    recipe: EvaluationSections,
    tokens: RunTokens,
    problems: Sequence[Problem],
    rewarded: RewardModelFiles | None,
    strategy: Strategy | None = None,
    partner: PolicyFiles | None = None,
) -> tuple[list[PromptRecord], Spent]:
    """Draw and score a policy's answers to each problem, [problems]; return them with the cost of a strategy.

    Lengths are in the policy's own tokens.

    Args:
        name: name of the step, for its progress.
        home: the state folder.
        policy: the policy to measure.
        recipe: the evaluation settings.
        tokens: the policy's tokenizer and the run's.
        problems: problems with prompts in the policy's tokens.
        rewarded: reward model that scores the completions; None: they are not scored.
        strategy: makes the turns; None: they are the policy's own.
        partner: plays the seats of others; None: the recipe's choice.

    Raises:
        UserError: the recipe's environment has no seat for the partner.
    """
    sampling = Sampling(
        max_tokens=recipe.longest_measured or recipe.longest_drawn,
        temperature=recipe.temperature,
        top_p=recipe.top_p,
        samples=recipe.samples,
    )
    after_prompt, spent, codec = read_use(policy.folder).after_prompt, Spent(), tokens.own
    room = room_of(policy, recipe, strategy.extra_tokens if strategy else 0)
    episodes = recipe.episodes
    if strategy is not None and episodes is not None:
        episodes = replace(episodes, waves=True)  # a turn of several calls cannot be written by an engine alone
    if partner is not None:
        episodes = _with_partner(episodes, partner)
    with stages(name, ("engine", *STAGES)) as begin:
        begin("engine")
        with measuring_engine(policy, recipe, codec, room, engine_settings(name, recipe, strategy)) as engine:
            drawn: Engine = engine
            if strategy is not None:
                turn_scorer = turn_scorer_of(
                    strategy.scorer, rewarded, recipe, home, codec, after_prompt, recipe.evaluation_seed
                )
                drawn = strategic = Strategic(engine, codec, strategy, room, turn_scorer)
                spent = strategic.policy.spent
            scorer = tokens.scorer(reward_scorer(rewarded, recipe, home, tokens.run), problems)
            seed = recipe.evaluation_seed
            where = policy.folder  # folder of the frozen model that it was trained with
            rules = (episodes, where, recipe.verify, recipe.grade)
            made = evaluate(drawn, codec, problems, sampling, seed, scorer, begin, after_prompt, *rules)
    if recipe.hallucination is not None:
        made = with_claims(made, problems)
    return made, spent


def engine_settings(name: str, recipe: EvaluationSections, strategy: Strategy | None) -> EngineSettings:
    """Return the engine's settings: transformers for a strategy that needs the distributions of tokens."""
    if strategy is None or not strategy.joint:
        return recipe.engine
    if recipe.engine.name != "transformers" and has_vllm():
        _LOG.warning("%s: %s decodes with transformers, because vLLM does not mix models", name, strategy.name)
    return replace(recipe.engine, name="transformers")


def with_start_nats(
    records: Sequence[PromptRecord],
    problems: Sequence[Problem],
    start: PolicyFiles,
    recipe: EvaluationSections,
    codec: Codec,
) -> list[PromptRecord]:
    """Return the records with each completion's surprisal, in nats a token, under the policy before the training.

    Args:
        records: answers in one turn, [problems].
        problems: the answered problems.
        start: the policy from which the training started.
        recipe: the evaluation settings.
        codec: the tokenizer of `start`.
    """
    after_prompt = read_use(start.folder).after_prompt
    prompts = [(*ids, *after_prompt) for ids in codec.prompts([problem.prompt for problem in problems])]
    answered = [
        (prompt, completion)
        for prompt, record in zip(prompts, records, strict=True)
        for completion in (record.greedy, *record.samples)
    ]
    rows = codec.completions([completion.text for _, completion in answered])
    rows = [ids if completion.finished else ids[:-1] for ids, (_, completion) in zip(rows, answered, strict=True)]
    with measuring_engine(start, recipe, codec) as engine:
        scores = engine.score([prompt for prompt, _ in answered], rows)
    nats = iter([-sum(of_tokens) / max(1, len(of_tokens)) for of_tokens in scores])

    def measured(completion: Completion) -> Completion:
        return replace(completion, start_nats=next(nats))

    return [
        replace(record, greedy=measured(record.greedy), samples=tuple(map(measured, record.samples)))
        for record in records
    ]


def _with_partner(episodes: EpisodeSettings | None, partner: PolicyFiles) -> EpisodeSettings:
    environment = episodes.environment.with_partner(partner.folder) if episodes is not None else None
    if episodes is None or environment is None:
        named = f"environment {episodes.environment.name}" if episodes is not None else "a recipe of one turn"
        raise UserError(
            f"strategy.partners: {named} has no seat for a partner; environments table, partner and solver have"
        )
    return replace(episodes, environment=environment)


def room_of(policy: PolicyFiles, recipe: EvaluationSections, extra: int = 0) -> int:
    """Return how many tokens an engine must hold: the recipe's longest prompt and completion, plus up to `extra`.

    Extra tokens are added as far as the policy's positions allow.

    Args:
        policy: the policy to sample from.
        recipe: the evaluation settings.
        extra: further tokens that are wanted.
    """
    longest = longest_sequence(recipe)
    if recipe.policy.room is not None:
        return longest
    longest += len(read_use(policy.folder).after_prompt)
    positions, _ = check_base_folder(policy.folder) if extra else (None, [])
    return max(longest, min(longest + extra, positions or longest + extra))


@contextmanager
def measuring_engine(
    policy: PolicyFiles,
    recipe: EvaluationSections,
    codec: Codec,
    longest: int | None = None,
    settings: EngineSettings | None = None,
) -> Iterator[Engine]:
    """Open an engine on a policy, with room for the recipe's longest prompt and completion.

    Args:
        policy: the policy to sample from.
        recipe: the evaluation settings.
        codec: the policy's own tokenizer.
        longest: tokens that a prompt and its completion may have together; None: as many as the recipe's have.
        settings: settings of the engine; None: the recipe's.
    """
    longest = room_of(policy, recipe) if longest is None else longest
    with borrowed_engine(
        policy.folder,
        recipe.engine if settings is None else settings,
        longest=longest,
        end=codec.ends,
        trust_remote_code=recipe.policy.trust_remote_code,
    ) as engine:
        yield engine
