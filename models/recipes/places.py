"""Places that the tables of papers refer to, by kind and name.

    recipe       grpo, real/smollm2_hh_dpo                 a file below recipes/
    strategy     vote                                      a part of this slot; the same for every other slot
    reward       exact_answer                              a part of the slot `rewards`
    measure      models/evaluation/aggregate.py            a file
    benchmark    benchmarks/speed/episode_pace.py          a file
    page         docs/scale.md#guarantees                  a page of the guide, or a heading in it
    command      compare, data add                         a command of `rewardflow`

Nothing large is imported: parts are looked up by their files and not by the registry.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from models.base.package_files import CODE, PROJECT
from models.recipes.find import PACKAGED, REAL

_FOLDERS: Mapping[str, str] = {
    "rollouts": "models/parts/rollouts",
    "reward": "models/parts/rewards",
    "select": "models/parts/select",
    "advantage": "models/parts/advantage",
    "objective": "models/parts/objective",
    "reference": "models/parts/reference",
    "labels": "models/parts/labels",
    "feedback": "models/parts/feedback",
    "environment": "models/agents/environments",
    "tool": "models/agents/tools",
    "strategy": "models/agents/strategies",
}
"""Folders of the parts, by kind: the name of the slot, `reward` for the slot `rewards`."""
PART_KINDS = tuple(_FOLDERS)
FILE_KINDS = ("measure", "benchmark")
KINDS = ("recipe", *PART_KINDS, *FILE_KINDS, "page", "command")


def file_of(kind: str, name: str) -> str | None:
    """Return the file of a place, relative to the repository, with the anchor of a page; None if there is none.

    Args:
        kind: one of `KINDS`.
        name: name or path, as in the description of this module.
    """
    path, _, anchor = name.partition("#")
    match kind:
        case "recipe":
            folder, _, stem = name.rpartition("/")
            files = sorted(file for file in PACKAGED.rglob("*.yaml") if file.stem == stem)
            chosen = (file for file in files if folder == (REAL if file.parent.name == REAL else ""))
            return next((file.relative_to(PROJECT).as_posix() for file in chosen), None)
        case "page":
            page = CODE / path
            if not page.is_file() or page.suffix != ".md" or (anchor and anchor not in anchors(page.read_text())):
                return None
            return name
        case "command":
            return _existing(f"flows/cli/{name.replace('-', '_').replace(' ', '/')}.py")
        case "measure" | "benchmark":
            return _existing(name)
    for file in sorted((CODE / _FOLDERS[kind]).rglob("*.py")):
        if f'@part("{name}")' in file.read_text():
            return file.relative_to(CODE).as_posix()
    return None


def _existing(path: str) -> str | None:
    return path if (CODE / path).is_file() else None


def anchors(markdown: str) -> set[str]:
    """Return the anchors of the headings of a page, formed as on GitHub."""
    headings = re.findall(r"^#+ (.+)$", markdown, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def linked(kind: str, name: str) -> str:
    """Return a place as Markdown, with a link from a page of docs/ to its file if there is one."""
    file = file_of(kind, name)
    if file is None:
        return f"{kind}: {name}"
    target = file.removeprefix("docs/") if file.startswith("docs/") else f"../{file}"
    return f"{kind}: [{name}]({target})"
