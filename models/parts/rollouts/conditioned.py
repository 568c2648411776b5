"""Answers from the data with their class in the prompt (C-RLFT, 2309.11235, paper 316; magic tokens, paper 245).

    pi(y | x, c),   c: the class of the answer y

Two ways to state the class:

    flawed_prompt   the prompt of a poor answer states that it is poor; a good answer has the plain prompt
    modes           one token after every prompt states the mode in which the policy answers

With C-RLFT, the policy learns the language from poor answers without learning to be poor, and the plain prompt is also
the prompt after training. With modes, one fine-tuning co-trains several behaviours (such as helpful, unfiltered and
rejecting answers), and the token selects one of them in use. The first mode is the one of the exported policy: its
token follows every prompt in evaluations and in use; `rewardflow evaluate --strategy in_mode` measures another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from models.base.errors import UserError, listed
from models.method.learner import Learner
from models.method.problem import KnownAnswer, Problem, systems_of
from models.method.registry import part
from models.method.resources import RunResources
from models.method.rollout import Rollout
from models.parts.rollouts.dataset import Dataset, as_rollout
from models.parts.shared.after_prompt import write_after_prompt
from models.text.encoding import Codec

SOUND = "sound"
"""Class of an answer without a flaw that is not a rejected one."""


@dataclass(frozen=True, kw_only=True)
class Mode:
    """A way to answer, under `rollouts.modes.NAME:`."""

    __pydantic_config__ = {"extra": "forbid"}  # noqa: RUF012 - not a field

    token: str
    """Text of the one token that follows the prompt of every answer in this mode."""
    answers: tuple[str, ...]
    """Classes of the answers that are written in this mode: `sound`, `rejected`, or the name of a flaw."""


@part("conditioned")
class Conditioned(Dataset):
    """Answers from the data, whose prompts state the class of the answer. Set under `rollouts:`."""

    reads: Literal["preferences", "demonstrations"] = "demonstrations"
    flawed_prompt: str = "A careless answer to: {prompt}"
    """Prompt of flawed and rejected answers, without modes; `{prompt}` is replaced by the plain prompt."""
    modes: dict[str, Mode] = field(default_factory=dict)
    """Name -> mode, the first one for use after training; empty: poor answers get `flawed_prompt`."""

    def __post_init__(self) -> None:
        tokens = [mode.token for mode in self.modes.values()]
        if repeated := [token for token in dict.fromkeys(tokens) if tokens.count(token) > 1]:
            raise UserError(f"rollouts.modes: two modes have the token {repeated[0]!r}; each needs its own")
        classes = [answers for mode in self.modes.values() for answers in mode.answers]
        if twice := [name for name in dict.fromkeys(classes) if classes.count(name) > 1]:
            raise UserError(f"rollouts.modes: answers of the class {twice[0]!r} are in two modes; name it once")

    @property
    def exports(self) -> bool:
        """Whether the policy is used with the token of a mode."""
        return bool(self.modes)

    def export(self, learner: Learner, codec: Codec, start: Path, folder: Path) -> None:
        """Write next to the policy that the token of the first mode follows every prompt, if there are modes.

        See `Rollouts.export`.
        """
        if not self.modes:
            return
        first = next(iter(self.modes.values()))
        write_after_prompt(folder, codec, first.token, [self._tokens(codec)[first.token]])

    def extra_tokens(self, codec: Codec, problems: Sequence[Problem]) -> list[int]:
        """Return the tokens that the class of an answer adds to the question, [problems]; 0 if none is stated."""
        if self.modes:
            return [1] * len(problems)
        return [
            max(0, len(ids) - len(problem.tokens)) if any(map(_is_poor, problem.known)) else 0
            for problem, ids in zip(problems, self._poor_prompts(codec, problems), strict=True)
        ]

    def __call__(self, resources: RunResources, problems: Sequence[Problem], round_number: int) -> list[Rollout]:
        """Return the answers to `problems`, each under its class's prompt, those of one prompt next to each other.

        Raises:
            UserError: the token of a mode is not a single token, or no mode names the class of an answer.
        """
        if self.modes:
            return self._in_modes(resources.codec, problems)
        rollouts = []
        for number, (problem, ids) in enumerate(
            zip(problems, self._poor_prompts(resources.codec, problems), strict=True)
        ):
            poor = replace(problem, tokens=tuple(ids))
            for known in problem.known:
                if _is_poor(known):
                    # the reference's log-probs were computed under the plain prompt
                    rollouts.append(as_rollout(poor, number, replace(known, reference_log_probs=None)))
                else:
                    rollouts.append(as_rollout(problem, number, known))
        return rollouts

    def _in_modes(self, codec: Codec, problems: Sequence[Problem]) -> list[Rollout]:
        ids = self._tokens(codec)
        token_of = {name: ids[mode.token] for mode in self.modes.values() for name in mode.answers}
        rollouts = []
        for number, problem in enumerate(problems):
            for known in problem.known:
                name = class_of(known)
                if name not in token_of:
                    raise UserError(
                        f"rollouts.modes: no mode has the answers of the class {name!r} (row {problem.id}); there are "
                        f"{listed(list(token_of), 10)}"
                    )
                with_token = replace(problem, tokens=(*problem.tokens, token_of[name]))
                rollouts.append(as_rollout(with_token, number, replace(known, reference_log_probs=None)))
        return rollouts

    def _tokens(self, codec: Codec) -> dict[str, int]:
        """Return the id of each mode's token by its text."""
        return single_tokens(codec, [mode.token for mode in self.modes.values()], "rollouts.modes")

    def _poor_prompts(self, codec: Codec, problems: Sequence[Problem]) -> list[list[int]]:
        """Return prompts that request a poor answer, [problems] lists of token ids."""
        return codec.prompts(
            [self.flawed_prompt.replace("{prompt}", problem.prompt) for problem in problems], systems_of(problems)
        )


def class_of(known: KnownAnswer) -> str:
    """Return the class of an answer: its flaw, else `rejected` for the worse one of a pair, else `sound`."""
    return known.flaw or ("rejected" if known.origin == "rejected" else SOUND)


def single_tokens(codec: Codec, texts: Sequence[str], where: str) -> dict[str, int]:
    """Return the id of each text as a single token of the policy.

    Args:
        codec: the policy's tokenizer.
        texts: texts of the tokens.
        where: key of the recipe that names them, for the error message.

    Raises:
        UserError: a text is several tokens, none, or one that the tokenizer does not know, or two are the same token.
    """
    ids: dict[str, int] = {}
    for text, row in zip(texts, codec.completions(list(texts)), strict=True):
        if len(row) != 2 or row[0] == codec.tokenizer.unk_token_id:
            raise UserError(
                f"{where}: {text!r} is not one token of the policy's tokenizer; choose a word that it knows, or add it "
                "to policy.tokenizer.words"
            )
        if row[0] in ids.values():
            raise UserError(f"{where}: {text!r} is the same token as another; choose other words")
        ids[text] = row[0]
    return ids


def _is_poor(known: KnownAnswer) -> bool:
    return bool(known.flaw) or known.origin == "rejected"
