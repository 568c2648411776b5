"""The one exception for what a user can mend: its text is a single clear line, shown without a traceback."""

from __future__ import annotations


class UserError(Exception):
    """Bad input or a missing condition. The message names the file, row, field or key, and what to do."""
