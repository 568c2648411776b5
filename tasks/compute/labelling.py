"""What steps share in which rows for a reward model are made of completions of the policy, before it is trained."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from models.datasets.schema import Split
from models.engine.engine import Engine, EngineSettings
from models.judges.judge import GenerativeJudge
from models.judges.open_judge import opened_judge
from models.judges.settings import JudgeSettings
from models.loop.attempt import Verify
from models.loop.judge import Role
from models.loop.read_problems import LengthSections, longest_sequence, read_problems
from models.loop.rollout import Problem
from models.loop.slots import Reward
from models.policy.folder import load_tokenizer
from models.rewards.exact_answer import by_answer
from models.text.encoding import Codec
from models.text.end_ids import ends_of_folder
from models.text.prompt_form import PromptForm
from tasks.compute.shared_engine import lent_engine
from tasks.data.inputs import log_rows
from tasks.registered.policy import PolicyFiles

SPLITS: tuple[Split, ...] = ("train", "validation")
"""Of which rows are made."""


class LabellingSections(LengthSections):
    """What completions of the policy, and what is said of them, depend on."""

    seed: int
    engine: EngineSettings
    judge: JudgeSettings | None
    """Who judges, where that is asked."""
    verifier: Reward | None
    """Decides which completions are right; None: the problems' answers do."""

    @property
    def verify(self) -> Verify:
        """The rule that decides."""
        return by_answer if self.verifier is None else self.verifier.right


@dataclass(frozen=True)
class Drawing:
    """Who writes completions, and who reads them."""

    engine: Engine
    codec: Codec
    judge: GenerativeJudge | None
    """None where none is asked."""


@contextmanager
def drawing(
    recipe: LabellingSections, start: Path, judges: Mapping[Role, PolicyFiles], *, asks: bool
) -> Iterator[Drawing]:
    """The policy's engine and the judge, as long as rows are made.

    Args:
        start: model folder of the policy that draws.
        judges: the model that judges, where it lies on this machine; else nothing.
        asks: whether a judge is asked.

    Raises:
        UserError: there is no judge where the recipe says that one is.
    """
    trusted = recipe.policy.trust_remote_code
    form = PromptForm.of(recipe.policy.system, recipe.data_template)
    codec = Codec(load_tokenizer(start, trust_remote_code=trusted), recipe.policy.chat, ends_of_folder(start), form)
    files = judges.get("judge")
    longest = longest_sequence(recipe)
    with (
        opened_judge(recipe.judge if asks else None, files.folder if files else None, start, recipe.seed) as judge,
        lent_engine(start, recipe.engine, longest=longest, end=codec.ends, trust_remote_code=trusted) as engine,
    ):
        yield Drawing(engine, codec, judge)


def asked_problems(
    recipe: LabellingSections,
    data: Path,
    codec: Codec,
    split: Split,
    count: int,
    run_id: str,
    hardest: int | None = None,
) -> Sequence[Problem]:
    """So many problems of a split, evenly spaced over it, which the run is said to have used."""
    problems = read_problems(data, codec, split, recipe, count, hardest)
    rows = [(problem.id, problem.prompt, problem.answer) for problem in problems]
    log_rows(run_id, recipe.data_name, "problems", split, rows, data)
    return problems
