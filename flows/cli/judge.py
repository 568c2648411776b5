"""The command `rewardflow judge`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from flows.runtime.command_options import ModelOption
from models.base.errors import UserError

PANEL = "Measure"

NOT_SHOWN, REFUSED = 3, 4
"""Exit statuses: not shown to be better, with every guard passed; a guard failed."""
SOURCE = "FILE|FOLDER|ADDRESS|VERSION"


def judge(
    champion: Annotated[
        str, typer.Option("--champion", metavar=SOURCE, help="Source of the answers of the model that may be replaced.")
    ],
    candidate: Annotated[
        str, typer.Option("--candidate", metavar=SOURCE, help="Source of the answers of the model that may replace it.")
    ],
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Problems with their answers. Default: those that the sources name."),
    ] = None,
    verifier: Annotated[
        str,
        typer.Option(
            "--verifier",
            help="`exact_answer`, `whole_text`, or a reward that verifies, such as `math_verify` or "
            "`{name: unit_tests}`. Default: the scores of the sources, or exact_answer if they share none.",
        ),
    ] = "",
    judge_address: Annotated[
        str,
        typer.Option(
            "--judge",
            metavar="ADDRESS",
            help="OpenAI-compatible server that compares the answers, in both orders. Default: none.",
        ),
    ] = "",
    judge_model: Annotated[
        str,
        typer.Option("--judge-model", metavar="NAME", help="Model of --judge. Default: the first one of the server."),
    ] = "",
    judge_key_variable: Annotated[
        str, typer.Option("--judge-key-variable", help="Environment variable with the key of --judge.")
    ] = "REWARDFLOW_JUDGE_KEY",
    preferences: Annotated[
        Path | None,
        typer.Option(
            "--preferences",
            metavar="FILE",
            help="People's choices, JSON lines with `problem` and `winner`: a (champion), b (candidate) or tie. "
            "Default: none.",
        ),
    ] = None,
    metric: Annotated[
        str,
        typer.Option(
            "--metric",
            help="Primary metric. Default: the preferences, strict_accuracy, or the only score of the sources.",
        ),
    ] = "",
    also: Annotated[
        list[str] | None, typer.Option("--also", metavar="METRIC", help="Another metric to show. Repeatable.")
    ] = None,
    guards: Annotated[
        list[str] | None,
        typer.Option("--guard", metavar="METRIC=MARGIN", help="Largest allowed fall of another metric. Repeatable."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", "-s", metavar="KEY=VALUE", help="Setting of the gate, such as length_margin=0.1."),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option("--ledger", help="JSON file that counts looks. Default: the comparison is the only look."),
    ] = None,
    registry: Annotated[
        str, typer.Option("--registry", metavar="MODEL", help="Count looks in the registry, on this model.")
    ] = "",
    missing: Annotated[
        Literal["refuse", "wrong", "skip"],
        typer.Option("--missing", help="Treatment of a problem to which a source has no answer."),
    ] = "refuse",
    score_range: Annotated[
        str, typer.Option("--range", metavar="LOW:HIGH", help="Range of the sources' scores.")
    ] = "0:1",
    problems: Annotated[
        int | None, typer.Option("--problems", min=1, help="Number of problems, evenly spaced. Default: all.")
    ] = None,
    form: Annotated[str, typer.Option("--format", help="Format of --data. Default: it is recognised.")] = "",
    columns: Annotated[
        list[str] | None, typer.Option("--column", metavar="FIELD=COLUMN", help="Column of --data. Repeatable.")
    ] = None,
    samples: Annotated[int, typer.Option("--samples", min=1, help="Answers per problem that a model gives.")] = 1,
    temperature: Annotated[
        float | None,
        typer.Option("--temperature", min=0, help="Sampling temperature. Default: 0, or 1 with several samples."),
    ] = None,
    max_tokens: Annotated[
        int | None,
        typer.Option("--max-tokens", min=1, help="Longest answer of a model. Default: that of its recipe, or 512."),
    ] = None,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of a model's answers.")] = 0,
    engine: Annotated[
        Literal["auto", "vllm", "transformers"], typer.Option("--engine", help="Engine of a model that answers here.")
    ] = "auto",
    system: Annotated[
        str | None, typer.Option("--system", help="System message for a chat model. Default: that of its recipe.")
    ] = None,
    template: Annotated[
        str | None, typer.Option("--template", help="Text around every prompt, with `{prompt}`.")
    ] = None,
    key_variable: Annotated[
        str, typer.Option("--key-variable", help="Environment variable with the key of a server.")
    ] = "REWARDFLOW_JUDGE_KEY",
    model: ModelOption = "",
    save: Annotated[
        Path | None, typer.Option("--save", metavar="FOLDER", help="Folder for the answers of both sides.")
    ] = None,
    json_file: Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Write the result as JSON.")] = None,
    html_file: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the result as a page.")
    ] = None,
    mlflow: Annotated[bool, typer.Option("--mlflow", help="Record the result as an MLflow run.")] = False,
) -> None:
    """Judge any two models by the gate: is the candidate better, and does every guard hold? Nothing is trained.

    A source is a file of answers (JSON lines with `id` and `answer` or `score`), a log of lm-eval, inspect-ai, TRL,
    verl or prime-rl, a model folder, a version (NAME/VERSION, NAME@ALIAS), a hub id in the local cache, or an
    OpenAI-compatible address.

    Exit status 0: better, and every guard holds; 3: not shown to be better, and every guard holds; 4: a guard failed;
    1: an error; 2: wrong usage.

    Example: `rewardflow judge --champion a.jsonl --candidate b.jsonl --data problems.jsonl --verifier exact_answer`
    """
    from flows.judging import gate_settings, run_comparison
    from models.base.atomic_write import write_file
    from tasks.judging.answers import Drawing
    from tasks.judging.compare import Comparison
    from tasks.judging.preferences import JudgeServer
    from tasks.judging.report import as_html, as_json, as_text
    from tasks.judging.verdict import JudgeSettings

    for file in (ledger, json_file, html_file):
        if file is not None and file.is_dir():
            raise UserError(f"{file}: a folder; name a file")
    if template is not None and template.count("{prompt}") != 1:
        raise UserError("--template: write {prompt} exactly once")
    if judge_model and not judge_address:
        raise UserError("--judge-model: it names the model of a server; --judge names the server")
    wanted = Comparison(
        champion=champion,
        candidate=candidate,
        data=data,
        form=form,
        columns=dict(_pairs("--column", columns, "prompt=question")),
        limit=problems,
        verifier=verifier,
        judge=JudgeServer(judge_address, judge_model, judge_key_variable) if judge_address else None,
        preferences=preferences,
        missing=missing,
        score_range=_range(score_range),
        settings=JudgeSettings(
            metric=metric,
            also=tuple(also or ()),
            guards={name: _margin(name, value) for name, value in _pairs("--guard", guards, "f1=0.05")},
            gate=gate_settings(_texts(settings or [])),
        ),
        drawing=Drawing(
            samples=samples,
            temperature=float(samples > 1) if temperature is None else temperature,
            max_tokens=max_tokens,
            seed=seed,
            engine=engine,
            system=system,
            template=template,
            key_variable=key_variable,
        ),
        ledger=ledger,
        registry=registry,
        save=save,
    )
    judgement, run = run_comparison(wanted, model, mlflow=mlflow)
    print(as_text(judgement))
    if json_file is not None:
        write_file(json_file, as_json(judgement))
    if html_file is not None:
        write_file(html_file, as_html(judgement))
    if run:
        print(f"run         {run}")
    status = {"better": 0, "not_shown": NOT_SHOWN, "refused": REFUSED}[judgement.decision]
    if status:
        raise typer.Exit(status)


def _pairs(option: str, texts: Sequence[str] | None, example: str) -> list[tuple[str, str]]:
    return [_pair(option, text, example) for text in texts or []]


def _pair(option: str, text: str, example: str) -> tuple[str, str]:
    """Split NAME=VALUE at the last equals sign."""
    name, mark, value = text.rpartition("=")
    if not mark or not name or not value:
        raise UserError(f"{option}: {text!r} is not NAME=VALUE, such as {example}")
    return name, value


def _margin(name: str, text: str) -> float:
    try:
        margin = float(text)
    except ValueError:
        margin = -1.0
    if not 0 <= margin <= 1:
        raise UserError(f"--guard {name}: the margin {text!r} must be a number between 0 and 1")
    return margin


def _range(text: str) -> tuple[float, float]:
    low, _, high = text.partition(":")
    try:
        ends = float(low), float(high)
    except ValueError:
        ends = (0.0, 0.0)
    if not ends[0] < ends[1] or not all(abs(end) < float("inf") for end in ends):
        raise UserError(f"--range: {text!r} is not LOW:HIGH with LOW below HIGH, such as 0:5")
    return ends


def _texts(settings: Sequence[str]) -> dict[str, Any]:
    """Read KEY=VALUE settings of the gate.

    Raises:
        UserError: one is none, or its value is not YAML.
    """
    from models.datasets.strict_yaml import YamlError, parse_yaml

    values: dict[str, Any] = {}
    for text in settings:
        key, mark, value = text.partition("=")
        if not mark:
            raise UserError(f"--set: {text!r} is not KEY=VALUE, such as length_margin=0.1")
        try:
            values[key] = parse_yaml(value)
        except YamlError as error:
            raise UserError(f"--set {key}: {value!r} is not valid YAML ({error})") from None
    return values
