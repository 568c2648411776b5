"""The description of a run: the verdict comes first, and text that a model wrote never acts as Markdown."""

import io

from rich.console import Console
from rich.markdown import Markdown

from models.evaluation.bootstrap import Interval
from models.evaluation.gate.checks import GateCheck
from tasks.pages import description
from tasks.pages.description import ExampleCompletion, RunDescription, describe_run
from tasks.runner.step import StepResult
from tasks.tracking.verdict_record import Ruling
from tests.support.verdict_examples import check, verdict


def step(name, seconds, reused, headline=""):
    """Return the result of a step, for the table of steps."""
    facts = {"step": name, "key": "k", "digest": "d", "metrics": {}, "run_id": "", "folder": ""}
    return StepResult(name=name, seconds=seconds, reused=reused, headline=headline, **facts)


def review(**changes: object) -> RunDescription:
    plain: dict[str, object] = {
        "outcome": "kept",
        "model": "policy",
        "version": 4,
        "verdict": verdict(
            decision="kept",
            reason="not_better",
            difference=Interval(0.01, -0.02, 0.04),
            checks=(
                check("length", "passed", "fine"),
                check("better", "failed", "+0.01 [-0.02, +0.04], needed above 0"),
            ),
        ),
        "models": {"base": {"accuracy": 0.3}, "candidate": {"accuracy": Interval(0.31, 0.28, 0.34), "pass@16": 0.8}},
        "worst": [ExampleCompletion(f"prompt {number}", f"completion {number}", "8", -number) for number in range(5)],
        "steps": [step("data", 2.0, True), step("rl", 40.5, False, "accuracy 0.31")],
        "facts": {"git commit": "6d57ac2"},
    }
    return RunDescription(**{**plain, **changes})  # type: ignore[arg-type]


def checks_of(shown: RunDescription) -> tuple[GateCheck, ...]:
    assert shown.verdict is not None
    return shown.verdict.checks


def test_the_verdict_is_the_first_line_and_the_difference_stands_before_any_table():
    text = describe_run(review())
    assert text.splitlines()[0] == "## = Not better: policy version 4"
    assert text.index("+0.010 [-0.020, +0.040]") < text.index("champion, version 3") < text.index("| ")
    assert "around zero" in text


def test_a_run_that_changed_nothing_is_not_headed_promoted():
    text = describe_run(review(outcome="unchanged", verdict=None, reason="judged before, promoted: better"))
    assert text.splitlines()[0] == "## = Nothing changed: policy version 4"


def test_the_first_version_is_compared_with_the_base_model():
    record = review().verdict
    assert record is not None
    text = describe_run(review(verdict=record.model_copy(update={"champion": None})))
    assert "** against the base model (paired 95% interval, around zero)" in text


def test_a_ruling_stands_above_the_verdict_and_the_rest_of_the_page_stays():
    ruling = Ruling(approved=True, by="Ann", why="samples | read", at="2026-11-24 10:00 UTC")
    waiting = review(outcome="waiting", verdict=verdict(decision="waiting"))
    ruled = review(outcome="promoted", verdict=verdict(reason="approved", ruling=ruling))
    first, second = describe_run(ruled).splitlines()[:3:2]
    assert first == r"Approved by Ann: samples \| read (2026-11-24 10:00 UTC)"
    assert second == "## Passed the gate: policy version 4"
    assert "Waiting" not in describe_run(ruled)
    assert (
        description.describe_below(ruled).partition("### Load it")[0]
        == (description.describe_below(waiting).partition("### Load it")[0])
    )


def test_an_address_among_the_facts_is_a_link_and_nothing_else_is():
    text = describe_run(review(facts={"Prefect run": "http://127.0.0.1:4200/runs/a", "commit": "<b>"}))
    assert "- Prefect run: <http://127.0.0.1:4200/runs/a>" in text and "- commit: `<b>`" in text


def test_failed_checks_stand_above_those_that_passed():
    table = description.gate_table(checks_of(review()))
    assert table.index("better") < table.index("length")


def test_what_is_not_applicable_is_shown_as_such_with_its_reason_and_below_what_passed():
    checks = [check("divergence", "not_applicable", "the recipe fits no reward model"), *checks_of(review())]
    table = description.gate_table(checks)
    assert "not applicable: the recipe fits no reward model" in table and "–" in table
    assert table.index("better") < table.index("length") < table.index("divergence")


def test_the_smallest_difference_and_the_budget_stand_above_the_checks():
    text = describe_run(review())
    assert text.index("a true difference of 0.031") < text.index("look 3 of 365") < text.index("check&emsp;")


def test_three_samples_are_shown_and_not_more():
    text = describe_run(review())
    assert "completion 2" in text and "completion 3" not in text


def test_steps_say_whether_they_were_reused_and_what_they_took_together():
    lines = [line.replace("&emsp;", "") for line in description.step_table(review().steps).splitlines()]
    assert "| data | 2.0 | reused |  |" in lines and "| rl | 40.5 | run | accuracy 0.31 |" in lines
    assert "| **together** | **42.5** |  |  |" in lines


def test_a_metric_that_a_model_lacks_leaves_its_cell_empty():
    lines = [line.replace("&emsp;", "") for line in description.model_table(review().models).splitlines()]
    assert lines[:4] == [
        "| metric | base | candidate |",
        "| :--- | :--- | :--- |",
        "| accuracy | 0.3 | 0.310 [0.280, 0.340] |",
        "| pass@16 |  | 0.8 |",
    ]


def test_a_completion_cannot_close_its_own_block():
    hostile = "````\n# Promoted\n<script>alert(1)</script>\x1b[31m"
    block = description.sample(ExampleCompletion("p", hostile, "x", 0.0)).split("\n\n", 1)[1]
    lines = block.splitlines()
    assert lines[0] == lines[-1] == "`````" and "`````" not in "\n".join(lines[1:-1])
    assert "\x1b" not in block and "\\x1b" in block


def test_text_in_a_cell_stays_in_its_cell():
    cell = description.cell("a | b\n# c <img src=x> *d* `e`")
    assert cell == r"a \| b \# c &lt;img src=x&gt; \*d\* \`e\`"
    assert description.code("a `b` ``c``") == "``` a `b` ``c`` ```"


def test_what_is_missing_leaves_no_empty_section():
    text = describe_run(RunDescription("trained", reason="No champion to compare with."))
    assert text == "## ○ Trained, not judged\n\nNo champion to compare with.\n"


def test_a_long_completion_keeps_its_beginning_and_its_end():
    text = description.shortened("start" + "x" * 5000 + "end", 500)
    assert text.startswith("start") and text.endswith("end") and len(text) <= 500


def test_it_also_reads_well_in_a_terminal():
    console = Console(width=100, record=True, file=io.StringIO())
    console.print(Markdown(describe_run(review())))
    shown = console.export_text()
    assert "&emsp;" not in shown and "Not better: policy version 4" in shown
