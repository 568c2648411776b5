"""What must be true of putting claims to the test, each test named as the theorem it checks."""

import json
import math
import statistics

import pytest

from benchmarks.claim_trials import TRIALS, Noisy, Trial
from benchmarks.claims import RESULT, interval, put_to_the_test, table, verdict
from models.loop.rollout import Problem, Rollout


def test_the_interval_is_students_t_by_hand():
    low, high = interval([1.0, 2.0, 3.0])  # deviation 1, standard error 1 / sqrt 3, quantile of two degrees 4.3027
    assert (low, high) == pytest.approx((2 - 4.302653 / 3**0.5, 2 + 4.302653 / 3**0.5))


def test_without_any_spread_the_interval_is_a_point():
    assert interval([0.5] * 4) == (0.5, 0.5)


@pytest.mark.parametrize(
    ("low", "high", "larger", "said"),
    [
        (0.1, 0.2, True, "supported"), (0.1, 0.2, False, "not supported"), (-0.2, -0.1, True, "not supported"),
        (-0.2, -0.1, False, "supported"), (-0.1, 0.1, True, "inconclusive"), (0.0, 0.1, True, "inconclusive"),
    ],
)  # fmt: skip
def test_a_claim_is_supported_only_where_the_whole_interval_lies_on_its_side(low, high, larger, said):
    assert verdict(low, high, 0.0, larger) == said


def test_a_finding_holds_the_effect_of_every_seed_and_the_numbers_behind_it():
    trial = Trial("toy", 7, "one beats two", "points", lambda toy, seed: (1.0 + seed, {"one": 3.0 + seed, "two": 2.0}))
    found = put_to_the_test(trial, None, 3, lambda line: None)
    assert found.seeds == (1.0, 2.0, 3.0) and found.effect == 2.0 and found.told == {"one": 4.0, "two": 2.0}
    assert found.verdict == "inconclusive" and "one beats two" in table([found])


def test_every_claim_has_a_name_of_its_own_and_a_paper():
    assert len({trial.name for trial in TRIALS}) == len(TRIALS) >= 9
    assert {384, 311, 263, 317, 333, 176, 72, 62, 112} == {trial.paper for trial in TRIALS}


def test_the_noise_on_a_reward_is_the_same_for_the_same_completion_and_has_the_wanted_spread():
    rollouts = [Rollout(Problem("p", "", "3"), 0, (number, 1), (), "#### 3", True) for number in range(400)]
    first, again = (Noisy(0.5)(None, rollouts) for _ in range(2))
    assert first.equal(again) and abs(float(first.mean()) - 1.0) < 0.1 and 0.45 < float(first.std()) < 0.55


def test_the_findings_in_the_repository_are_of_every_claim_and_their_verdicts_follow_from_their_seeds():
    content = json.loads(RESULT.read_text())
    assert [one["name"] for one in content["findings"]] == [trial.name for trial in TRIALS]
    quantile = {5: 2.776445, 10: 2.262157}  # Student's t, 97.5 %, with one degree less than there are seeds
    for one in content["findings"]:
        effects = one["seeds"]
        assert len(effects) == content["seeds"] >= 5
        half = quantile[len(effects)] * statistics.stdev(effects) / math.sqrt(len(effects))
        low, high = statistics.fmean(effects) - half, statistics.fmean(effects) + half
        assert (one["low"], one["high"]) == pytest.approx((low, high), rel=1e-5, abs=1e-9)
        above, below = low > one["line"], high < one["line"]
        for_it, against = (above, below) if one["larger"] else (below, above)
        assert one["verdict"] == ("supported" if for_it else "not supported" if against else "inconclusive")


def test_the_guide_tells_the_verdicts_of_the_findings():
    guide = (RESULT.parents[2] / "docs" / "benchmarks.md").read_text()
    for one in json.loads(RESULT.read_text())["findings"]:
        line = next(line for line in guide.splitlines() if line.startswith(f"| {one['claim']} |"))
        assert line.endswith(f"| {one['verdict']} |") and f"| {one['effect']:.3g} (" in line
