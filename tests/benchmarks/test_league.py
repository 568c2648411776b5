"""Tests of the league: which results count, what is trained again, what the page reports. One test trains."""

from dataclasses import replace

import pytest

from benchmarks.league import run as league
from benchmarks.league.page import line, page, reason
from benchmarks.league.records import LeagueResult, Point, read_all, write
from benchmarks.league.run import Job, entrants, estimate, missing
from benchmarks.league.training import league_recipe, rewards_of, win_rate
from models.base.errors import UserError
from models.recipes.find import find_recipe


def point(after, shares, tokens=10.0):
    return Point(after, sum(shares) / len(shares), tuple(shares), 0.5, tokens, 1.0)


def result(recipe="grpo", seed=0, curve=(0.2, 0.6, 0.5), problems=40, **changed):
    points = tuple(point(number, [share] * problems) for number, share in enumerate(curve))
    made = LeagueResult(recipe, seed, 100, 96, 3, 0.0003, points,
                  rounds={"policy/entropy": (0.3, 0.2)}, recipe_digest="r",
                  code_digest="c", seconds=60.0, processor_seconds=50.0)  # fmt: skip
    return replace(made, **changed)


def test_a_result_reads_back_as_it_was_written_and_a_newer_one_takes_its_place(tmp_path):
    file = tmp_path / "league.parquet"
    assert read_all(file) == []
    write(result(seed=1, claims={"pair_accuracy": 1 / 3}), file)
    write(result(), file)
    write(result(curve=(0.1, 0.9)), file)
    write(result("dpo", curve=(), failed="the loss is not finite"), file)
    assert read_all(file) == [
        result("dpo", curve=(), failed="the loss is not finite"),
        result(curve=(0.1, 0.9)),
        result(seed=1, claims={"pair_accuracy": 1 / 3}),
    ]
    assert [each.name for each in tmp_path.iterdir()] == ["league.parquet"]


def test_a_search_keeps_a_result_for_every_rate(tmp_path):
    file = tmp_path / "search.parquet"
    for rate in (0.0003, 0.0001, 0.0003):
        write(result(learning_rate=rate), file, by_rate=True)
    assert [each.learning_rate for each in read_all(file)] == [0.0001, 0.0003]
    assert league.of_rate(read_all(file), "grpo", 0.0001) == [result(learning_rate=0.0001)]


def test_a_result_counts_only_for_the_recipe_and_the_code_that_made_it():
    assert result().counts("r", "c") and result().counts("r", None)
    assert not result().counts("other", None) and not result().counts("r", "other")


def test_only_what_no_result_answers_is_trained():
    jobs = [Job("grpo", 0, 7680), Job("grpo", 1, 7680), Job("rloo", 0, 7680)]
    done = result(recipe_digest=league.digest_of(jobs[0]))
    other_budget = result(seed=1, recipe_digest=league.digest_of(replace(jobs[1], budget=1024)))
    assert missing(jobs, [done, other_budget], "c") == jobs[1:]
    assert missing(jobs, [done, other_budget], "newer code") == jobs
    assert missing(jobs, [done, other_budget], None) == jobs[1:]


def test_the_estimate_is_the_recipes_own_seconds_scaled_to_the_budget_over_the_workers():
    jobs = [Job("grpo", 0, 200), Job("rloo", 0, 200)]
    assert estimate(jobs, [result()], 2) == pytest.approx((100 + 100) / 2)  # rloo has no result: the median


@pytest.mark.rotating(of=6)
def test_every_recipe_that_trains_a_policy_on_the_task_takes_part():
    names = entrants()
    assert {"arithmetic", "grpo", "topr", "prime", "xpo", "dpo", "a_lol", "nash_md"} <= set(names)
    assert not {"hh", "gsm8k"} & set(names) and len(names) == len(set(names)) >= 55


@pytest.mark.rotating(of=6)
def test_every_entrant_fits_the_budget_and_has_a_reward_without_a_reward_model():
    for name in entrants():
        recipe = league_recipe(name, 7680, 2)
        size = recipe.rollouts.prompts * recipe.rollouts.largest_group()
        assert abs(recipe.schedule.rounds * size - 7680) <= size / 2 and recipe.seed == 2
        assert rewards_of(recipe) and not any(reward.needs_reward_model for reward in rewards_of(recipe))
        assert recipe.warm_start.steps == 450


def test_a_budget_below_a_round_and_another_task_are_refused():
    with pytest.raises(UserError, match="a round is 512 completions, more than the budget of 100"):
        league_recipe("grpo", 100, 0)
    with pytest.raises(UserError, match="its task is gsm8k"):
        league_recipe("gsm8k", 7680, 0)


def test_a_line_holds_start_best_end_and_drop_of_the_mean_curve():
    row = line([result(curve=(0.2, 0.6, 0.5)), result(seed=1, curve=(0.2, 0.4, 0.5))])
    assert (row.start.estimate, row.best, row.end.estimate) == pytest.approx((0.2, 0.5, 0.5))
    assert line([result()]).drop == pytest.approx(0.1) and row.by_seed == (0.5, 0.5) and row.entropy == 0.2


@pytest.mark.parametrize(
    ("end", "verdict"),
    [(0.9, "above"), (0.58, "above, paired"), (0.5, "not apart"), (0.42, "below, paired"), (0.1, "below")],
)
def test_the_verdict_is_whether_the_intervals_are_apart_or_that_of_the_gain_from_zero(end, verdict):
    start, last = [float(at < 50) for at in range(100)], [float(at < round(end * 100)) for at in range(100)]
    run = replace(result(), curve=(point(0, start), point(1, last)))
    assert line([run]).verdict == verdict


def test_the_page_says_what_is_missing_failed_or_of_older_code():
    failed = result("dpo", curve=(), failed="the loss is not finite")
    text = page([result(), result("xpo", claims={"pair_accuracy": 0.75, "win_rate": 0.6}), failed], 9, "newer", {})
    assert "3 of 9 trainings" in text and "**3 of them were trained with other code" in text
    assert "- dpo, seed 0: the loss is not finite" in text and "| xpo | 75.0% | 60.0% |" in text
    assert "other code" not in page([result()], 1, "c", {})
    assert "0 of 3 trainings" in page([], 3, "c", {})


def test_the_page_says_of_what_does_not_end_above_its_start_why_as_the_recipe_has_it():
    head = "# A method.\n# Here: rate 1.\n# League: its data\n#   hold nothing more.\nsource: {}\n# League: no head\n"
    flat = [result(curve=(0.3, 0.3)), result("dpo", curve=(0.3, 0.3)), result("xpo")]
    text = page(flat, 3, "c", {"grpo": head, "dpo": "# Another.\n", "xpo": "# Above.\n"})
    _, _, why = text.partition("## Recipes without a clear gain")
    assert "- grpo (not apart): its data hold nothing more.\n" in why
    assert "- dpo (not apart): no reason is given." in why and "xpo" not in why


@pytest.mark.rotating(of=6)
def test_every_recipe_that_does_not_end_above_its_start_says_why_and_no_other_does():
    names, results = entrants(), read_all(league.RESULTS)
    held = {name: [result for result in results if result.recipe == name and result.curve] for name in names}
    behind = {name for name, group in held.items() if group and line(group).verdict != "above"}
    heads = {name: find_recipe(name).read_text() for name in names}
    said = {name for name, text in heads.items() if reason(text)}
    missing_line = [
        f"{find_recipe(name)} does not end above its start: add '# League: WHY' to its head" for name in behind - said
    ]
    needless = [f"{find_recipe(name)} ends above its start: drop '# League: ' from its head" for name in said - behind]
    assert not missing_line + needless


def test_the_win_rate_is_that_of_one_sample_against_one_ties_half():
    assert win_rate(point(1, [1.0, 0.5]), point(0, [0.0, 0.5])) == pytest.approx((1.0 + 0.5) / 2)


@pytest.mark.thorough
def test_a_tiny_training_leaves_a_result_that_is_not_trained_again(tmp_path, monkeypatch):
    monkeypatch.setattr("benchmarks.league.training.PROBLEMS", 6)
    small = (
        "warm_start.steps=2", "warm_start.batch=8", "policy.size.hidden=32", "policy.size.layers=1",
        "policy.size.heads=2", "policy.size.key_value_heads=1", "policy.size.feed_forward=32", "rollouts.prompts=2",
        "rollouts.group_size=2", "rollouts.max_tokens=8", "select={name: all}",
    )  # fmt: skip
    job = Job("reinforce", 0, 8, 2, small)
    made = league.run(job, tmp_path, "here")
    assert [reached.round for reached in made.curve] == [0, 1, 2] and len(made.curve[0].by_problem) == 6
    assert made.completions == 8 and len(made.rounds["reward/total"]) == 2 and not made.failed
    write(made, tmp_path / "results.parquet")
    (kept,) = read_all(tmp_path / "results.parquet")
    assert missing([job], [kept], made.code_digest) == [] and kept == made and kept.machine == "here"
    again = league.run(job, tmp_path, "here")
    assert again.curve == made.curve  # equal bit for bit: both use the kept warm start
    adapted = league.run(Job("stg", 0, 8, 2, small), tmp_path, "here")  # its learned gate is used at every point
    assert [at.round for at in adapted.curve] == [0, 1, 2] and not adapted.failed


@pytest.mark.thorough
def test_the_page_of_some_recipes_is_printed_and_the_guides_page_is_left(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(league, "PAGE", tmp_path / "league.md")
    asked = ["league", "--write-page", "--results", str(tmp_path / "results.parquet"), "--work", str(tmp_path)]
    monkeypatch.setattr("sys.argv", [*asked, "--only", "grpo"])
    assert league.main() == 0
    out, err = capsys.readouterr()
    assert out.startswith("# The league") and err == "0 of 3 trainings stand above\n"
    assert not (tmp_path / "league.md").exists()
    monkeypatch.setattr("sys.argv", asked)
    assert league.main() == 0 and (tmp_path / "league.md").read_text().startswith("# The league")


def test_a_result_is_known_by_what_is_stated_and_not_by_a_papers_title(monkeypatch):
    job, before = Job("grpo", 0), league.digest_of(Job("grpo", 0))
    read = league.read_layers
    monkeypatch.setattr(league, "read_layers", lambda file, chosen: read(file, chosen) | {"source": {"title": "new"}})
    assert league.digest_of(job) == before
    assert league.digest_of(replace(job, overrides=("objective.kl=0.05",))) != before
