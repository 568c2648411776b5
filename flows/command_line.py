"""The command line: `rewardflow COMMAND`. The commands are the files of flows/cli/, which this file collects."""

from __future__ import annotations

import importlib
import pkgutil
import signal
import sys
from types import ModuleType
from typing import Annotated

import typer

from flows import cli
from flows.runtime import collection, console
from flows.runtime.environment import state_folder
from models.base.disk import is_full, no_space, out_of_space
from models.base.errors import UserError
from tasks.runner import interrupt

app = typer.Typer(
    name="rewardflow",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    help="A post-training factory: data, reward model, reinforcement learning, evaluation, promotion.",
)

_debug = False

INTERRUPTED = 130
"""Exit status of typer after Ctrl-C."""

PANELS = ("Train", "Measure", "Runs", "Registry", "Methods", "Data", "Operations")
"""Headings of `rewardflow --help`, in their order."""


def _add_commands(program: typer.Typer, package: ModuleType) -> None:
    """Add the commands of a package: each file's function of the same name, and each package as a group of commands."""
    entries = [
        (importlib.import_module(f"{package.__name__}.{entry.name}"), entry.name, entry.ispkg)
        for entry in pkgutil.iter_modules(package.__path__)
    ]
    for module, name, is_group in sorted(
        entries, key=lambda entry: PANELS.index(getattr(entry[0], "PANEL", PANELS[0]))
    ):
        if is_group:
            group = typer.Typer(no_args_is_help=True, help=module.__doc__)
            _add_commands(group, module)
            program.add_typer(group, name=name, rich_help_panel=module.PANEL)
        else:
            command = vars(module).get(name) or vars(module)[f"{name}_"]  # list_: `list` is a name of Python's
            program.command(name.replace("_", "-"), rich_help_panel=getattr(module, "PANEL", None))(command)


_add_commands(app, cli)


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
    signal_number = interrupt.received_signal()
    if signal_number is None and (isinstance(error, KeyboardInterrupt) or getattr(error, "code", 0) == INTERRUPTED):
        signal_number = signal.SIGINT  # another handler was installed
    if signal_number is not None:  # whatever was raised over it
        return interrupt.status(signal_number), f"\n{interrupt.WORDS[signal_number]}"
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
