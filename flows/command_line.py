"""The command line: `rewardflow COMMAND`. What each command does stands in flows/commands/; here is what they share."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from flows.commands import catalogue, operation, registry, review, training
from flows.environment import prepare_environment
from models.errors import UserError

app = typer.Typer(
    name="rewardflow",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="A post-training factory: data, reward model, reinforcement learning, evaluation, promotion.",
)

_debug = False

INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""

GROUPS = (training, catalogue, review, registry, operation)
"""Files of commands, in the order of `rewardflow --help`; a new command is a function in one of them."""

for _group in GROUPS:
    for _command in _group.COMMANDS:
        app.command()(_command)


@app.callback()
def options(debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False) -> None:
    """A post-training factory: data, reward model, reinforcement learning, evaluation, promotion."""
    global _debug
    _debug = debug


def main() -> None:
    """Entry point: a UserError becomes one line and exit status 1; with --debug everything shows its traceback."""
    prepare_environment()
    try:
        app()
    except SystemExit as end:
        if end.code == INTERRUPTED:
            print("\ninterrupted; the same command goes on from the last checkpoint", file=sys.stderr)
        raise
    except Exception as error:
        if _debug or "--debug" in sys.argv:
            raise
        line = str(error) if isinstance(error, UserError) else f"{type(error).__name__}: {' '.join(str(error).split())}"
        print(
            f"error: {line}" + ("" if isinstance(error, UserError) else "  (--debug shows the traceback)"),
            file=sys.stderr,
        )
        sys.exit(1)


if __name__ == "__main__":
    main()
