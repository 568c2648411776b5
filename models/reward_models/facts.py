"""A reward model that reads facts which the policy does not see (LLaVA-RLHF, paper 188, arXiv 2309.14525).

    score read after  x, facts, y        facts: the answer of the problem with prompt x, such as a true description

A reward model that judges from its own perception is deceived by what it cannot see itself. With the facts in its
prompt it compares the completion with them. The preferences have no facts of their own: they are the answers of the
problems with the same prompts.

`facts.json` in the model's folder has the template. Without the facts the score is meaningless, so such a reward model
serves trainings and evaluations, which know the problems, and neither strategies nor reports.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

from pydantic import Field
from torch import Tensor

from models.base.atomic_write import write_file
from models.base.errors import UserError
from models.datasets.row_table import open_rows
from models.datasets.schema import Split, available
from models.learner.packing import Sequences
from models.method.problem import Problem, systems_of
from models.reward_models.settings_file import read_settings_file
from models.text.encoding import Codec

FILE = "facts.json"


@dataclass(frozen=True, kw_only=True)
class FactSettings:
    """What the reward model reads instead of the prompt. Section `reward_model.facts:`."""

    template: Annotated[str, Field(pattern=r"(?s)\{prompt\}.*\{answer\}")] = "{prompt} facts: {answer}"
    """Template in which `{prompt}` and then `{answer}` are replaced by the prompt and the answer of its problem."""

    def filled(self, prompt: str, answer: str) -> str:
        """Return the prompt with its facts. Inserted texts are not searched for placeholders."""
        head, _, rest = self.template.partition("{prompt}")
        middle, _, tail = rest.partition("{answer}")
        return f"{head}{prompt}{middle}{answer}{tail}"


@dataclass(frozen=True)
class FactScorer:
    """A reward model that reads facts."""

    read: Callable[[Sequences], Tensor]
    settings: FactSettings
    codec: Codec

    def with_facts(self, problems: Sequence[Problem], completions: Sequence[Sequence[int]]) -> Tensor:
        """Return the scores of completions after their prompts with the facts, [completions]."""
        return self.read(Sequences(self._prompts(problems), completions))

    def of_problems(
        self, problems: Sequence[Problem], prompts: Sequence[Sequence[int]]
    ) -> Callable[[Sequences], Tensor]:
        """Return a function that scores completions of known problems by their plain prompts.

        Args:
            problems: problems with different prompts, [problems].
            prompts: their encoded prompts, as the sequences to score have them, [problems].
        """
        known = {tuple(prompt): ids for prompt, ids in zip(prompts, self._prompts(problems), strict=True)}

        def score(sequences: Sequences) -> Tensor:
            return self.read(Sequences([known[tuple(ids)] for ids in sequences.prompts], sequences.completions))

        return score

    def _prompts(self, problems: Sequence[Problem]) -> list[list[int]]:
        """Encode the prompts of problems with their facts, [problems]."""
        texts = [self.settings.filled(problem.prompt, problem.answer) for problem in problems]
        return self.codec.prompts(texts, systems_of(problems))

    def __call__(self, sequences: Sequences) -> Tensor:
        """Refuse to score completions whose problems are unknown.

        Raises:
            UserError: always.
        """
        raise UserError("this reward model reads facts with each prompt (reward_model.facts); here are only prompts")


def answers_by_prompt(data: Path, split: Split) -> dict[str, str]:
    """Return the answer of each problem of a split, by its prompt; empty if the split has no problems."""
    if split not in available(data).get("problems", ()):
        return {}
    table = open_rows(data, "problems", split)
    pieces = zip(table.column("prompt"), table.column("answer"), strict=True)
    return {
        str(prompt): str(answer)
        for prompts, answers in pieces
        for prompt, answer in zip(prompts, answers, strict=True)
        if answer
    }


def write_facts(folder: Path, settings: FactSettings) -> None:
    """Write the template into the model's folder."""
    write_file(folder / FILE, json.dumps(asdict(settings), indent=1, ensure_ascii=False) + "\n")


def read_facts(folder: Path) -> FactSettings | None:
    """Read the template of a reward model that reads facts; None if it reads none.

    Raises:
        UserError: its file is not valid.
    """
    settings: FactSettings | None = read_settings_file(folder / FILE, FactSettings, "facts")
    return settings
