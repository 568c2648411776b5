"""Recognition of plain Python code: code that reaches neither the interpreter's internals nor a module's.

A program that is timed or counted in its own process could switch the counting off, and tests that a model wrote could
forge the verdict of the judge that they run in. Both need `sys`, a frame, or a name with underscores. Code that uses
none of these is plain. The sandbox also holds code that is not plain, but its counts and verdicts are not trusted.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

LONGEST = 20_000
"""Length in characters beyond which code is not examined, and so not plain."""
_MODULES: dict[str, frozenset[str]] = {
    "math": frozenset(),
    "cmath": frozenset(),
    "itertools": frozenset(),
    "typing": frozenset(
        {"Any", "Callable", "Dict", "Iterable", "List", "Optional", "Sequence", "Set", "Tuple", "Union"}
    ),
    "collections": frozenset({"Counter", "OrderedDict", "defaultdict", "deque"}),
    "functools": frozenset({"cache", "lru_cache", "reduce"}),
    "heapq": frozenset({"heapify", "heappop", "heappush", "nlargest", "nsmallest"}),
    "bisect": frozenset({"bisect", "bisect_left", "bisect_right", "insort"}),
}
"""Modules that may be imported, and names that may be taken from them; none named: all, as they contain no module."""
_NAMES = frozenset(
    "breakpoint compile delattr dir eval exec exit getattr globals hasattr help input locals memoryview open quit "
    "setattr vars".split()
)
"""Built-in names that reach other objects through a text."""
_FRAMES = ("ag_", "co_", "cr_", "f_", "gi_", "tb_")
"""Prefixes of attributes that lead to frames and code."""
_TEMPLATES = ("format", "format_map")
"""Methods of a text whose placeholders may name attributes of their arguments, `{0.__self__}`, which no node shows."""
_REACHING_PLACE = re.compile(r"\{[^{}:!]*[.\[]")


def is_plain(source: str) -> bool:
    """Return whether `source` is Python without constructs by which it could reach the interpreter."""
    if len(source) > LONGEST:
        return False
    try:
        return all(map(_harmless, _nodes(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _nodes(source: str) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(source))


def _harmless(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return all(not _MODULES.get(name.name, {"none"}) for name in names)
        case ast.ImportFrom(module=module, names=names, level=0):
            known = _MODULES.get(module or "")
            return known is not None and all(
                name.name in known or (not known and name.name != "*" and not name.name.startswith("_"))
                for name in names
            )
        case ast.ImportFrom():
            return False
        case ast.Name(id=name):
            return name not in _NAMES and not name.startswith("__")
        case ast.Attribute(value=ast.Constant(value=str(text)), attr="format"):
            return _REACHING_PLACE.search(text) is None
        case ast.Attribute(attr=name):
            return name not in _TEMPLATES and not name.startswith(("_", *_FRAMES))
        case ast.MatchClass(kwd_attrs=names):
            return not any(name in _TEMPLATES or name.startswith(("_", *_FRAMES)) for name in names)
    return True
