"""Tests of the trials of published claims: intervals and verdicts, the arms of a trial, and committed findings."""

import json
import math
import statistics

import pytest

from benchmarks.claims import claim_trials, hacking_trials, shaping_trials, step_reward_trials
from benchmarks.claims.claim_trials import TRIALS, Noisy, Trial
from benchmarks.claims.run import RESULT, guide_rows, interval, measure_claim, read_findings, record, table, verdict
from benchmarks.claims.toy import COMMON, make_toy
from models.datasets.schema import available, read_table
from models.method.problem import Problem
from models.method.rollout import Rollout
from models.recipes.load import load_recipe, plain
from models.reward_models.fit import Pair


def test_the_interval_is_students_t_by_hand():
    low, high = interval([1.0, 2.0, 3.0])  # deviation 1, standard error 1 / sqrt 3, t quantile (2 degrees) 4.3027
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
    finding = measure_claim(trial, None, 3, lambda line: None)
    assert finding.seeds == (1.0, 2.0, 3.0) and finding.effect == 2.0 and finding.values == {"one": 4.0, "two": 2.0}
    assert finding.verdict == "inconclusive" and "one beats two" in table([finding])


def measured(name, effects):
    """Return the finding of a trial with this name and with one effect per seed."""
    trial = Trial(name, 7, f"{name} wins", "points", lambda toy, seed: (effects[seed], {}))
    return measure_claim(trial, None, len(effects), lambda line: None)


def test_a_claim_measured_again_takes_the_place_of_the_older_finding_and_leaves_the_others(tmp_path):
    file, (first, second, third) = tmp_path / "results" / "claims.json", [trial.name for trial in TRIALS[:3]]
    for name, effects in ((third, (1.0, 2.0)), (first, (3.0, 4.0)), (second, (5.0, 6.0))):
        record(file, measured(name, effects), {"cores": 2})
    record(file, measured(second, (7.0, 8.0, 9.0)), {"cores": 4})
    assert [(record["name"], record["seeds"]) for record in read_findings(file)] == [
        (first, [3.0, 4.0]), (second, [7.0, 8.0, 9.0]), (third, [1.0, 2.0]),
    ]  # fmt: skip
    assert json.loads(file.read_text())["machine"] == {"cores": 4}
    assert [entry.name for entry in file.parent.iterdir()] == ["claims.json"]


def settings(arm):
    """Return the recipe of an arm, without its name and source, as a mapping of key path to value."""
    flat = {}

    def walk(value, path):
        entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else None
        if entries is None:
            flat[path] = value
            return
        for key, below in entries:
            walk(below, f"{path}.{key}" if path else str(key))

    walk(plain(load_recipe(arm.recipe, [*COMMON, *arm.overrides])), "")
    return {key: value for key, value in flat.items() if not key.startswith(("name", "source."))}


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    ("arm", "other", "claimed"),
    [
        ("REMAX", "PPO", {"advantage", "objective", "rollouts.name", "schedule.normalisation"}),
        ("RDPO", "DPO", {"objective"}),
        ("PACS", "GRPO", {"advantage", "objective", "schedule.normalisation"}),
        ("TOPR", "ONLY_POSITIVES", {"advantage.baseline", "rewards.0.weight"}),
        ("SHANNON", "FORWARD", {"objective.to"}),
        ("FILTERED", "UNFILTERED", {"select.1"}),
        ("RESETS", "FROZEN", {"reference"}),
        ("CLASSIFICATION", "REGRESSION", {"advantage.critic.loss"}),
        ("CDPO", "DPO", {"objective"}),
        ("PASS_AT_K", "PASS_AT_1", {"advantage"}),
        ("PKPO", "LEAVE_ONE_OUT", {"advantage"}),
        ("MAXRL", "BY_DEVIATION", {"advantage.scale"}),
        ("CLIP_COV", "WIDE_CLIP", {"objective"}),
        ("KL_COV", "NO_CLIP", {"objective"}),
        ("FORKS", "EVERY_TOKEN", {"objective"}),
        ("CONSTRAINED", "WEIGHTED", {"rewards.3.rate"}),
        ("CENTRED", "RAW_SCORE", {"rewards.1"}),
        ("CONSENSUS", "MONTE_CARLO", {"reward_model.process.labels"}),
        ("SHAPED", "RAW", {"rewards.1.clip", "rewards.1.delta"}),
    ],
)
def test_the_arms_of_a_claim_differ_in_nothing_but_what_it_is_about(arm, other, claimed):
    known = {**vars(step_reward_trials), **vars(shaping_trials), **vars(claim_trials)}
    arms = [known[name] for name in (arm, other)]
    first, second = map(settings, arms)
    differing = {key for key in first.keys() | second.keys() if first.get(key) != second.get(key)}
    assert differing and all(any(f"{key}.".startswith(f"{part}.") for part in claimed) for key in differing), differing
    assert arms[0].rewards == arms[1].rewards


def test_remax_and_ppo_keep_no_reference_and_learn_from_every_completion():
    for arm in (claim_trials.REMAX, claim_trials.PPO):
        recipe = load_recipe(arm.recipe, [*COMMON, *arm.overrides])
        assert recipe.reference.name == "none" and [select.name for select in recipe.select] == ["all"]
        assert recipe.schedule.updates == recipe.schedule.rounds
        assert not getattr(recipe.advantage, "kl", 0.0) and not getattr(recipe.objective, "kl", 0.0)


def test_every_claim_has_a_name_of_its_own_and_a_paper():
    assert len({trial.name for trial in TRIALS}) == len(TRIALS) >= 9
    assert {384, 311, 263, 317, 333, 176, 72, 62, 112, 182, 86, 279, 85, 223} <= {trial.paper for trial in TRIALS}


def test_the_noise_on_a_reward_is_the_same_for_the_same_completion_and_has_the_wanted_spread():
    rollouts = [Rollout(Problem("p", "", "3"), 0, (number, 1), None, "#### 3", True) for number in range(400)]
    first, again = (Noisy(spread=0.5)(None, rollouts) for _ in range(2))
    assert first.equal(again) and abs(float(first.mean()) - 1.0) < 0.1 and 0.45 < float(first.std()) < 0.55


def test_the_findings_in_the_repository_are_of_every_claim_and_their_verdicts_follow_from_their_seeds():
    content = json.loads(RESULT.read_text())
    assert [finding["name"] for finding in content["findings"]] == [trial.name for trial in TRIALS]
    quantile = {5: 2.7764451052, 8: 2.3646242510, 10: 2.2621571628}  # Student's t, 97.5 %; degrees: seeds - 1
    for finding in content["findings"]:
        effects = finding["seeds"]
        assert len(effects) >= 5
        half = quantile[len(effects)] * statistics.stdev(effects) / math.sqrt(len(effects))
        low, high = statistics.fmean(effects) - half, statistics.fmean(effects) + half
        assert (finding["low"], finding["high"]) == pytest.approx((low, high), rel=1e-5, abs=1e-9)
        above, below = low > finding["line"], high < finding["line"]
        for_it, against = (above, below) if finding["larger"] else (below, above)
        assert finding["verdict"] == ("supported" if for_it else "not supported" if against else "inconclusive")


def test_the_guide_tells_the_verdicts_of_the_findings():
    guide = (RESULT.parents[2] / "docs" / "benchmarks.md").read_text()
    assert guide_rows(read_findings(RESULT)) in guide, "run: python -m benchmarks.claims --guide"


@pytest.mark.rotating(of=6)
def test_the_toy_of_the_trials_can_be_made(tmp_path):
    toy = make_toy(tmp_path)
    splits = available(toy.data)["problems"]
    assert {"train", "validation", "gate"} <= set(splits)
    assert len(read_table(toy.data, "problems", "train")) == 504


def test_repeated_steps_by_hand():
    steps = step_reward_trials.steps_of("3 + 4 = 7 ; 7 - 2 = 5 ; 3 + 4 = 7 ; ; #### 5")
    assert steps == ["3 + 4 = 7 ;", "7 - 2 = 5 ;", "3 + 4 = 7 ;", ";", "#### 5"]
    assert step_reward_trials.repeated(steps) == pytest.approx(0.2)
    assert step_reward_trials.repeated(["1"] * 4) == 0.75 and step_reward_trials.repeated([]) == 0.0


def test_the_planted_flaw_turns_round_the_pairs_of_its_kind_alone():
    pairs = [Pair((1,), (2, number), (3, number)) for number in range(3)]
    slip, skipped, lost = hacking_trials.turned_round(pairs, ["slip", hacking_trials.FLAW, "sign_lost"])
    assert (slip, lost) == (pairs[0], pairs[2]) and skipped == Pair((1,), (3, 1), (2, 1))


@pytest.mark.thorough
def test_the_alarm_stops_the_hack_of_a_planted_flaw_before_five_points_and_leaves_the_sound_run_alone(tmp_path):
    lost, numbers = hacking_trials.caught(make_toy(tmp_path), 0)
    assert numbers["flawed, alarms"] == 1.0 and numbers["flawed, rounds"] < hacking_trials.ROUNDS
    assert 0.0 < lost < 0.05
    assert numbers["sound, alarms"] == 0.0 and numbers["sound, right at last"] > numbers["sound, right at first"] + 0.03
