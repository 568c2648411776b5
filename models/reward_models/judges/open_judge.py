"""Opening of a recipe's judge for a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from models.method.judge import GenerativeJudge
from models.reward_models.judges.local import LocalJudge
from models.reward_models.judges.served import ServedJudge
from models.reward_models.judges.settings import JudgeSettings


@contextmanager
def opened_judge(
    settings: JudgeSettings | None, folder: Path | None, start: Path, seed: int
) -> Iterator[GenerativeJudge | None]:
    """Yield the judge of the recipe, and close it afterwards; None if the recipe has no judge.

    Args:
        settings: the recipe's section `judge`.
        folder: folder of the model that the section names or has made; None if it names none.
        start: model folder of the policy that the run begins with; it is the judge by default.
        seed: seed of the run.

    Raises:
        UserError: the folder holds no model, or the server does not answer.
    """
    if settings is None:
        yield None
        return
    judge: GenerativeJudge
    judge = ServedJudge(settings, seed) if settings.address else LocalJudge(folder or start, settings, seed)
    try:
        yield judge
    finally:
        judge.close()
