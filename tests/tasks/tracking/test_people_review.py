"""Reviews by people, from the question to a pinned data version, in a real store and a real repository."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import mlflow
import pytest
from mlflow.entities import AssessmentSource
from small_repository import git

from models.base.errors import UserError
from models.datasets.schema import read_rows
from tasks.data.versions import read_pinned
from tasks.people.ask_people import ask, read_review, reviews_of
from tasks.people.blind_pairs import AnswerPair
from tasks.people.collect_reviews import collect
from tasks.people.people_say import DECIDED, UNDECIDED
from tasks.tracking import recorded, registry, runs, store, tags
from tasks.tracking.registry import VersionInfo
from tasks.tracking.review_queues import QUESTION

PAIRS = [AnswerPair(f"train-{n}", f"What is {n} + 1?", str(n + 1), 1, f"{n + 1}", f"{n}\nor so") for n in range(4)]

pytestmark = pytest.mark.rotating(of=12, together="review queues")


@pytest.fixture
def versions(home: Path, policy_folder: Path) -> list[VersionInfo]:
    """Register versions 1 and 2 of a policy, each in a flow run of its own, and return them."""
    made = []
    for number in (1, 2):
        flow = runs.open_flow_run("e", f"train {number}")
        runs.log_params(flow, {"data": {"name": "sums"}})
        model = registry.log_model(runs.open_step_run(flow, "fine_tune"), policy_folder, "policy", "text-generation")
        made.append(registry.register("e-policy", model, {tags.RUN: flow}))
    return [registry.version_info("e-policy", number) for number in made]


def say(trace: str, value: str, who: str) -> None:
    """Log an answer, as the review page does."""
    mlflow.log_feedback(trace_id=trace, name=QUESTION, value=value, source=AssessmentSource("HUMAN", who))


def test_who_is_asked_twice_is_asked_once_and_each_in_traces_of_their_own(versions: list[VersionInfo]) -> None:
    drawn = []

    def draw() -> list[AnswerPair]:
        drawn.append(1)
        return PAIRS

    old, new = versions
    (first,) = ask(new, old, draw, ["ann"])
    again, beside = ask(new, old, draw, ["Ann ", "bob"])
    assert (first.new, again.new, beside.new) == (True, False, True) and len(drawn) == 2
    assert again.review == first.review and again.page == first.page
    assert [review.reviewer for review in reviews_of(recorded.of_version(new).run)] == ["ann", "bob"]
    assert list(first.review.candidate_first.values()) == [not x for x in beside.review.candidate_first.values()]
    assert not set(first.review.pairs) & set(beside.review.pairs), "each has traces of their own"
    for wanted in ("../x", "a/b", "", "anybody"):
        with pytest.raises(UserError, match="is not a login"):
            ask(new, old, draw, [wanted])
    with pytest.raises(UserError, match="compared with itself"):
        ask(new, new, draw, [])
    with pytest.raises(UserError, match="not a list of pairs"):
        read_review('{"model": 1}')


@pytest.mark.slow
def test_answers_become_a_pinned_version_once_and_what_is_said_later_another(
    versions: list[VersionInfo], root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for role in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{role}_NAME", "Somebody")
        monkeypatch.setenv(f"GIT_{role}_EMAIL", "somebody@localhost")
    old, new = versions
    quiet: Callable[[str], None] = lambda line: None  # noqa: E731
    with pytest.raises(UserError, match="no reviewer was asked about e-policy yet"):
        collect(new, root, report=quiet)
    ann, bob = (asked.review for asked in ask(new, old, lambda: PAIRS, ["ann", "bob"]))
    nothing = collect(new, root, report=quiet)
    assert (nothing.version, nothing.rows, nothing.new) == (None, [], 0)

    for review in (ann, bob):  # both prefer the candidate three times, and answer "equal" once
        for trace, pair in review.pairs.items():
            place = "first" if review.candidate_first[trace] else "second"
            say(trace, "equal" if pair.problem == "train-3" else place, review.reviewer)
    collected = collect(new, root, report=quiet)
    version = collected.version
    assert version is not None and version.unpinned == "" and collected.name == "sums-reviewed"
    assert version.revision == git(root, "rev-parse", "HEAD") and git(root, "status", "--porcelain") == ""
    (what,) = collected.reviews
    assert what.preferred is not None and what.preferred.estimate == 1.0 and what.agreement.alpha == 1.0
    rows = read_rows(version.folder, "preferences", "train")
    wanted = sorted((pair.prompt, pair.candidate, pair.champion) for pair in PAIRS[:3] for _ in range(2))
    assert sorted((row["prompt"], row["chosen"], row["rejected"]) for row in rows) == wanted
    raw = read_pinned(root, f"data/raw/sums-reviewed/{DECIDED}", version.revision).decode().splitlines()
    assert [json.loads(line)["reviewer"] for line in raw].count("ann") == 3
    assert all(json.loads(line)["date"].endswith("+00:00") for line in raw)
    assert len(read_pinned(root, f"data/raw/sums-reviewed/{UNDECIDED}", version.revision).splitlines()) == 2
    run = store.client().get_run(recorded.of_version(new).run)
    assert run.data.metrics["review/candidate_preferred"] == run.data.metrics["review/agreement"] == 1.0
    assert "train-0: for the candidate, ann" in recorded.read_text(run.info.run_id, "review/2-against-1.html")

    again = collect(new, root, report=quiet)
    assert again.new == 0 and again.version is not None and again.version.revision == version.revision
    say(next(iter(bob.pairs)), "both bad", "bob")
    subprocess.run(["rm", "-r", root / "data/raw/sums-reviewed"], check=True)  # another clone has only the pin
    later = collect(new, root, report=quiet)
    assert later.new == 1 and len(later.rows) == 8 and later.version is not None
    assert later.version.digest != version.digest and later.version.unpinned == ""
