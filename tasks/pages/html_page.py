"""The common parts of HTML pages: one self-contained file, in one style.

MLflow shows an HTML artifact alone in a sandbox: separate style sheets, images and scripts are not loaded. So the style
is embedded in the page, long parts are folded by the browser itself, and scripts are not used.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #1f2933; margin: 2rem auto; max-width: 72rem; padding: 0 1.5rem; }
h1 { font-size: 1.6rem; margin: 0; } h2 { font-size: 1.15rem; margin: 2.4rem 0 .4rem; }
.lead { color: #52606d; margin: .3rem 0 1.6rem; }
table { border-collapse: collapse; width: 100%; margin: .4rem 0 1rem; }
th { text-align: left; font-weight: 600; color: #52606d; border-bottom: 2px solid #cbd2d9; }
th, td { padding: .35rem .8rem .35rem 0; vertical-align: top; } td { border-bottom: 1px solid #e4e7eb; }
td.number, th.number { text-align: right; }
.held { color: #2b8a3e; } .failed { color: #c92a2a; font-weight: 600; } .warned { color: #d9480f; font-weight: 600; }
code, pre { font: 13px/1.45 ui-monospace, monospace; background: #f5f7fa; border-radius: 4px; padding: .1rem .3rem; }
pre { padding: .4rem .6rem; margin: .2rem 0; white-space: pre-wrap; overflow-wrap: anywhere; }
summary { cursor: pointer; color: #52606d; } .why { color: #52606d; }
a { color: #0b7285; text-decoration: none; } img { border: 1px solid #e4e7eb; margin: .15rem; }
"""


def whole_page(title: str, lead: str, body: str) -> str:
    """Render a page.

    Args:
        title: also used as its heading; plain text.
        lead: summary in one sentence; plain text.
        body: HTML.
    """
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f"<title>{escaped(title)}</title><style>{_STYLE}</style></head><body>"
        f'<h1>{escaped(title)}</h1><p class="lead">{escaped(lead)}</p>{body}</body></html>\n'
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Render a table of plain texts; empty without rows."""
    if not rows:
        return ""
    titles = "".join(f"<th>{escaped(entry)}</th>" for entry in head)
    lines = "".join(f"<tr>{''.join(f'<td>{escaped(entry)}</td>' for entry in row)}</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{lines}</table>"


def escaped(text: str) -> str:
    """Escape text for HTML; control characters are shown as escapes."""
    shown = "".join(c if c in "\n\t" or c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return html.escape(shown)
