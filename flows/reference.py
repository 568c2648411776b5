"""The page docs/commands.md: commands, environment variables and tags, generated from the program itself."""

from __future__ import annotations

import ast
import inspect
import typing
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import ModuleType, UnionType
from typing import Any

from models.base.errors import UserError
from tasks.tracking import tags

VARIABLES: Mapping[str, str] = {
    "REWARDFLOW_HOME": "state folder: runs, checkpoints, results; default: `.rewardflow` in the working directory",
    "REWARDFLOW_NOTIFY_URL": "addresses that receive messages by POST, separated by spaces "
    "([operations.md](operations.md#notifications))",
    "REWARDFLOW_WAIT": "longest wait of a run for earlier runs in the same state folder, seconds; default: half a day",
    "REWARDFLOW_MIRRORS": "mirrors next to MLflow, separated by spaces: tensorboard, wandb, trackio "
    "([runs.md](runs.md#mirrors-tensorboard-weights--biases-trackio))",
    "REWARDFLOW_LM_EVAL": "interpreter that has lm-evaluation-harness; default: harness/lm-eval in the state folder",
    "REWARDFLOW_INSPECT": "interpreter that has inspect-ai; default: harness/inspect in the state folder",
    "REWARDFLOW_TEACHER_KEY": "key for the server of a teacher that a recipe names by its address",
    "REWARDFLOW_JUDGE_KEY": "key for the server of a judge that a recipe names by its address",
    "MLFLOW_TRACKING_URI": "MLflow's server; default: a database in the state folder",
    "MLFLOW_TRACKING_USERNAME": "user name on MLflow's server; `MLFLOW_TRACKING_PASSWORD` is the password",
    "PREFECT_API_URL": "Prefect's server, with `/api` at the end; default: a server that the command starts",
    "PREFECT_API_AUTH_STRING": "user name and password on Prefect's server, `user:password`",
    "PREFECT_HOME": "folder of Prefect's files; default: `prefect/` in the state folder",
    "DATA_REMOTE": "`s3://bucket/prefix` that versions of the data are pushed to; default: DVC's default remote",
    "AWS_ENDPOINT_URL": "S3 server other than Amazon's; boto3 reads the keys in its usual way",
    "AWS_REGION": "region of the S3 server",
    "VLLM_API_KEY": "key that clients of `rewardflow serve` must send",
    "OMP_NUM_THREADS": "threads per process; default: 1 for a policy of less than a million weights, else one per core",
}
"""Environment variables that a user sets, and their meaning."""


def as_markdown(program: Any) -> str:
    """Return the page docs/commands.md as Markdown.

    Args:
        program: the command line, as typer makes it of its app.
    """
    lines = [
        "# Commands",
        "",
        "Made from the program by `rewardflow reference > docs/commands.md`. [tutorial.md](tutorial.md) introduces the",
        "commands in the order of a first day's use.",
        *_commands(program, "rewardflow"),
        "",
        "## Environment variables",
        "",
        "| variable | meaning |",
        "| --- | --- |",
        *(f"| `{name}` | {meaning} |" for name, meaning in VARIABLES.items()),
        "",
        "## Tags",
        "",
        "Tags that Rewardflow sets on runs, versions and registered models in MLflow. A version has ten facts as tags.",
        "The others are in `version.json` of its model.",
        "",
        "| tag or fact | meaning |",
        "| --- | --- |",
        *(f"| `{value}` | {meaning} |" for value, meaning in documented(tags)),
    ]
    return "\n".join(lines) + "\n"


def _commands(command: Any, name: str) -> Iterator[str]:
    """Yield the lines of a section for each command at or below `command`."""
    inner: Mapping[str, Any] = getattr(command, "commands", {})  # only a group has commands
    for word, below in inner.items():
        yield from _commands(below, f"{name} {word}")
    if inner:
        return
    needed = [it for it in command.params if it.param_type_name == "argument" or it.required]
    more = ["[OPTIONS]"] if len(needed) < len(command.params) else []
    last = [it for it in needed if it.nargs == -1 and not it.required]  # after `--`
    usage = " ".join([name, *(_usage(it) for it in needed if it not in last), *more, *map(_usage, last)])
    yield from ("", f"## {name}", "", f"    {usage}", "", inspect.cleandoc(command.help))
    if command.params:
        yield from ("", "| argument or option | kind | default | meaning |", "| --- | --- | --- | --- |")
        yield from (_row(it) for it in command.params)


def _usage(parameter: Any) -> str:
    """Return an argument or a required option, as a user types it."""
    word = (parameter.metavar or parameter.name.upper()).strip("[].") + ("..." if parameter.nargs == -1 else "")
    if parameter.param_type_name == "option":
        return f"{parameter.opts[0]} {word}"
    return word if parameter.required else f"[{word}]"


def _row(parameter: Any) -> str:
    names = _usage(parameter) if parameter.param_type_name == "argument" else ", ".join(parameter.opts)
    if names.startswith("-") and parameter.metavar:
        names += f" {parameter.metavar}"
    kind = "" if getattr(parameter, "is_flag", False) else _kind(parameter.type_descriptor.annotation)
    shown = parameter.default not in (None, "", False)
    default = "required" if parameter.required else f"`{parameter.default}`" if shown else ""
    cells = (f"`{names}`", kind, default, parameter.help or "")
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _kind(hint: Any) -> str:
    """Return the name of a type for the reader of the page."""
    inner = [it for it in typing.get_args(hint) if it is not type(None)]
    if typing.get_origin(hint) in (typing.Union, UnionType):
        return _kind(inner[0])
    if typing.get_origin(hint) is list:
        return f"{_kind(inner[0])}, several"
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(map(str, inner))
    return {str: "text", int: "whole number", float: "number", Path: "path", bool: "yes or no"}[hint]


def documented(module: ModuleType) -> Iterator[tuple[str, str]]:
    """Yield the value and the documentation of each text constant of a module that has a documentation string below it.

    Raises:
        UserError: the source of the module is not installed.
    """
    try:
        body = ast.parse(inspect.getsource(module)).body
    except OSError as error:
        raise UserError(f"{module.__name__}: its source is not installed: {error}") from None
    for constant, text in pairwise(body):
        target = constant.targets[0] if isinstance(constant, ast.Assign) else None
        if isinstance(target, ast.Name) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            value = getattr(module, target.id)
            if isinstance(value, str):
                yield value, " ".join(str(text.value.value).split())
