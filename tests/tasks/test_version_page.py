"""A version's page says what was decided, why, and where it comes from, to a person who never saw the run."""

from tasks.tracking.tags import GateTag
from tasks.version_page import page_with_a_word, page_with_reproduction, policy_page, reward_model_page, version_page

CHECKS = [GateTag("better", "passed", "fine"), GateTag("length", "failed", "40 tokens, at most 30")]


def page(**changes: object) -> str:
    plain: dict[str, object] = {
        "decision": "refused",
        "reason": "length: 40 tokens, at most 30",
        "difference": "sampled accuracy +3.9 [+3.6, +4.2]",
        "compared_with": "champion, version 6",
        "notes": ("0.031 would have been found", "look 3 of 365"),
        "checks": CHECKS,
        "origin": {"recipe": "arithmetic", "run": "[samples](/#/experiments/1/runs/a)", "reward model": ""},
        "address": "models:/policy/7",
    }
    return version_page(**{**plain, **changes})  # type: ignore[arg-type]


def test_the_verdict_with_its_interval_is_the_first_line() -> None:
    first = page().splitlines()[0]
    assert first == "✘ Refused: sampled accuracy +3.9 [+3.6, +4.2] against champion, version 6"


def test_what_failed_stands_above_what_passed_and_what_is_unknown_is_left_out() -> None:
    text = page()
    assert text.index("40 tokens, at most 30") < text.index("fine")
    assert "[samples](/#/experiments/1/runs/a)" in text and "reward model" not in text


def test_it_can_be_loaded_from_what_stands_there() -> None:
    assert 'load_model("models:/policy/7")' in page()
    assert 'load_model("models:/policy@champion")' in policy_page("arithmetic", "policy")
    assert "rollback" in policy_page("arithmetic", "policy") and "arithmetic" in reward_model_page("arithmetic")


def test_a_page_does_not_wait_for_a_word_that_was_said() -> None:
    lines = page_with_a_word("Approved by Ann:  samples read", page(decision="waiting")).splitlines()
    assert lines[0] == "Approved by Ann: samples read"
    assert "Passed the gate: sampled accuracy +3.9 [+3.6, +4.2] against champion, version 6" in lines
    assert not any("Waiting" in line for line in lines)


def test_the_newest_reproduction_stands_last_and_changes_nothing_else() -> None:
    once = page_with_reproduction("differs: 1 of 4 tensors", page())
    assert once.startswith(page().rstrip()) and once.rstrip().endswith("differs: 1 of 4 tensors")
    again = page_with_reproduction("identical to the bit", once)
    assert "differs" not in again and again == page_with_reproduction("identical to the bit", page())


def test_the_page_of_the_run_no_longer_waits_either() -> None:
    waits = "## … Waiting for approval: arithmetic-policy version 1\n\nbetter than the base model"
    once = page_with_a_word("Approved by Ann: read (2026-11-24)", waits)
    assert once.startswith("Approved by Ann: read (2026-11-24)\n")
    assert "## Passed the gate: arithmetic-policy version 1\n\nbetter than the base model" in once
    assert page_with_a_word("Approved by Ann: read (2026-11-24)", once) == once
