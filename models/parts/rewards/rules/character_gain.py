"""The change of the character error at each token, for rewards of transcriptions (PCPG, paper 334).

    value_t = (d(text before token t) - d(text up to token t)) / length of the target

d is the edit distance (Levenshtein) to the target in characters. The values of a completion add up to 1 - its character
error rate: 1 for a copy of the target, negative if the text is longer than the target by more than it has in common.
A right character is rewarded where it is written, and a surplus one costs there. The target is the problem's answer, or
a demonstration of the data, the first without a flaw if there is any. Runs of blanks count as one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from models.base.errors import UserError
from models.method.problem import Problem
from models.method.registry import part
from models.method.resources import RunResources
from models.method.reward import TokenReward
from models.method.rollout import Rollout
from models.method.steps import beginnings_of
from models.parts.shared.written_tokens import spread_rows


def distances(text: str, target: str) -> list[int]:
    """Return the edit distance of every beginning of `text` to the whole `target`, from the empty one on, [n + 1]."""
    row = list(range(len(target) + 1))
    known = [row[-1]]
    for number, letter in enumerate(text, start=1):
        before, row = row, [number]
        for place, wanted in enumerate(target):
            row.append(min(before[place] + (letter != wanted), before[place + 1] + 1, row[-1] + 1))
        known.append(row[-1])
    return known


@part("character_gain")
class CharacterGain(TokenReward):
    """Fall of the character error at each token; the sum is one minus the character error rate."""

    against: Literal["answer", "demonstration"] = "answer"
    """Target: the problem's answer, or a demonstration, which `rollouts` must read."""

    @property
    def needs_answers(self) -> bool:
        """Whether it compares completions with the problems' answers."""
        return self.against == "answer"

    def tokens(self, resources: RunResources, rollouts: Sequence[Rollout]) -> list[Tensor]:
        """Return values, [completions] tensors of [tokens of it].

        Raises:
            UserError: a problem has no demonstration, but they are the targets.
        """
        rows = []
        for rollout in rollouts:
            target, ids = _plain(self._target(rollout.problem)), rollout.written_ids
            texts = [_plain(text) for text in beginnings_of(resources.codec, ids)]
            whole = max(texts, key=len, default="")
            known = distances(whole, target)
            # The text of the first tokens nearly always begins that of all tokens, which is compared once.
            errors = [known[0]] + [
                known[len(text)] if whole.startswith(text) else distances(text, target)[-1] for text in texts
            ]
            rows.append(-torch.tensor(errors, dtype=torch.float32).diff() / max(1, len(target)))
        return spread_rows(rows, rollouts)

    def _target(self, problem: Problem) -> str:
        if self.against == "answer":
            return problem.answer
        shown = [answer for answer in problem.known if answer.origin != "rejected"]
        if not shown:
            raise UserError(
                f"reward {self.label}: problem {problem.id} has no demonstration; set rollouts.reads to "
                "demonstrations, or against to answer"
            )
        return next((answer.text for answer in shown if not answer.flaw), shown[0].text)


def _plain(text: str) -> str:
    return " ".join(text.split())
