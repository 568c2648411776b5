"""Review queues in a real MLflow, embedded and on a server: questions, answers, and the answers that count."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import mlflow
import pytest
from mlflow.entities import AssessmentSource
from mlflow.genai import label_schemas, review_queues

from models.base.errors import UserError
from tasks.tracking import review_queues as queues
from tasks.tracking import runs, store
from tasks.tracking.traces import IN_FULL, Trace, log_traces, shown, tracing_client

pytestmark = pytest.mark.rotating(of=12, together="review queues")

TRACES = [
    Trace(f"pair {n}", "pair to review", {"prompt": f"<b>{n}</b>"}, {"first": shown("a\nb"), "second": "c"}, {"n": "7"})
    for n in range(3)
]


@pytest.fixture(params=["embedded", "server"])
def run(request: pytest.FixtureRequest) -> str:
    request.getfixturevalue("home" if request.param == "embedded" else "server")
    return runs.open_flow_run("e", "train e")


def answer(trace: str, value: Any, by: str = "ann", kind: str = "HUMAN", **more: Any) -> Any:
    """Log an answer, as the review page does."""
    source = AssessmentSource(source_type=kind, source_id=by)
    return mlflow.log_feedback(trace_id=trace, name=queues.QUESTION, value=value, source=source, **more)


def test_what_is_asked_stands_in_the_queue_and_the_last_answer_of_each_person_counts(run: str) -> None:
    made = queues.make_queue(run, "version 2 against 1, ann", "ann", TRACES)
    experiment = store.client().get_run(run).info.experiment_id
    kept = review_queues.get_review_queue(name="version 2 against 1, ann", experiment_id=experiment)
    assert (kept.queue_id, kept.users) == (made.id, ["ann"])
    assert {item.item_id for item in review_queues.list_review_queue_items(made.id)} == set(made.traces)
    (question,) = kept.schema_ids
    assert tuple(label_schemas.get_label_schema(schema_id=question).input.options) == queues.OPTIONS
    assert queues.page_of_queue(run, made.id).startswith(f"/#/experiments/{experiment}/review-queue?")
    trace = tracing_client().get_trace(made.traces[0])
    assert trace.data.spans[0].inputs == {"prompt": "<b>0</b>"}
    assert trace.data.spans[0].outputs == {"first": ["a", "b"], "second": "c"}
    assert trace.info.tags["n"] == "7"

    began = datetime.now(UTC).replace(microsecond=0)
    first, second, third = made.traces
    answer(first, "first")
    answer(first, "second", rationale="it is right")  # the reviewer changes the answer
    answer(first, "equal", by="bob")
    replaced = answer(second, "first")
    mlflow.override_feedback(
        trace_id=second, assessment_id=replaced.assessment_id, value="both bad", source=replaced.source
    )
    answer(third, "first", by="default")  # a server without logins
    answer(third, "none of these")
    answer(third, "second", by="a judge", kind="LLM_JUDGE")
    (beside,) = log_traces(run, [Trace("other", "sample", {}, {})])
    answer(beside, "first")
    given = queues.answers(run, made.traces)
    assert {(a.trace, a.reviewer, a.value, a.comment) for a in given} == {
        (first, "ann", "second", "it is right"),
        (first, "bob", "equal", ""),
        (second, "ann", "both bad", ""),
        (third, "", "first", ""),
    }
    assert all(a.at >= began for a in given)


def test_what_is_made_again_is_the_same_traces_in_one_queue(run: str) -> None:
    made = queues.make_queue(run, "q", "", TRACES)
    again = queues.make_queue(run, "q", "", TRACES)
    assert made.traces == again.traces
    experiment = store.client().get_run(run).info.experiment_id
    assert [queue.queue_id for queue in review_queues.list_review_queues(experiment_id=experiment)] == [again.id]
    assert len(tracing_client().search_traces(locations=[experiment])) == len(TRACES)


def test_many_traces_go_in_few_requests_and_all_are_linked(home: Path) -> None:
    run = runs.open_flow_run("e", "train e")
    ids = log_traces(run, [Trace(str(n), "sample", {"prompt": n}, {}) for n in range(205)])
    experiment = store.client().get_run(run).info.experiment_id
    linked = store.all_pages(tracing_client().search_traces, locations=[experiment], run_id=run, max_results=100)
    assert len(set(ids)) == 205 and {trace.info.trace_id for trace in linked} == set(ids)
    by_id = {trace.info.trace_id: trace for trace in linked}
    assert [json.loads(by_id[trace].data.request)["prompt"] for trace in ids] == list(range(205))


LONG = "**bold** ![image](http://127.0.0.1:9/x.png) <b>\n" + "\n".join(f"step {n} \u00e9\U0001f600" for n in range(300))


def test_long_texts_are_json_on_the_review_page_and_whole_in_the_trace(run: str) -> None:
    outputs = {"first": shown(LONG), "second": "short"}
    texts = [outputs, {"first": "short", "second": shown(LONG)}, {"first": "x" * 9000, "second": LONG}]
    ids = log_traces(run, [Trace(str(n), "pair", {"prompt": shown(LONG)}, each) for n, each in enumerate(texts)])
    for trace_id, each in zip(ids, texts, strict=True):
        trace = tracing_client().get_trace(trace_id)
        cut = json.loads(trace.info.response_preview)  # MLflow's page shows a preview as text if it is valid JSON
        assert cut.keys() == each.keys() and json.loads(trace.info.request_preview)["prompt"][0] == LONG.split("\n")[0]
        for name, text in each.items():
            seen, whole = ("\n".join(it) if isinstance(it, list) else it for it in (cut[name], text))
            assert seen == whole == "short" or (whole.startswith(seen.split(" ... (")[0]) and len(seen) > 70)
        (full,) = [span for span in trace.data.spans if span.name == IN_FULL]
        assert (full.inputs, full.outputs) == ({"prompt": shown(LONG)}, each)


def test_a_question_of_that_name_with_other_options_is_refused(home: Path) -> None:
    run = runs.open_flow_run("e", "train e")
    experiment = store.client().get_run(run).info.experiment_id
    options = label_schemas.InputCategorical(options=["yes", "no"])
    label_schemas.create_label_schema(queues.QUESTION, type="feedback", input=options, experiment_id=experiment)
    with pytest.raises(UserError, match="has the options yes, no, not first, second, equal, both bad"):
        queues.make_queue(run, "q", "", TRACES)
