"""The gate within promotion, on a real registry: looks are counted, the verdict is stored, no gate sample appears."""

import json
from pathlib import Path

import pytest
from prefect.logging import disable_run_logger

from models.evaluation.records import Completion, PromptRecord
from models.evaluation.table import write_records
from models.recipes.load import load_recipe
from tasks.gate.judgement import OnGate
from tasks.harness.results import write_samples
from tasks.judging.answers import AnswerSet, GivenAnswer
from tasks.runner.step import StepContext, StepResult
from tasks.steps.promote import Candidate, Promotion, PromotionSections, promote
from tasks.tracking import registry, runs, store, tags
from tasks.tracking.verdict_record import read_verdict

RECIPE = load_recipe(
    "arithmetic", ["gate.samples=4", "gate.problems=120", "gate.safety_margin=0.1", "gate.capability_margin=0.1"]
)
NAME = "arithmetic-policy"


def answers(right: int, broken: bool = False) -> list[PromptRecord]:
    """Return 120 prompts with `right` of 4 samples correct, and one more on every third. `broken`: one score is NaN."""
    verdicts = []
    for number in range(120):
        correct = min(4, right + (number % 3 == 0))
        samples = tuple(
            Completion(f"only the gate says {i}", 10, i < correct, True, 1.0 if i < correct else -1.0) for i in range(4)
        )
        if broken and number == 5:
            samples = (samples[0].__class__("a", 10, True, True, float("nan")), *samples[1:])
        verdicts.append(PromptRecord(f"p{number}", 1 + number % 4, samples, samples[0]))
    return verdicts


def step(
    folder: Path, run: str, name: str, digest: str, records: list[PromptRecord] | None = None, **links: str
) -> StepResult:
    at = folder / f"{name}-{digest}"
    at.mkdir(exist_ok=True)
    if records is not None:
        write_records(records, at / "records.parquet")
    return StepResult(
        step=name,
        key="k",
        folder=str(at),
        digest=digest,
        headline=name,
        metrics={},
        run_id=run,
        seconds=0.0,
        links={"model_id": digest, "gate_sketch": ""} | links,
    )


@pytest.fixture
def night(home: Path, policy_folder: Path, tmp_path: Path):
    """Return a function that judges a candidate with `right` of 4 samples right, against a policy with `before`."""

    def judged(weights: str, right: int, before: int, *, broken: bool = False, split: str = "aaaa") -> Promotion:
        run = runs.open_flow_run("arithmetic", "night")
        model_id = registry.log_model(run, policy_folder, "policy", "text-generation")
        champion = registry.champion(NAME)
        gate = {
            "candidate": OnGate(step(tmp_path, run, "evaluate", weights, answers(right, broken), gate_split=split)),
            "base" if champion is None else "champion": OnGate(
                step(tmp_path, run, "evaluate", f"b{weights}", answers(before))
            ),
        }
        trained = step(tmp_path, run, "fine_tune", weights, model_id=model_id)
        shown = step(tmp_path, run, "shown", weights)
        with disable_run_logger():
            given = Candidate(trained, None, gate, shown, champion, "champion and anchor in one")
            return promote.fn(StepContext("promote", weights, PromotionSections(RECIPE), home, run), given)

    return judged


@pytest.mark.rotating(of=6)
def test_a_held_out_set_refuses_alone_and_stands_on_version_and_run(home: Path, policy_folder: Path, tmp_path: Path):
    recipe = load_recipe(
        "arithmetic",
        [
            "gate.samples=4", "gate.problems=120", "gate.safety_margin=0.1", "gate.capability_margin=0.1",
            "gate.held_out.history.path=history.jsonl", "gate.held_out.history.format=problems",
        ],
    )  # fmt: skip
    run = runs.open_flow_run("arithmetic", "night")
    model_id = registry.log_model(run, policy_folder, "policy", "text-generation")
    trained, shown = step(tmp_path, run, "fine_tune", "one", model_id=model_id), step(tmp_path, run, "shown", "one")

    def measured(who: str, right: int, kept: int) -> OnGate:
        held = step(tmp_path, run, "history", f"h{who}", answers(kept))
        return OnGate(step(tmp_path, run, "gate", who, answers(right), gate_split="aaaa"), {"history": held})

    gate = {"candidate": measured("one", 3, 1), "base": measured("base", 1, 3)}
    with disable_run_logger():
        given = Candidate(trained, None, gate, shown, None, "champion and anchor in one")
        promotion = promote.fn(StepContext("promote", "one", PromotionSections(recipe), home, run), given)
    assert promotion.decision == "refused" and registry.champion(NAME) is None
    assert promotion.reason.startswith("held_out_history: against the baseline -0.5")
    version = registry.version_info(NAME, promotion.version)
    assert "held\\_out\\_history" in version.description and "only the gate says" not in version.description
    assert {check.name: check.state for check in promotion.verdict.checks}["held_out_history"] == "failed"
    kept = read_verdict(version)
    assert kept is not None and kept.model_dump_json() == promotion.verdict.model_dump_json()
    metrics = store.client().get_run(promotion.result.run_id).data.metrics
    assert metrics["gate/held_out_history_passed"] == 0.0 and metrics["gate/better_passed"] == 1.0


@pytest.mark.rotating(of=6)
def test_a_suite_refuses_alone_and_its_guard_is_in_the_verdict(home: Path, policy_folder: Path, tmp_path: Path):
    given = ["gate.samples=4", "gate.problems=120", "gate.safety_margin=0.1", "gate.capability_margin=0.1"]
    suites = "[{harness: lm-eval, tasks: [sums], guards: {sums: {metric: acc, margin: 0.02}}}]"
    recipe = load_recipe("arithmetic", [*given, f"evaluation.suites={suites}"])
    run = runs.open_flow_run("arithmetic", "night")
    model_id = registry.log_model(run, policy_folder, "policy", "text-generation")
    trained, shown = step(tmp_path, run, "fine_tune", "one", model_id=model_id), step(tmp_path, run, "shown", "one")

    def measured(who: str, right: int, kept: int) -> OnGate:
        suite = step(tmp_path, run, "suite", f"s{who}")
        sums = tuple(GivenAnswer(place="", problem=str(n), scores={"acc": float(n < kept)}) for n in range(100))
        write_samples({"sums": AnswerSet("sums", "lm-eval", sums)}, Path(suite.folder), [])
        on_gate = step(tmp_path, run, "gate", who, answers(right), gate_split="aaaa")
        return OnGate(on_gate, suites={"lm-eval": suite})

    gate = {"candidate": measured("one", 3, 50), "base": measured("base", 1, 80)}
    with disable_run_logger():
        compared = Candidate(trained, None, gate, shown, None, "champion and anchor in one")
        promotion = promote.fn(StepContext("promote", "one", PromotionSections(recipe), home, run), compared)
    assert promotion.decision == "refused" and registry.champion(NAME) is None
    assert promotion.reason.startswith("suite_lm-eval_sums: against the baseline -0.3")
    metrics = store.client().get_run(promotion.result.run_id).data.metrics
    assert metrics["gate/suite_lm-eval_sums_passed"] == 0.0 and metrics["gate/better_passed"] == 1.0


def looks(split: str = "aaaa") -> int:
    return int(json.loads(registry.model_tags(NAME)[tags.LOOKS + split])["looks"])


@pytest.mark.rotating(of=6)
def test_every_judgement_is_a_look_and_the_same_weights_are_judged_once(night):
    assert night("one", 3, 1).decision == "promoted"
    assert night("two", 3, 3).decision == "kept"
    assert night("two", 3, 3).reused
    assert looks() == 2
    night("three", 3, 3, split="bbbb")
    assert looks() == 2 and looks("bbbb") == 1


@pytest.mark.rotating(of=6)
def test_one_nan_among_the_reward_scores_refuses_and_says_so(night):
    promotion = night("one", 3, 1, broken=True)
    assert promotion.decision == "refused"
    assert "1 of 480 numbers (reward score of the candidate) are missing or not finite" in promotion.reason
    assert registry.champion(NAME) is None


@pytest.mark.rotating(of=6)
def test_kept_says_what_could_not_have_been_seen(night):
    night("one", 3, 1)
    promotion = night("two", 3, 3)
    assert promotion.decision == "kept" and "80 % power" in promotion.reason
    page = registry.version_info(NAME, promotion.version).description
    assert "look 2 of 365" in page and "error budget" in page


@pytest.mark.rotating(of=6)
def test_no_sample_of_the_gates_problems_reaches_a_run_or_a_version(night):
    promotion = night("one", 3, 1)
    version = registry.version_info(NAME, promotion.version)
    seen = f"{version.description} {version.tags} {registry.facts_of(version)}"
    run = store.client().get_run(promotion.result.run_id)
    assert "only the gate says" not in seen + str(run.data.tags)
    assert store.client().list_artifacts(run.info.run_id) == []
    assert {key.split("/")[0] for key in run.data.metrics} <= {"cost", "gate", "seconds"}
