"""Show docstrings as they are written: `[votes][texts]` in them is a shape, not a link.

mkdocstrings loads this file as an extension of griffe, which reads the sources without importing them.
"""

from __future__ import annotations

from typing import Any

import griffe


class Shapes(griffe.Extension):
    """Escape square brackets that follow each other, outside code."""

    def on_instance(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of a module, class, function or attribute."""
        if obj.docstring is not None:
            pieces = obj.docstring.value.split("`")
            pieces[::2] = [text.replace("][", "]\\[") for text in pieces[::2]]
            obj.docstring.value = "`".join(pieces)
