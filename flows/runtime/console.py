"""Filters for the log records of Prefect and other libraries that reach the terminal.

Prefect logs the start and the final state of every run; its UI keeps all of these. The terminal shows only the lines of
the steps themselves, warnings, and errors that are not reported elsewhere.
"""

from __future__ import annotations

import logging
import sys
import warnings
from pathlib import Path

from models.base.disk import ERROR_TEXTS
from models.base.errors import UserError
from tasks.host.plain_address import shown
from tasks.runner import interrupt

_CHATTY = ("torch._library.triton", "great_expectations", "EventsWorker", "APILogWorker")


class News(logging.Filter):
    """Log filter of Prefect's terminal handler, which drops routine records and errors that are reported elsewhere."""

    def __init__(self, caller_prints_error: bool) -> None:
        """Create the filter.

        Args:
            caller_prints_error: whether the caller of the flow, the command line, prints its error.
        """
        super().__init__()
        import prefect

        self._prefect = str(Path(prefect.__file__).parent)
        self.caller_prints_error = caller_prints_error

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a record is shown."""
        if record.name.startswith("great_expectations"):
            return record.levelno >= logging.ERROR
        if not record.pathname.startswith(self._prefect):
            return True
        if record.levelno < logging.WARNING or str(record.msg).startswith("Finished in state"):
            return False
        if interrupt.received_signal() is not None:  # errors from here on are caused by the interrupt
            return False
        if self.caller_prints_error and any(text in record.getMessage() for text in ERROR_TEXTS):
            return False
        of_user = record.exc_info is not None and isinstance(record.exc_info[1], UserError)
        return not (of_user or getattr(record, "user_error", False)) or not self.caller_prints_error


def quiet(caller_prints_error: bool = False) -> None:
    """Install filters that drop routine log records from the terminal, and the traceback of a UserError from every log.

    Args:
        caller_prints_error: whether the caller of the flow prints its error. Once true, it stays true for this process.
    """
    from prefect.logging.handlers import PrefectConsoleHandler

    for handler in logging.getLogger().handlers:
        if isinstance(handler, PrefectConsoleHandler):
            news_filter = next((known for known in handler.filters if isinstance(known, News)), None)
            if news_filter is None:
                handler.addFilter(News(caller_prints_error))
            else:
                news_filter.caller_prints_error |= caller_prints_error
    _without_traceback()
    warnings.filterwarnings("ignore", category=FutureWarning)
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    for chatty in _CHATTY:
        logging.getLogger(chatty).setLevel(logging.ERROR)


def quiet_transformers() -> None:
    """Turn off the progress bars that transformers draws while it loads weights."""
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()


def without_prefect(error: BaseException | None) -> UserError | None:
    """Convert an error into a UserError if the Prefect server did not answer; None for any other error."""
    httpx = sys.modules.get("httpx")  # only Prefect uses it here, and it may not be imported
    if httpx is None or not isinstance(error, httpx.TransportError):
        return None
    from prefect.settings import PREFECT_API_URL

    reason = " ".join(str(error).split()) or type(error).__name__
    server = shown(str(PREFECT_API_URL.value()))
    return UserError(
        f"the Prefect server {server} does not answer ({reason}); nothing is lost: when it is back, "
        "the same command continues from the last checkpoint"
    )


class _WithoutTraceback(logging.Filter):
    """Filter that removes the traceback of a UserError: Prefect adds one to any error that it logs."""

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
        if not any(isinstance(existing, _WithoutTraceback) for existing in logger.filters):
            logger.addFilter(_WithoutTraceback())
