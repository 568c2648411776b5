"""The command `rewardflow methods`."""

from __future__ import annotations

from typing import Annotated

import typer

PANEL = "Methods"


def methods(
    markdown: Annotated[
        bool,
        typer.Option(
            "--markdown",
            help="Print the page docs/methods.md; with --papers docs/papers.md, with --taxonomies docs/taxonomies.md.",
        ),
    ] = False,
    family: Annotated[str, typer.Option(help="Only recipes of this family, such as agents. Default: all.")] = "",
    papers: Annotated[
        bool, typer.Option("--papers", help="List the source papers with their places and grades instead.")
    ] = False,
    only_open: Annotated[
        bool, typer.Option("--open", help="With --papers: only papers that have no place yet.")
    ] = False,
    taxonomies: Annotated[
        bool, typer.Option("--taxonomies", help="List the axes of surveys, with the part for each leaf, instead.")
    ] = False,
) -> None:
    """List the recipes with the slots that they use, and the evaluation strategies, with their papers.

    Example: `rewardflow methods --family agents`
    """
    from models.base.errors import UserError

    if papers + taxonomies + bool(family) > 1:
        raise UserError("--papers, --taxonomies and --family exclude each other; give one of them")
    if only_open and not papers:
        raise UserError("--open restricts the register of papers; add --papers")
    if only_open and markdown:
        raise UserError("--open and --markdown exclude each other; give one of them")
    if papers:
        from models.recipes import papers as register

        listed = register.registered_papers()
        print(register.as_markdown(listed) if markdown else register.as_text(listed, only_open) + "\n", end="")
    elif taxonomies:
        from models.recipes import taxonomies as surveys

        axes = surveys.registered_taxonomies()
        print(surveys.as_markdown(axes) if markdown else surveys.as_text(axes) + "\n", end="")
    else:
        from models.recipes.methods import as_markdown, as_text, every_method, of_family

        chosen = of_family(every_method(), family) if family else every_method()
        print(as_markdown(chosen) if markdown else as_text(chosen), end="" if markdown else "\n")
