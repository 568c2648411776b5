"""`judge`: the gate for any two models, as the command of the same name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rewardflow.results import JudgeOutcome, judge_outcome


def judge(
    champion: str | Path,
    candidate: str | Path,
    *,
    data: str | Path | None = None,
    verifier: str = "",
    metric: str = "",
    also: Sequence[str] = (),
    guards: Mapping[str, float] | None = None,
    settings: Mapping[str, Any] | None = None,
    judge_address: str = "",
    judge_model: str = "",
    preferences: str | Path | None = None,
    ledger: str | Path | None = None,
    registry: str = "",
    missing: Literal["refuse", "wrong", "skip"] = "refuse",
    score_range: tuple[float, float] = (0.0, 1.0),
    problems: int | None = None,
    columns: Mapping[str, str] | None = None,
    samples: int = 1,
    temperature: float | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
    model: str = "",
    mlflow: bool = False,
) -> JudgeOutcome:
    """Decide whether a candidate is better than a champion, and whether every guard holds, as `rewardflow judge` does.

    Args:
        champion, candidate: files of answers, logs, model folders, registered versions, hub ids or addresses.
        data: problems with their answers; None: those that the sources name.
        verifier: `exact_answer`, `whole_text` or a reward that verifies; "": the scores of the sources.
        metric: primary metric; "": the preferences, strict_accuracy, or the only score of the sources.
        also: other metrics that are shown.
        guards: metric -> largest allowed fall, in [0, 1].
        settings: settings of the gate, such as `{"length_margin": 0.1}`.
        judge_address, judge_model: server that compares the answers in both orders, and its model.
        preferences: file of people's choices.
        ledger: JSON file that counts looks; None: this comparison is the only look.
        registry: registered model on which looks are counted, instead of a file.
        missing: treatment of a problem to which a source has no answer.
        score_range: smallest and largest score of the sources.
        problems: number of problems, evenly spaced; None: all.
        columns: field -> column of `data`.
        samples, temperature, max_tokens, seed: how a model answers; the temperature is 0, or 1 with several samples.
        model: registered model that a version's number or alias alone means; "": the only one.
        mlflow: record the result as an MLflow run.

    Raises:
        UserError: a source, the problems or a setting is wrong. No look is spent then.

    Example:
        >>> import rewardflow
        >>> outcome = rewardflow.judge("a.jsonl", "b.jsonl", data="problems.jsonl")  # doctest: +SKIP
        >>> outcome.decision, outcome.difference.mean  # doctest: +SKIP
        ('better', 0.174)
    """
    from flows.judging import gate_settings, run_comparison
    from models.base.errors import UserError
    from tasks.judging.answers import Drawing
    from tasks.judging.compare import Comparison
    from tasks.judging.preferences import JudgeServer
    from tasks.judging.verdict import JudgeSettings

    if judge_model and not judge_address:
        raise UserError("judge_model: it names the model of a server; judge_address names the server")
    for name, margin in (guards or {}).items():
        if not 0 <= margin <= 1:
            raise UserError(f"guards: the margin {margin!r} of {name} must be a number between 0 and 1")
    if not score_range[0] < score_range[1]:
        raise UserError(f"score_range: {score_range!r} is not (low, high) with low below high")
    wanted = Comparison(
        champion=str(champion),
        candidate=str(candidate),
        data=None if data is None else Path(data),
        columns=dict(columns or {}),
        limit=problems,
        verifier=verifier,
        judge=JudgeServer(judge_address, judge_model) if judge_address else None,
        preferences=None if preferences is None else Path(preferences),
        missing=missing,
        score_range=score_range,
        settings=JudgeSettings(
            metric=metric, also=tuple(also), guards=dict(guards or {}), gate=gate_settings(settings or {})
        ),
        drawing=Drawing(
            samples=samples,
            temperature=float(samples > 1) if temperature is None else temperature,
            max_tokens=max_tokens,
            seed=seed,
        ),
        ledger=None if ledger is None else Path(ledger),
        registry=registry,
    )
    judgement, run = run_comparison(wanted, model, mlflow=mlflow)
    return judge_outcome(judgement, run)
