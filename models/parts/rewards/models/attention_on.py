"""Share of a completion's attention that falls on what an expert looks at in a record (EAG-RL, paper 255).

    value = a(important features) / a(all features)

a(S) is the mean attention of the tokens that the policy wrote, over layers and heads, on the prompt's tokens that state
the features S. The expert is a logistic regression on records of the same form (`models.parts.shared.record_expert`);
the `top` features with the largest |w z| in this record are important. A policy that attends to all features' tokens
alike earns the important ones' share of the tokens. Without a stated feature that the expert knows, the value is zero.

The attention is that of the policy at the time of the reward. It is read with eager attention, which costs a forward
pass of each completion and memory that grows with the square of its length.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache

import torch
from pydantic import PositiveFloat

from models.answers.patterns import compiled
from models.base.bounds import Positive
from models.base.errors import UserError
from models.base.source_code import GivenFile
from models.learner.packing import Sequences
from models.learner.prompt_attention import attention_to_prompts
from models.method.own_file import OwnFile
from models.method.recipe_paths import RecipePath
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import Reasoned, ReasonedReward
from models.method.rollout import Rollout
from models.method.steps import beginnings_of
from models.parts.shared.record_expert import RecordExpert, fit_expert, stated
from models.text.encoding import Codec


@part("attention_on")
class AttentionOn(OwnFile, ReasonedReward):
    """Attention on the features of the prompt that an expert finds important, as a share of that on all features."""

    reads_learner = True
    one_sequence = True
    feature: str = r"(?P<name>[a-z]+) (?P<value>-?\d+(?:\.\d+)?)"
    """Regular expression of a feature in a prompt, with the groups `name` and `value`, a number."""
    records: RecipePath = ""
    """A JSONL file of records that the expert is fitted to, {"prompt": ..., "answer": ...}; a relative path starts at
    the recipe's folder."""
    sha256: str = ""
    """Hash of its content, filled in when the recipe is read. If a recipe sets it, other content is refused."""
    answer: str = "yes"
    """Answer whose probability the expert learns; all other answers count as its opposite."""
    top: Positive = 3
    """Number of features of a record that are important."""
    ridge: PositiveFloat = 0.001
    """Penalty of the expert's squared weights."""

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"rewards.{self.label}"
        pattern = compiled(self.feature, f"{where}.feature")
        if missing := {"name", "value"} - set(pattern.groupindex):
            raise UserError(
                f"{where}.feature: the group {min(missing)} is missing; write it as (?P<{min(missing)}>...)"
            )
        object.__setattr__(self, "_feature", pattern)
        self._know_file(self.records, self.sha256, f"{where}.records")

    @property
    def misfit(self) -> str:
        """Error message if no records are named; otherwise empty."""
        return (
            "" if self.records else f"rewards.{self.label}.records: none; name the records that an expert learns from"
        )

    def try_out(self) -> None:
        """Fit the expert.

        Raises:
            UserError: a line is not a record, no record states a feature, or all have the same answer.
        """
        self._expert()

    def reasoned(self, resources: RunResources, rollouts: Sequence[Rollout]) -> Reasoned:
        """Compute the share of attention of each completion, [completions], in [0, 1].

        The reason names the important features. The metric `uniform` is the mean value of attention that is equal on
        all features' tokens.

        Raises:
            UserError: the model has no eager attention.
        """
        values, reasons, uniform = torch.zeros(len(rollouts)), [""] * len(rollouts), []
        marks = {rollout.problem.tokens: self._marks(resources.codec, rollout.problem.tokens) for rollout in rollouts}
        places = [
            place
            for place, rollout in enumerate(rollouts)
            if any(rollout.written) and marks[rollout.problem.tokens][1].any()
        ]
        some = [rollouts[place] for place in places]
        sequences = Sequences([each.problem.tokens for each in some], [each.completion for each in some])
        weights = attention_to_prompts(
            resources.learner.policy,
            sequences,
            counted=[torch.tensor(each.written) for each in some],
            autocast=resources.learner.autocast,
            token_budget=resources.token_budget,
        )
        for place, row in zip(places, weights, strict=True):
            important, known, names = marks[rollouts[place].problem.tokens]
            values[place] = float(row[important].sum() / row[known].sum().clamp(min=1e-300))
            reasons[place] = ", ".join(names)
            uniform.append(int(important.sum()) / int(known.sum()))
        return Reasoned(values, reasons, {"uniform": sum(uniform) / len(uniform)} if uniform else {})

    def _expert(self) -> RecordExpert:
        return _fitted(self.given[0], self.feature, self.answer, self.ridge, f"rewards.{self.label}.records")

    def _marks(self, codec: Codec, prompt: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor, list[str]]:
        """Mark the tokens of important and of all known features, [prompt tokens] bool; and name the important ones."""
        beginnings = beginnings_of(codec, prompt)
        text, ends = beginnings[-1], [0, *map(len, beginnings)]
        features = stated(vars(self)["_feature"], text)
        importance = self._expert().importance({name: value for name, (value, _) in features.items()})
        names = sorted(importance, key=lambda name: (-importance[name], name))[: self.top]
        important, known = (torch.zeros(len(prompt), dtype=torch.bool) for _ in range(2))
        for place in range(len(prompt)):
            begin, end = ends[place : place + 2]
            begin += len(text[begin:end]) - len(text[begin:end].lstrip())
            for name in importance:
                span = features[name][1]
                if begin < span.stop and span.start < end:
                    known[place] = True
                    important[place] |= name in names
        return important, known, names


@lru_cache(maxsize=8)
def _fitted(file: GivenFile, feature: str, answer: str, ridge: float, where: str) -> RecordExpert:
    """Fit the expert to the records of a file, once for each file and setting."""
    pattern = compiled(feature, where)
    rows, answers = [], []
    for place, line in file.lines(where):
        try:
            row = json.loads(line)
            prompt, given = row["prompt"], row["answer"]
        except (ValueError, TypeError, KeyError, RecursionError):
            prompt, given = None, None
        if not isinstance(prompt, str) or not isinstance(given, str):
            raise UserError(f'{place}: not {{"prompt": text, "answer": text}}')
        rows.append({name: value for name, (value, _) in stated(pattern, prompt).items()})
        answers.append(given.strip() == answer)
    return fit_expert(rows, answers, ridge, where)
