"""The page of a version: it shows the decision, the checks and the origin to a reader who never saw the run."""

from tasks.pages.version_page import LONGEST, policy_page, reward_model_page, version_page
from tasks.tracking.verdict_record import HandJudgement, PageFacts, Ruling, VerdictRecord
from tests.support.verdict_examples import check, verdict

ORIGIN = {"recipe": "arithmetic", "run": "[samples](/#/experiments/1/runs/a)", "reward model": ""}
REFUSED = verdict(
    decision="refused",
    reason="guard_failed",
    checks=(check("better", "passed", "fine"), check("length", "failed", "40 tokens, at most 30")),
)
ANN = Ruling(approved=True, by="Ann", why="samples  read", at="2026-11-24 10:00 UTC")


def page(
    record: VerdictRecord | None = REFUSED,
    by_hand: HandJudgement | None = None,
    reproduced: str = "",
    earlier: str = "",
) -> str:
    facts = PageFacts(earlier_page=earlier) if earlier else PageFacts(origin=ORIGIN)
    return version_page("models:/policy/7", facts, record, by_hand, reproduced)


def test_the_verdict_with_its_interval_is_the_first_line() -> None:
    first = page().splitlines()[0]
    assert first == "✘ Refused: sampled accuracy +3.9 [+3.6, +4.2] against champion, version 3"


def test_what_failed_stands_above_what_passed_and_what_is_unknown_is_left_out() -> None:
    text = page()
    assert text.index("40 tokens, at most 30") < text.index("fine")
    assert "[samples](/#/experiments/1/runs/a)" in text and "reward model" not in text


def test_it_can_be_loaded_from_what_stands_there() -> None:
    assert 'load_model("models:/policy/7")' in page()
    assert 'load_model("models:/policy@champion")' in policy_page("arithmetic", "policy")
    assert "rollback" in policy_page("arithmetic", "policy") and "arithmetic" in reward_model_page("arithmetic")


def test_a_page_does_not_wait_for_a_ruling_that_was_given() -> None:
    assert "Waiting for approval" in page(verdict(decision="waiting"))
    lines = page(verdict(reason="approved", ruling=ANN)).splitlines()
    assert lines[0] == "Approved by Ann: samples read (2026-11-24 10:00 UTC)"
    assert "Passed the gate: sampled accuracy +3.9 [+3.6, +4.2] against champion, version 3" in lines
    assert not any("Waiting" in line for line in lines)


def test_a_reproduction_stands_last_and_changes_nothing_else() -> None:
    text = page(reproduced="identical to the bit")
    assert text.startswith(page().rstrip()) and text.rstrip().endswith("identical to the bit")


def test_a_judgement_of_a_champion_set_by_hand_stands_above_the_verdict() -> None:
    judged = HandJudgement(version=7, champion=6, verdict=verdict(champion=6))
    text = page(by_hand=judged)
    assert text.startswith(
        "Champion by hand: version 7: the gate would have promoted it: better than champion, version"
    )
    assert "### The gate, against version 6" in text and text.endswith(page())
    without = page(by_hand=HandJudgement(version=7, problem="no champion before it is known"))
    assert without.startswith("Champion by hand: version 7: no champion before it is known\n")


def test_the_page_of_an_earlier_release_is_kept_below_what_is_known_since() -> None:
    assert page(None, earlier="What stood here.") == "What stood here."
    ruled = page(verdict(reason="approved", ruling=ANN, earlier_text="better by much"), earlier="### Gate\n\nfine")
    assert ruled.startswith("Approved by Ann") and ruled.endswith("### Gate\n\nfine")
    assert "Passed the gate: " in ruled


def test_a_page_is_no_longer_than_the_registry_keeps() -> None:
    assert len(page(earlier="x" * 2 * LONGEST)) == LONGEST
