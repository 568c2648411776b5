"""A policy that is not pinned cannot become champion, unless the recipe allows it; its page begins with the reason."""

from test_collapsed import BETTER

from models.evaluation.gate.gate import GateSettings
from tasks.gate.judgement import decide
from tasks.pages.description import UNPINNED, RunDescription, describe_run
from tasks.tracking.verdict_text import reason_text

WHY = "commit 6d57ac2f does not hold the code as it is: models/parts/objective/mine.py"


def test_a_better_policy_of_unpinned_code_is_refused_and_the_reason_names_the_file() -> None:
    assert decide(BETTER, GateSettings(), None).decision == "promoted"
    record = decide(BETTER, GateSettings(), None, unpinned=WHY)
    assert (record.decision, record.reason) == ("refused", "not_pinned")
    assert WHY in reason_text(record) and "promote_unpinned: true" in reason_text(record)


def test_the_description_begins_with_it() -> None:
    review = RunDescription(outcome="refused", reason="not better", facts={UNPINNED: WHY})
    first, _ = describe_run(review).split("\n", 1)
    assert first == f"> **Not pinned, so it cannot be reproduced:** {WHY}"
    assert describe_run(RunDescription(outcome="kept", reason="not better")).startswith("## ")
