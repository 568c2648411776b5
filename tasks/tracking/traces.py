"""Completions as MLflow traces, beside the run that they belong to: what was asked, what was answered, by whom.

All of a call go to the server in one request, whichever server it is. The id of a trace follows from its run and key,
so that what is sent again after an outage is the same trace.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tasks.tracking import store
from tasks.tracking.runs import shorten

if TYPE_CHECKING:
    from mlflow.entities import Span
    from mlflow.tracing.client import TracingClient

MOST_AT_ONCE = 100
"""Traces that MLflow links to a run in one request."""
LONGEST_TAG = 4000
"""Characters of a trace's tag that MLflow keeps."""


@dataclass(frozen=True)
class Trace:
    """One thing that was asked and answered."""

    key: str
    """What tells it from the others of its run."""
    name: str
    """What a reader sees in the list of traces."""
    inputs: Mapping[str, Any]
    """What was asked; MLflow shows it as JSON, so that no text in it is taken for markup."""
    outputs: Mapping[str, Any]
    tags: Mapping[str, str] = field(default_factory=dict)


def tracing_client() -> TracingClient:
    """MLflow's client for traces and what is said of them, of the configured store."""
    from mlflow.tracing.client import TracingClient

    return TracingClient(store.current().uri)


def log_traces(run_id: str, traces: Sequence[Trace]) -> list[str]:
    """Log traces in the experiment of a run and link them to it. Returns their ids, in the same order."""
    if not traces:
        return []
    experiment = store.patiently(store.client().get_run, run_id).info.experiment_id
    client, ids = tracing_client(), []
    for start in range(0, len(traces), MOST_AT_ONCE):
        spans = [_span(run_id, trace) for trace in traces[start : start + MOST_AT_ONCE]]
        store.patiently(client.log_spans, experiment, spans)
        some = [str(span.trace_id) for span in spans]
        store.patiently(store.client().link_traces_to_run, some, run_id)
        ids += some
    return ids


def shown(text: str) -> str | list[str]:
    """A text for a trace: as it is, or its lines where it has several, for MLflow shows a line's end in JSON as \\n."""
    lines = text.split("\n")
    return lines if len(lines) > 1 else text


def _span(run_id: str, trace: Trace) -> Span:
    from mlflow.entities import Span
    from mlflow.tracing.constant import SpanAttributeKey, TraceTagKey
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    digest = hashlib.sha256(f"{run_id}\0{trace.key}".encode()).hexdigest()
    context = SpanContext(int(digest[:32], 16), int(digest[32:48], 16), is_remote=False, trace_flags=TraceFlags(1))
    tags = {TraceTagKey.TRACE_NAME: trace.name, **trace.tags}
    attributes = {
        SpanAttributeKey.REQUEST_ID: f"tr-{digest[:32]}",
        SpanAttributeKey.INPUTS: dict(trace.inputs),
        SpanAttributeKey.OUTPUTS: dict(trace.outputs),
        SpanAttributeKey.SPAN_TYPE: "LLM",
        **{f"{SpanAttributeKey.TRACE_TAG_PREFIX}{key}": shorten(text, LONGEST_TAG) for key, text in tags.items()},
    }
    now = time.time_ns()
    return Span(
        ReadableSpan(
            trace.name,
            context=context,
            resource=Resource({"service.name": "rewardflow"}),
            attributes={key: json.dumps(value, ensure_ascii=False) for key, value in attributes.items()},
            start_time=now,
            end_time=now,
            status=Status(StatusCode.OK),
        )
    )
