"""What reaches a person's terminal of what Prefect and other libraries log.

Prefect tells of every run where it begins and in which state it ends; its UI keeps all of that. At the terminal stand
only the lines of the steps themselves, warnings, and errors that nobody else tells of.
"""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

from models.disk import SAYINGS
from models.errors import UserError
from tasks.host.plain_address import shown
from tasks.runner import interrupt

_CHATTY = ("torch._library.triton", "great_expectations", "EventsWorker", "APILogWorker")


class News(logging.Filter):
    """For the handler that writes to the terminal."""

    def __init__(self, told_at_the_end: bool) -> None:
        """Say who else tells of errors.

        Args:
            told_at_the_end: whoever called the flow prints its error: the command line.
        """
        super().__init__()
        import prefect

        self._prefect = str(Path(prefect.__file__).parent)
        self.told_at_the_end = told_at_the_end

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is worth a line."""
        if record.name.startswith("great_expectations"):
            return record.levelno >= logging.ERROR
        if not record.pathname.startswith(self._prefect):
            return True
        if record.levelno < logging.WARNING or str(record.msg).startswith("Finished in state"):
            return False
        if interrupt.asked() is not None:  # whatever fails now fails because of that
            return False
        if self.told_at_the_end and any(saying in record.getMessage() for saying in SAYINGS):
            return False
        of_user = record.exc_info is not None and isinstance(record.exc_info[1], UserError)
        return not (of_user or getattr(record, "user_error", False)) or not self.told_at_the_end


def quiet(told_at_the_end: bool = False) -> None:
    """Keep from the terminal what says nothing to a person, and the traceback of a UserError from every log.

    Args:
        told_at_the_end: whoever called the flow prints its error. Once said, it holds for this process.
    """
    from prefect.logging.handlers import PrefectConsoleHandler

    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrefectConsoleHandler):
            present = next((known for known in handler.filters if isinstance(known, News)), None)
            if present is None:
                handler.addFilter(News(told_at_the_end))
            else:
                present.told_at_the_end |= told_at_the_end
    _without_traceback()
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    for chatty in _CHATTY:
        logging.getLogger(chatty).setLevel(logging.ERROR)


def quiet_transformers() -> None:
    """Without the progress bars that transformers draws while it loads weights."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()


def without_prefect(error: BaseException | None) -> UserError | None:
    """What is said of an error that comes of a Prefect server that does not answer; None of any other."""
    httpx = sys.modules.get("httpx")  # nobody else here speaks by it, and it may not have been loaded
    if httpx is None or not isinstance(error, httpx.TransportError):
        return None
    from prefect.settings import PREFECT_API_URL

    reason = " ".join(str(error).split()) or type(error).__name__
    server = shown(str(PREFECT_API_URL.value()))
    return UserError(
        f"the Prefect server {server} does not answer ({reason}); nothing is lost: when it is back, "
        "the same command goes on from the last checkpoint"
    )


class _WithoutTraceback(logging.Filter):
    """A UserError says all in one line; Prefect adds a traceback to any error that it logs."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        error = without_prefect(error) or error
        if record.exc_info and isinstance(error, UserError):
            record.msg, record.args = "stopped: %s", (str(error),)
            record.exc_info = record.exc_text = None
            record.user_error = True
        return True


def _without_traceback() -> None:
    for name in ("prefect.flow_runs", "prefect.task_runs", "prefect.engine"):
        logger = logging.getLogger(name)
        if not any(isinstance(present, _WithoutTraceback) for present in logger.filters):
            logger.addFilter(_WithoutTraceback())
