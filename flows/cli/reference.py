"""The command `rewardflow reference`."""

from __future__ import annotations

import typer

PANEL = "Methods"


def reference(context: typer.Context) -> None:
    """Print the page docs/commands.md: every command with its options, environment variables, tags of runs.

    Example: `rewardflow reference > docs/commands.md`
    """
    from flows.reference import as_markdown

    print(as_markdown(context.find_root().command), end="")
