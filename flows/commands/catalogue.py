"""What there is to train with."""

from __future__ import annotations

from typing import Annotated

import typer


def methods(
    markdown: Annotated[bool, typer.Option("--markdown", help="As the page docs/methods.md.")] = False,
) -> None:
    """List the recipes with the slots that they use and the papers that they come from.

    Example: `rewardflow methods`
    """
    from models.recipe.methods import as_markdown, as_text
    from models.recipe.methods import methods as found

    print(as_markdown(found()) if markdown else as_text(found()), end="" if markdown else "\n")


COMMANDS = (methods,)
