"""The models that score turns for the strategies of an evaluation, opened by the setting `strategy.scorer`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn

from models.agents.turn_scorer import ScorerSettings, TurnScorer
from models.base.errors import UserError
from models.learner.packing import Sequences
from models.method.judge import GenerativeJudge
from models.policies.folder import check_model_folder
from models.policies.teacher import check_vocabulary
from models.policies.value_model import load_value_model, vocabulary_of
from models.reward_models.critic.action_values import ACTION_VALUES, has_action_values, load_action_values
from models.reward_models.judges.local import LocalJudge
from models.reward_models.judges.question import SCORE, check_template, fill
from models.reward_models.judges.served import ServedJudge
from models.reward_models.judges.settings import JudgeSettings
from models.reward_models.judges.verdict import score
from models.reward_models.scorer import StepScorer, open_scorer
from models.text.encoding import Codec
from models.text.tokenizer import load_tokenizer

Read = Callable[[Sequences], list[float]]
"""Function from histories with their turns, all not empty, to values, [turns]."""


@dataclass
class OpenTurnScorer:
    """An open scorer, which counts the tokens that it reads."""

    values: Read
    after_prompt: tuple[int, ...] = ()
    """Ids that the policy reads between prompt and turn, which no scorer reads."""
    read: int = 0

    def __call__(self, prompts: Sequence[Sequence[int]], turns: Sequence[Sequence[int]]) -> list[float]:
        """See `TurnScorer`."""
        histories = [self._plain(prompt) for prompt in prompts]
        self.read += sum(map(len, histories)) + sum(map(len, turns))
        return self.values(Sequences(histories, [tuple(turn) for turn in turns]))

    def _plain(self, prompt: Sequence[int]) -> tuple[int, ...]:
        ids, count = tuple(prompt), len(self.after_prompt)
        return ids[:-count] if count and ids[-count:] == self.after_prompt else ids


def open_turn_scorer(
    settings: ScorerSettings,
    codec: Codec,
    learned_from: Path | None,
    *,
    seed: int,
    after_prompt: Sequence[int] = (),
    token_budget: int = 16384,
    autocast_for: Callable[[nn.Module], torch.dtype | None] = lambda model: None,
    trust_remote_code: bool = False,
) -> TurnScorer | None:
    """Open the model of a strategy's scorer; None if the strategy has none, or the policy's own likelihood.

    Args:
        settings: the strategy's scorer.
        codec: the policy's tokenizer.
        learned_from: folder of the reward model that the policy learned from, read if no path is set; None: none.
        seed: seed of the judge's votes.
        after_prompt: ids that the policy needs between prompt and turn.
        token_budget: tokens of a packed row of a reward model; memory only.
        autocast_for: precision that a reward model computes in; None for plain float32.
        trust_remote_code: run code that a reward model ships.

    Raises:
        UserError: no model is named, the folder holds another kind of model, or one with other tokens.
    """
    if settings.name in ("none", "likelihood"):
        return None
    opened = partial(OpenTurnScorer, after_prompt=tuple(after_prompt))
    if settings.name == "judge":
        return opened(partial(_judged, settings, _judge(settings, seed), codec))
    folder = Path(settings.path).expanduser() if settings.path else learned_from
    if folder is None or (settings.name == "critic" and not settings.path):
        where = "this policy learned from no reward model; " if settings.name != "critic" else ""
        raise UserError(f"strategy.scorer.path: {where}name the folder of the {settings.name.replace('_', ' ')}")
    if settings.name == "critic":
        return opened(_critic(folder, codec))
    check_model_folder(folder)
    theirs = load_tokenizer(folder, trust_remote_code=trust_remote_code)
    check_vocabulary(folder, theirs, codec.tokenizer, "strategy.scorer.path")
    scorer = open_scorer(
        folder, codec, token_budget=token_budget, autocast_for=autocast_for, trust_remote_code=trust_remote_code
    )
    if isinstance(scorer, StepScorer) != (settings.name == "process_model"):
        other = "process_model" if isinstance(scorer, StepScorer) else "reward_model"
        raise UserError(f"strategy.scorer: {folder} is a {other.replace('_', ' ')}; set strategy.scorer.name={other}")
    if isinstance(scorer, StepScorer) and settings.aggregate != "model":
        scorer = replace(scorer, reading=replace(scorer.reading, aggregate=settings.aggregate))
    return opened(lambda sequences: [float(value) for value in scorer(sequences)])


def _critic(folder: Path, codec: Codec) -> Read:
    """Return the reader of a critic: values of turns, or of the texts that end with them."""
    place = folder / ACTION_VALUES if has_action_values(folder / ACTION_VALUES) else folder
    if not has_action_values(place):
        texts = load_value_model(folder)
        _check_rows(folder, texts.vocabulary, codec)
        return lambda sequences: texts.of_texts(sequences.prompts, sequences.completions)
    critic = load_action_values(place)
    _check_rows(folder, vocabulary_of(critic.backbone), codec)

    def values(sequences: Sequences) -> list[float]:
        budget = max([16384, *(length + 1 for length in sequences.lengths)])
        with torch.no_grad():
            features = critic.features(sequences.prompts, sequences.completions, budget)
            return [float(value) for value in critic.values(features)]

    return values


def _check_rows(folder: Path, rows: int, codec: Codec) -> None:
    if rows < len(codec.tokenizer):
        raise UserError(
            f"strategy.scorer.path: the critic in {folder} knows {rows} tokens, and the policy {len(codec.tokenizer)}"
        )


def _judge(settings: ScorerSettings, seed: int) -> GenerativeJudge:
    check_template(settings.template or SCORE, {"prompt", "completion"}, "strategy.scorer.template")
    if settings.address:
        return ServedJudge(JudgeSettings(address=settings.address, model=settings.model or None), seed)
    if not settings.path:
        raise UserError("strategy.scorer.path: name the folder of the judge, or its server as strategy.scorer.address")
    folder = Path(settings.path).expanduser()
    check_model_folder(folder)
    return LocalJudge(folder, JudgeSettings(), seed)


def _judged(settings: ScorerSettings, judge: GenerativeJudge, codec: Codec, sequences: Sequences) -> list[float]:
    """Return the mean score of each turn over the votes, in [0, 1], [turns]; a turn without a readable vote has 0."""
    prompts, turns = codec.text(sequences.prompts), codec.text(sequences.completions)
    questions = [
        fill(settings.template or SCORE, {"prompt": prompt, "completion": turn})
        for prompt, turn in zip(prompts, turns, strict=True)
    ]
    values = []
    for answers in judge.ask(questions, settings.votes):
        scores = [score(answer, settings.lowest, settings.highest) for answer in answers]
        readable = [value for value in scores if value is not None]
        values.append(sum(readable) / len(readable) if readable else 0.0)
    return values
