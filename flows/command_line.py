"""The command line: `rewardflow COMMAND`. The commands are in flows/commands/; this file has what they share."""

from __future__ import annotations

import signal
import sys
from typing import Annotated

import typer

from flows.commands import (
    approval,
    base,
    catalogue,
    data,
    measuring,
    operation,
    people,
    registry,
    review,
    services,
    serving,
    storage,
    training,
)
from flows.runtime import collection, console
from flows.runtime.environment import state_folder
from models.base.disk import is_full, no_space, out_of_space
from models.base.errors import UserError
from tasks.runner import interrupt

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
"""Exit status of typer after Ctrl-C."""

GROUPS = (training, measuring, catalogue, review, registry, approval, serving, operation, storage)
"""Files of commands, in the order of `rewardflow --help`. A new command is a function in one of them."""

for _group in GROUPS:
    for _command in _group.COMMANDS:
        app.command()(_command)


app.add_typer(base.app, name="base")
app.add_typer(data.app, name="data")
app.add_typer(people.app, name="review")
app.add_typer(services.app, name="services")


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"rewardflow {version('rewardflow')}")
        raise typer.Exit


@app.callback()
def options(
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A post-training factory: data, reward model, reinforcement learning, evaluation, promotion."""
    global _debug
    _debug = debug


def main() -> None:
    """Run the command line. A UserError gives one line and exit status 1; Ctrl-C and SIGTERM one line and their status.

    With --debug, every error shows its traceback.
    """
    collection.postpone()
    interrupt.install()
    try:
        app()
    except BaseException as error:
        interrupt.work_is_over()
        if _debug or "--debug" in sys.argv:
            raise
        code, line = ending(error)
        if line:
            print(line, file=sys.stderr)
        sys.exit(code)
    finally:
        collection.begin()


def ending(error: BaseException) -> tuple[int, str]:
    """Return the exit status for `error` and the line to print; "" if the error was reported before."""
    asked = interrupt.asked()
    if asked is None and (isinstance(error, KeyboardInterrupt) or getattr(error, "code", 0) == INTERRUPTED):
        asked = signal.SIGINT  # another handler was installed
    if asked is not None:  # whatever was raised over it
        return interrupt.status(asked), f"\n{interrupt.WORDS[asked]}"
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else int(error.code is not None), ""
    if not isinstance(error, UserError) and (out_of_space(error) or is_full(state_folder())):
        error = no_space(state_folder())  # in whichever words the server reported it
    error = console.without_prefect(error) or error
    if isinstance(error, UserError):
        return 1, f"error: {error}"
    return 1, f"error: {type(error).__name__}: {' '.join(str(error).split())}  (--debug shows the traceback)"


if __name__ == "__main__":
    main()
