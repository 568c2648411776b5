"""MLflow's review queues: traces about which people answer a question, and these answers.

An answer is an assessment on a trace whose source is a person. A server with logins knows that person; a server without
logins calls everyone "default". The queues are those of MLflow (3.17, SQL store); their state is not part of an answer.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from models.base.errors import UserError, listed
from tasks.tracking import store, tags
from tasks.tracking.traces import Trace, log_traces, tracing_client

if TYPE_CHECKING:
    from mlflow.genai.label_schemas import LabelSchema

QUESTION = "preference"
"""Name of the label schema and of the assessments that answer it."""
OPTIONS = ("first", "second", "equal", "both bad")
"""The possible answers."""
_INSTRUCTION = "Which answer to the prompt is better?"
_ANONYMOUS = ("", "default")
"""Names that MLflow gives to the author of an answer on a server without logins."""


@dataclass(frozen=True)
class ReviewerAnswer:
    """A person's answer about a trace."""

    trace: str
    value: str
    """One of OPTIONS."""
    reviewer: str
    """Login of the person; "" on a server without logins."""
    at: datetime
    """Time of the last change, UTC."""
    comment: str


@dataclass(frozen=True)
class Queue:
    """A new queue."""

    id: str
    traces: tuple[str, ...]
    """Trace ids, in the order in which the traces were passed."""


def make_queue(run_id: str, name: str, reviewer: str, traces: Sequence[Trace]) -> Queue:
    """Log traces for a run and put them into a new queue of its experiment, which replaces one of the same name.

    Args:
        run_id: the run that they are linked to.
        name: name of the queue.
        reviewer: login of the reviewer; "" for any person.
        traces: the traces to review.

    Raises:
        UserError: the experiment has our question with other options.
    """
    from mlflow.genai import review_queues

    experiment = str(store.patiently(store.client().get_run, run_id).info.experiment_id)
    question = _question(experiment)
    ids = log_traces(run_id, traces)
    for existing in store.all_pages(review_queues.list_review_queues, experiment_id=experiment, max_results=100):
        if existing.name == name:  # its creator was killed before it was complete
            store.patiently(review_queues.delete_review_queue, existing.queue_id)
    users = [reviewer] if reviewer else []
    queue = store.patiently(
        review_queues.create_review_queue,
        name,
        queue_type="custom",
        users=users,
        schema_ids=[question.schema_id],
        experiment_id=experiment,
    )
    store.patiently(review_queues.add_items_to_review_queue, queue.queue_id, item_ids=ids)
    return Queue(str(queue.queue_id), tuple(ids))


def page_of_queue(run_id: str, queue: str) -> str:
    """Return the path of the page on which a queue is answered, below the server's address."""
    experiment = store.patiently(store.client().get_run, run_id).info.experiment_id
    return f"/#/experiments/{experiment}/review-queue?selectedQueueId={queue}&startReview=true"


def answers(run_id: str, traces: Collection[str]) -> list[ReviewerAnswer]:
    """Return people's answers about traces of a run: the last answer of each person about each trace.

    Assessments that do not come from a person, that were replaced by another one, or whose value is not one of OPTIONS
    are left out.
    """
    experiment = str(store.patiently(store.client().get_run, run_id).info.experiment_id)
    latest: dict[tuple[str, str], ReviewerAnswer] = {}
    for trace in store.all_pages(
        tracing_client().search_traces, locations=[experiment], run_id=run_id, include_spans=False, max_results=100
    ):
        for entry in trace.info.assessments if trace.info.trace_id in traces else []:
            value = entry.feedback.value if entry.name == QUESTION and entry.feedback is not None else None
            by_person = entry.source is not None and entry.source.source_type == "HUMAN"
            if not by_person or entry.valid is False or value not in OPTIONS:
                continue
            login = entry.source.source_id or ""
            answer = ReviewerAnswer(
                trace=str(trace.info.trace_id),
                value=str(value),
                reviewer="" if login.lower() in _ANONYMOUS else login,
                at=datetime.fromtimestamp((entry.last_update_time_ms or entry.create_time_ms or 0) / 1000, tz=UTC),
                comment=entry.rationale or "",
            )
            earlier = latest.get((answer.trace, answer.reviewer))
            if earlier is None or earlier.at <= answer.at:
                latest[answer.trace, answer.reviewer] = answer
    return sorted(latest.values(), key=lambda answer: (answer.at, answer.trace, answer.reviewer))


def runs_with_reviews(run_id: str) -> list[str]:
    """Return the runs in the same experiment, this one included, that have review pairs; oldest first."""
    experiment = store.patiently(store.client().get_run, run_id).info.experiment_id
    reviewed_runs = store.all_pages(
        store.client().search_runs,
        [experiment],
        f"tags.`{tags.REVIEWS}` != ''",
        order_by=["attributes.start_time ASC"],
        max_results=1000,
    )
    return [str(run.info.run_id) for run in reviewed_runs]


def _question(experiment: str) -> LabelSchema:
    from mlflow import MlflowException
    from mlflow.genai import label_schemas

    try:
        schema = store.patiently(label_schemas.get_label_schema, QUESTION, experiment_id=experiment)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return store.patiently(
            label_schemas.create_label_schema,
            QUESTION,
            type="feedback",
            input=label_schemas.InputCategorical(options=list(OPTIONS)),
            instruction=_INSTRUCTION,
            enable_comment=True,
            experiment_id=experiment,
        )
    options = list(getattr(schema.input, "options", []))
    if set(options) != set(OPTIONS):
        raise UserError(
            f"the experiment's question {QUESTION!r} has the options {listed(options)}, not {listed(list(OPTIONS))}; "
            "rename or delete it in MLflow (Review, Manage questions)"
        )
    return schema
