"""Put Mermaid, which draws the diagrams in the browser, into the site, if `extra.mermaid` names its file.

The theme loads Mermaid from a public host unless a script of the site has loaded it.
"""

from __future__ import annotations

import logging
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import ConfigurationError
from mkdocs.structure.files import File, Files

PLACE = "assets/mermaid.min.js"
LOG = logging.getLogger("mkdocs.hooks.local_mermaid")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the script to the site and to every page. Raises ConfigurationError if the file does not exist."""
    name = config.extra.get("mermaid")
    if not name:
        LOG.info("MERMAID_JS is not set: browsers load Mermaid from a public host on pages with a diagram")
        return files
    script = Path(name).resolve()
    if not script.is_file():
        raise ConfigurationError(f"MERMAID_JS: {script} does not exist; name the file mermaid.min.js, or unset it")
    files.append(File.generated(config, PLACE, abs_src_path=str(script)))
    config.extra_javascript.append(PLACE)
    return files
