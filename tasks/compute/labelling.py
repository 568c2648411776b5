"""Common parts of the steps that label completions of the warm-started policy as rows for a reward model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from models.answers.exact import by_answer
from models.datasets.schema import Split
from models.engines.engine import Engine, EngineSettings
from models.method.attempt import Verify
from models.method.judge import GenerativeJudge
from models.method.learner import Role
from models.method.problem import Problem
from models.method.reward import Reward
from models.reward_models.judges.open_judge import opened_judge
from models.reward_models.judges.settings import JudgeSettings
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.prompt_form import PromptForm
from models.text.tokenizer import load_tokenizer
from models.training.read_problems import LengthSections, longest_sequence, read_problems
from tasks.compute.shared_engine import borrowed_engine
from tasks.data.inputs import log_rows
from tasks.registered.policy import PolicyFiles

SPLITS: tuple[Split, ...] = ("train", "validation")
"""Splits for which rows are made."""


class LabellingSections(LengthSections):
    """The sections of the recipe on which the policy's completions and their labels depend."""

    seed: int
    engine: EngineSettings
    judge: JudgeSettings | None
    """The judge, if one is used."""
    verifier: Reward | None
    """Decides which completions are right; None: the problems' answers do."""

    @property
    def verify(self) -> Verify:
        """The rule that decides which completions are right."""
        return by_answer if self.verifier is None else self.verifier.right


@dataclass(frozen=True)
class LabellingModels:
    """The engine that writes completions, and the judge that reads them."""

    engine: Engine
    codec: Codec
    judge: GenerativeJudge | None
    """None if no judge is used."""


@contextmanager
def open_labelling_models(
    recipe: LabellingSections, start: Path, judges: Mapping[Role, PolicyFiles], *, needs_judge: bool
) -> Iterator[LabellingModels]:
    """Open the policy's engine and the judge for the duration of the block.

    Args:
        start: model folder of the policy that draws.
        judges: the model that judges, if it is on this machine; else empty.
        needs_judge: whether a judge is used.

    Raises:
        UserError: the recipe uses a judge, but there is none.
    """
    trusted = recipe.policy.trust_remote_code
    form = PromptForm.of(recipe.policy.system, recipe.data_template)
    codec = Codec(load_tokenizer(start, trust_remote_code=trusted), recipe.policy.chat, ends_of_folder(start), form)
    files = judges.get("judge")
    longest = longest_sequence(recipe)
    settings = recipe.judge if needs_judge else None
    with (
        opened_judge(settings, files.folder if files else None, start, recipe.seed) as judge,
        borrowed_engine(start, recipe.engine, longest=longest, end=codec.ends, trust_remote_code=trusted) as engine,
    ):
        yield LabellingModels(engine, codec, judge)


def problems_to_label(
    recipe: LabellingSections,
    data: Path,
    codec: Codec,
    split: Split,
    count: int,
    run_id: str,
    hardest: int | None = None,
) -> Sequence[Problem]:
    """Read `count` problems that are evenly spaced over a split, and log them as inputs of the run."""
    problems = read_problems(data, codec, split, recipe, count, hardest)
    rows = [(problem.id, problem.prompt, problem.answer) for problem in problems]
    log_rows(run_id, recipe.data_name, "problems", split, rows, data)
    return problems
