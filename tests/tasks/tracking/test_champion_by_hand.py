"""A champion that a person set by hand: the gate judges it, the judgement is recorded and shown, and it stays."""

import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from prefect.logging import disable_run_logger
from test_gate_promotion import NAME, RECIPE, answers, looks, step
from test_registered_by_hand import scaled

from flows.runtime.judging_by_hand import judge_hand_set_champion, measure
from models.policies.folder import hash_folder
from tasks.gate.judgement import JudgementSections, OnGate
from tasks.pages.description import RunDescription, describe_run, hand_page
from tasks.registered.policy import PolicyFiles
from tasks.runner.step import StepContext
from tasks.steps.judge_champion import ComparedEvaluations, judge_champion
from tasks.tracking import aliases, by_hand, registry, runs, store, tags
from tasks.tracking.by_hand import PendingChampion
from tasks.tracking.verdict_record import HandJudgement, VerdictRecord, hand_judgement_of
from tasks.tracking.verdict_text import hand_text
from tests.support.verdict_examples import store_verdict

pytestmark = pytest.mark.rotating(of=6)


@pytest.fixture
def run(home: Path, policy_folder: Path, tmp_path: Path) -> str:
    """Make versions 1 to 3 with different weights, promote version 1, and return the run that made them."""
    run = runs.open_flow_run("arithmetic", "night")
    for times in (1, 2, 3):
        folder = scaled(policy_folder, tmp_path / f"times{times}", times)
        model = registry.log_model(run, folder, "policy", "text-generation")
        registry.register(NAME, model, {tags.WEIGHTS_SHA256: hash_folder(folder)}, "What stood here.")
    aliases.promote(NAME, 1, why="gate")
    return run


def set_by_hand(version: int) -> PendingChampion | None:
    """Set the champion as in MLflow's UI, and record it as the next run does. Return the pending judgement."""
    store.client().set_registered_model_alias(NAME, registry.CHAMPION, str(version))
    aliases.record_outside_changes(NAME)
    return by_hand.waiting(NAME)


def judged(run: str, home: Path, tmp_path: Path, new: int, old: int, weights: str = "2 against 1") -> HandJudgement:
    """Judge the pending champion. It has `new` of 4 samples right, the champion before it `old` of 4."""
    waiting = by_hand.waiting(NAME)
    assert waiting is not None
    measured = ComparedEvaluations(
        OnGate(step(tmp_path, run, "evaluate", f"new{new}", answers(new), gate_split="aaaa")),
        OnGate(step(tmp_path, run, "evaluate", f"old{old}", answers(old))),
        "version 1 is the anchor itself",
        weights,
    )
    with disable_run_logger():
        handed = StepContext("judge_champion", "k", JudgementSections(RECIPE), home, run)
        return judge_champion.fn(handed, waiting, measured)


class Training(SimpleNamespace):
    """A training that records the roles that it was to measure on the gate's problems."""

    def __init__(self, run: str, home: Path) -> None:
        super().__init__(opened=SimpleNamespace(recipe=RECIPE, home=home, run_id=run), asked=[])

    def for_verdict(self, role: str, policy: PolicyFiles) -> OnGate:
        assert policy.digest == hash_folder(policy.folder)
        self.asked.append(role)
        return OnGate(step(policy.folder.parent, "r", "evaluate", policy.digest, gate_split="aaaa"))


def why(run: str, home: Path) -> str:
    """Return the reason why the pending champion cannot be judged."""
    waiting, training = by_hand.waiting(NAME), Training(run, home)
    assert waiting is not None
    measured = measure(training, waiting, {}, NAME)  # type: ignore[arg-type]
    assert isinstance(measured, str) and training.asked == []
    return measured


def test_a_worse_champion_set_by_hand_is_judged_recorded_and_left(run: str, home: Path, tmp_path: Path):
    assert set_by_hand(2) == PendingChampion(2, against=1)
    verdict = judged(run, home, tmp_path, new=1, old=3)
    assert hand_text(verdict).startswith("version 2: the gate would not have promoted it: better: ")
    version = registry.version_info(NAME, 2)
    assert registry.CHAMPION in version.aliases and registry.PREVIOUS in registry.version_info(NAME, 1).aliases
    first = version.description.splitlines()[0]
    assert first.startswith("Champion by hand: version 2: the gate would not have promoted it")
    assert "capability" in version.description and version.description.endswith("What stood here.")
    assert (
        hand_text(verdict) in version.tags[tags.PROMOTED_BY] and "author are unknown" in version.tags[tags.PROMOTED_BY]
    )
    assert set(version.tags) <= set(tags.FOR_A_PERSON)
    kept = hand_judgement_of(registry.facts_of(version))
    assert kept is not None and kept.model_dump_json() == verdict.model_dump_json()
    assert verdict.verdict is not None
    checks = {check.name: check.state for check in verdict.verdict.checks}
    assert checks["better"] == "failed" and len(checks) > 5
    assert tags.VERDICT_RECORD not in registry.facts_of(version)  # only a candidate has this record
    assert store.client().get_run(run).data.tags[tags.CHAMPION_JUDGED] == hand_text(verdict)
    assert looks() == 1 and by_hand.waiting(NAME) is None and aliases.record_outside_changes(NAME) == ""


def test_the_runs_page_shows_the_verdict_on_it_check_by_check(run: str, home: Path, tmp_path: Path):
    set_by_hand(2)
    verdict = judged(run, home, tmp_path, new=1, old=3)
    page = describe_run(RunDescription(outcome="unchanged", champion_by_hand=hand_page(verdict)))
    shown = page.partition("### The champion was set by hand")[2]
    assert "the gate would not have promoted it" in shown and "80 % power" in shown
    assert verdict.verdict is not None
    assert all(check.name.replace("_", "\\_") in shown for check in verdict.verdict.checks)


def test_a_better_champion_set_by_hand_is_told_so(run: str, home: Path, tmp_path: Path):
    set_by_hand(2)
    verdict = judged(run, home, tmp_path, new=3, old=1)
    assert "the gate would have promoted it: better than champion, version 1: " in hand_text(verdict)


def test_set_by_hand_twice_the_page_has_one_word_on_it(run: str, home: Path, tmp_path: Path):
    set_by_hand(2)
    judged(run, home, tmp_path, new=1, old=3)
    aliases.promote(NAME, 1)
    set_by_hand(2)
    judged(run, home, tmp_path, new=3, old=1, weights="others")
    page = registry.version_info(NAME, 2).description
    assert page.count("Champion by hand") == 1 and "would have promoted" in page and page.endswith("What stood here.")


def test_each_judgement_is_a_look_and_one_that_was_killed_goes_on(
    run: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    set_by_hand(2)

    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(registry, "annotate", killed)
        with pytest.raises(KeyboardInterrupt):
            judged(run, home, tmp_path, new=1, old=3)
    assert by_hand.waiting(NAME) == PendingChampion(2, 1) and looks() == 1
    judged(run, home, tmp_path, new=1, old=3)
    assert by_hand.waiting(NAME) is None and looks() == 1
    set_by_hand(3)
    judged(run, home, tmp_path, new=1, old=1, weights="3 against 2")
    assert looks() == 2


def test_without_a_change_by_hand_nothing_is_measured_or_judged(run: str, home: Path):
    training = Training(run, home)
    assert judge_hand_set_champion(training, {}, NAME) is None  # type: ignore[arg-type]
    aliases.promote(NAME, 2)  # as a command does, with an author and a reason
    assert aliases.record_outside_changes(NAME) == "" and judge_hand_set_champion(training, {}, NAME) is None  # type: ignore[arg-type]
    assert training.asked == [] and tags.LOOKS not in "".join(registry.model_tags(NAME))


def test_what_the_run_has_measured_is_not_measured_again(run: str, home: Path, tmp_path: Path):
    waiting, training = set_by_hand(2), Training(run, home)
    assert waiting is not None
    there = {role: step(tmp_path, run, "evaluate", role, gate_split="aaaa") for role in ("champion", "anchor")}
    measured = measure(training, waiting, there, NAME)  # type: ignore[arg-type]
    assert isinstance(measured, ComparedEvaluations) and training.asked == []
    assert (measured.champion, measured.before) == (there["champion"], there["anchor"])  # version 1 is the anchor
    assert measured.anchor == "version 1 is the anchor itself"
    aliases.set_anchor(NAME, 3)
    measure(training, waiting, {"champion": there["champion"]}, NAME)  # type: ignore[arg-type]
    assert training.asked == ["previous", "anchor"]


def test_a_champion_before_that_waits_itself_is_not_the_measure(run: str, home: Path):
    set_by_hand(2)
    assert set_by_hand(3) == PendingChampion(3, against=1)
    assert set_by_hand(1) is None  # version 1 is the champion that the gate chose


def test_after_a_deleted_alias_the_last_champion_is_the_measure(run: str, home: Path):
    set_by_hand(2)
    store.client().delete_registered_model_alias(NAME, registry.CHAMPION)
    aliases.record_outside_changes(NAME)
    assert by_hand.waiting(NAME) is None
    assert set_by_hand(3) == PendingChampion(3, against=2)


def test_why_it_cannot_be_judged_is_one_sentence(
    run: str, home: Path, policy_folder: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        "flows.runtime.judging_by_hand.judge_champion", judge_champion.fn
    )  # Prefect's task needs a server
    set_by_hand(2)
    aliases.promote(NAME, 3)
    assert why(run, home).endswith("it is champion no longer")

    kept = VerdictRecord(decision="kept", reason="not_better", champion=3, earlier_text="not better")
    store_verdict(NAME, 2, kept)
    set_by_hand(2)
    assert why(run, home) == "the gate compared it with version 3 when it was made: kept: not better"
    store_verdict(NAME, 2, kept.model_copy(update={"champion": None}))

    two, three = (registry.version_info(NAME, number) for number in (2, 3))
    shutil.copyfile(*(registry.fetch(version.uri) / "model.safetensors" for version in (three, two)))
    store.client().set_model_version_tag(NAME, "2", tags.WEIGHTS_SHA256, three.tags[tags.WEIGHTS_SHA256])
    assert why(run, home).endswith("its weights are those of version 3, the champion before")

    store.client().delete_model_version(NAME, "3")
    assert why(run, home).endswith("version 3, the champion before, was deleted")
    training = Training(run, home)
    with disable_run_logger():
        verdict = judge_hand_set_champion(training, {}, NAME)  # type: ignore[arg-type]
    assert verdict is not None and hand_text(verdict) == f"version 2: {why_deleted()}"
    assert hand_text(verdict) in registry.version_info(NAME, 2).description
    assert by_hand.waiting(NAME) is None and training.asked == []


def why_deleted() -> str:
    return "the gate did not judge it: version 3, the champion before, was deleted"


def test_without_any_champion_before_the_page_says_so(home: Path, policy_folder: Path):
    run = runs.open_flow_run("arithmetic", "night")
    registry.register(NAME, registry.log_model(run, policy_folder, "policy", "text-generation"))
    assert set_by_hand(1) == PendingChampion(1, against=None)
    assert why(run, home).endswith("no champion before it is known")
