"""No two files of the three layers import each other, not even through other files or inside a function."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from running import ROOT

LAYERS = ("flows", "tasks", "models")

FOR_TYPES_ONLY = [
    [
        "models.recipes.combinations",
        "models.recipes.frozen_roles",
        "models.recipes.named_models",
        "models.recipes.schema",
    ]
]
"""Cycles that exist only for a type checker, because an annotation names a class of the other file. Add no others."""

Graph = dict[str, set[str]]


def modules(folder: Path) -> dict[str, Path]:
    """Return the file of every module of the layers below `folder`, by dotted name."""
    files = (file for layer in LAYERS for file in sorted((folder / layer).rglob("*.py")))
    return {".".join(file.relative_to(folder).with_suffix("").parts).removesuffix(".__init__"): file for file in files}


def imports(node: ast.AST, package: str, types: bool) -> Iterator[str]:
    """Yield the dotted names imported below `node`, at any depth; with `types`, also those only for type checkers."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            above = ".".join(package.split(".")[: len(package.split(".")) - child.level + 1]) if child.level else ""
            source = ".".join(part for part in (above, child.module) if part)
            yield from (name for alias in child.names for name in (source, f"{source}.{alias.name}"))
        elif isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test) and not types:
            for other in child.orelse:
                yield from imports(ast.Module([other], []), package, types)
        else:
            yield from imports(child, package, types)


def graph_of(folder: Path, types: bool = False) -> Graph:
    """Return, for each module of the layers below `folder`, the modules that it imports."""
    known = modules(folder)
    graph: Graph = {}
    for name, file in known.items():
        package = name if file.name == "__init__.py" else name.rpartition(".")[0]
        named = imports(ast.parse(file.read_text()), package, types)
        # In a module of `models.engines`, `from models.engines import restart` imports a module, not the package.
        graph[name] = {other for other in named if other in known and other != package}
    return graph


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Return the cycles: each is a list of modules that import each other, directly or through others."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            new = graph[ahead.pop()] - seen
            seen |= new
            ahead.extend(new)
        return seen

    reach = {name: reached(name) for name in graph}
    within = {tuple(sorted(other for other in reach[name] if name in reach[other])) for name in graph}
    return sorted(list(circle) for circle in within if circle)


def test_no_file_imports_one_that_imports_it() -> None:
    assert circles(graph_of(ROOT)) == []


def test_no_new_circle_is_there_for_types() -> None:
    assert circles(graph_of(ROOT, types=True)) == FOR_TYPES_ONLY


@pytest.fixture
def house(tmp_path: Path) -> Path:
    """Write three layers without a cycle, and return their folder."""
    for file, text in {
        "models/__init__.py": "",
        "models/learn.py": "import torch\n",
        "models/deep/__init__.py": "",
        "models/deep/down.py": "from models import learn\n",
        "tasks/runner/step.py": "from models.learn import fit\nfrom models.deep.down import read\n",
        "flows/train.py": "import tasks.runner.step\n",
    }.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)
    return tmp_path


def test_a_house_without_circles_has_none(house: Path) -> None:
    assert circles(graph_of(house, types=True)) == []


@pytest.mark.parametrize(
    "line",
    [
        "from models.deep.down import read",
        "from models.deep import down",
        "import models.deep.down as below",
        "from .deep import down",
        "def fit():\n    from models.deep.down import read",
        "class Fit:\n    def fit(self):\n        if True:\n            import models.deep.down",
        "try:\n    from .deep.down import read\nexcept ImportError:\n    pass",
        "if TYPE_CHECKING:\n    pass\nelse:\n    from models.deep import down",
    ],
)
def test_every_way_back_is_noticed(house: Path, line: str) -> None:
    (house / "models/learn.py").write_text(f"{line}\n")
    assert circles(graph_of(house)) == [["models.deep.down", "models.learn"]]


def test_a_way_back_over_other_files_is_noticed_as_a_whole(house: Path) -> None:
    (house / "models/learn.py").write_text("def fit():\n    import flows.train\n")
    assert circles(graph_of(house)) == [["flows.train", "models.deep.down", "models.learn", "tasks.runner.step"]]


def test_an_import_for_types_is_told_apart(house: Path) -> None:
    (house / "models/learn.py").write_text("if TYPE_CHECKING:\n    from models.deep.down import read\n")
    assert circles(graph_of(house)) == []
    assert circles(graph_of(house, types=True)) == [["models.deep.down", "models.learn"]]


def test_a_file_that_imports_itself_is_a_circle_of_its_own(house: Path) -> None:
    (house / "models/deep/down.py").write_text("def read():\n    from models.deep import down\n")
    assert circles(graph_of(house)) == [["models.deep.down"]]
