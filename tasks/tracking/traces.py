"""Completions as MLflow traces, linked to their run: the question, the answer, and the policy or model that answered.

All traces of a call are sent to any server in one request. The id of a trace follows from its run and key, so that a
trace that is sent again after an outage is the same trace.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from models.evaluation.records import TurnRecord
from tasks.tracking import store
from tasks.tracking.runs import shorten

if TYPE_CHECKING:
    from mlflow.entities import Span
    from mlflow.tracing.client import TracingClient

MOST_AT_ONCE = 100
"""Maximum number of traces that MLflow links to a run in one request."""
LONGEST_TAG = 4000
"""Maximum number of characters of a trace's tag in MLflow."""
LONGEST_PREVIEW = 1000
"""Maximum number of characters of inputs or outputs, as JSON, that MLflow's lists and its review page show."""
IN_FULL = "in full"
"""Name of the span that holds the full texts of a trace whose texts are too long for a preview."""


@dataclass(frozen=True)
class Trace:
    """One question and its answer."""

    key: str
    """Key that is unique among the traces of its run."""
    name: str
    """Display name in the list of traces."""
    inputs: Mapping[str, Any]
    """The question; MLflow shows it as JSON, so that no text in it is interpreted as markup."""
    outputs: Mapping[str, Any]
    tags: Mapping[str, str] = field(default_factory=dict)
    turns: Sequence[TurnRecord] = ()
    """Turns of an episode; each becomes a span with the policy's text, the environment's response and the reward."""


def tracing_client() -> TracingClient:
    """Return MLflow's client for traces and their assessments, of the configured store."""
    from mlflow.tracing.client import TracingClient

    return TracingClient(store.current().uri)


def log_traces(run_id: str, traces: Sequence[Trace]) -> list[str]:
    """Log traces in the experiment of a run and link them to it. Return their ids, in the same order."""
    if not traces:
        return []
    experiment = store.patiently(store.client().get_run, run_id).info.experiment_id
    client, ids = tracing_client(), []
    for start in range(0, len(traces), MOST_AT_ONCE):
        spans = [_spans(run_id, trace) for trace in traces[start : start + MOST_AT_ONCE]]
        store.patiently(client.log_spans, experiment, [span for trace_spans in spans for span in trace_spans])
        trace_ids = [str(root.trace_id) for root, *_ in spans]
        store.patiently(store.client().link_traces_to_run, trace_ids, run_id)
        ids += trace_ids
    return ids


def shown(text: str) -> str | list[str]:
    """Return a text as MLflow should show it in a trace: a list of lines if there are several, otherwise unchanged.

    MLflow shows a line break in JSON as \\n.
    """
    lines = text.split("\n")
    return lines if len(lines) > 1 else text


def preview(texts: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return inputs or outputs of a trace, with the longest texts cut until they fit into MLflow's preview.

    MLflow cuts longer texts in the middle of the JSON, and its review page renders broken JSON as Markdown.
    """
    longest, cut = LONGEST_PREVIEW, dict(texts)
    while len(json.dumps(cut)) > LONGEST_PREVIEW and longest:
        longest = longest * 4 // 5
        for name, text in texts.items():
            full_text = text if isinstance(text, str) else "\n".join(text)
            if len(full_text) > longest:
                cut[name] = shown(
                    f"{full_text[:longest]} ... (of {len(full_text):,} characters; View full trace has all)"
                )
    return cut


def _spans(run_id: str, trace: Trace) -> list[Span]:
    """Build the span of a trace; below it one with the full texts, if the trace's are cut, and one for each turn."""
    digest = hashlib.sha256(f"{run_id}\0{trace.key}".encode()).hexdigest()
    question, answer = preview(trace.inputs), preview(trace.outputs)
    tags = {"mlflow.traceName": trace.name, **trace.tags}
    spans = [_span(digest, trace.name, question, answer, tags)]
    if (question, answer) != (trace.inputs, trace.outputs):
        spans.append(_span(digest, IN_FULL, trace.inputs, trace.outputs, {}, below=IN_FULL))
    for number, turn in enumerate(trace.turns if len(trace.turns) > 1 else (), 1):
        name = f"turn {number}" + (f", reward {turn.reward:g}" if turn.reward else "")
        inputs, outputs = {"text": shown(turn.text)}, {"response": shown(turn.response), "reward": turn.reward}
        spans.append(_span(digest, name, inputs, outputs, {}, below=f"turn {number}"))
    return spans


def _span(
    digest: str,
    name: str,
    inputs: Mapping[str, Any],
    outputs: Mapping[str, Any],
    tags: Mapping[str, str],
    below: str = "",
) -> Span:
    """Build a span; one below the trace's span has a unique name there, `below`, from which its id is derived."""
    from mlflow.entities import Span
    from mlflow.tracing.constant import SpanAttributeKey
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    second_digest = hashlib.sha256(f"{digest}\0{below}".encode()).hexdigest()
    root, child = (
        SpanContext(int(digest[:32], 16), int(place, 16), False, TraceFlags(1))
        for place in (digest[32:48], second_digest[:16])
    )
    attributes = {
        SpanAttributeKey.REQUEST_ID: f"tr-{digest[:32]}",
        SpanAttributeKey.INPUTS: dict(inputs),
        SpanAttributeKey.OUTPUTS: dict(outputs),
        SpanAttributeKey.SPAN_TYPE: "LLM",
        **{f"{SpanAttributeKey.TRACE_TAG_PREFIX}{key}": shorten(text, LONGEST_TAG) for key, text in tags.items()},
    }
    now = time.time_ns()
    return Span(
        ReadableSpan(
            name,
            context=child if below else root,
            parent=root if below else None,
            resource=Resource({"service.name": "rewardflow"}),
            attributes={key: json.dumps(value, ensure_ascii=False) for key, value in attributes.items()},
            start_time=now,
            end_time=now,
            status=Status(StatusCode.OK),
        )
    )
