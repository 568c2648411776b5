"""The command `rewardflow methods`."""

from __future__ import annotations

from typing import Annotated

import typer

PANEL = "Methods"


def methods(
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the page docs/methods.md.")] = False,
    family: Annotated[str, typer.Option(help="Only recipes of this family, such as agents. Default: all.")] = "",
) -> None:
    """List the recipes with the slots that they use, and the evaluation strategies, with their papers.

    Example: `rewardflow methods --family agents`
    """
    from models.recipes.methods import as_markdown, as_text, every_method, of_family

    listed = of_family(every_method(), family) if family else every_method()
    print(as_markdown(listed) if markdown else as_text(listed), end="" if markdown else "\n")
