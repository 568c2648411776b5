"""Tests of a recipe's curve: its file, its data and base model, when it stops, and its comparison with another."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from benchmarks.curves import main_curve
from benchmarks.curves.records import (
    Curve,
    CurveRound,
    HeldOutResults,
    compare_curves,
    mean,
    read,
    seconds,
    table,
    windows,
)
from benchmarks.shared import given_base
from benchmarks.shared.given_base import base_folder, joined
from benchmarks.shared.recipe_loop import codec_of
from benchmarks.shared.right_share import RightShare
from benchmarks.shared.warm_starts import Work
from models.base.errors import UserError
from models.method.alarm import Collapse
from models.method.problem import Problem
from models.policies.base_models.catalogue import entry_of
from models.recipes.load import load_recipe
from models.training.clock import STAGES
from tests.support.tiny_gguf import tiny_model, write_gguf

ROOT = Path(__file__).resolve().parents[2]
TINY = (
    "warm_start.steps=2", "warm_start.batch=8", "policy.size.hidden=32", "policy.size.layers=1", "policy.size.heads=2",
    "policy.size.key_value_heads=1", "policy.size.feed_forward=32", "rollouts.prompts=2", "rollouts.group_size=2",
    "rollouts.max_tokens=8", "evaluation.problems=6", "evaluation.samples=2", "evaluation.ks=[1]",
    "reward_model.fit.epochs=1", "select={name: all}",
)  # fmt: skip


def a_round(number: int, accuracy: float) -> CurveRound:
    spent = dict.fromkeys((*STAGES, "round"), 0.5)
    return CurveRound(number, accuracy + 0.1, accuracy, spent, {"learn": 100.0}, 20.0, 0.3, 0.0, 1.0)


def a_curve(device: str, accuracies: list[float]) -> Curve:
    made = Curve({"cpu": "a processor"}, device, {"seed": 0}, "float32", {"rounds": 5.0})
    made.rounds = [a_round(number, accuracy) for number, accuracy in enumerate(accuracies, 1)]
    made.before, made.after = HeldOutResults(0.3, 0.4, 20.0, 6, 2), HeldOutResults(0.8, 0.85, 18.0, 6, 2)
    return made


def test_a_curve_reads_back_as_it_was_written(tmp_path: Path) -> None:
    curve = a_curve("cpu", [0.25, 0.5])
    curve.write(tmp_path / "new" / "curve.json")
    assert read(tmp_path / "new" / "curve.json") == curve


def test_stretches_hold_every_round_once() -> None:
    curve = a_curve("cpu", [0.0] * 23)
    parts = windows(curve.rounds)
    assert list(parts) == ["1 to 10", "11 to 20", "21 to 23"]
    assert [each for part in parts.values() for each in part] == curve.rounds


def test_two_curves_stand_beside_each_other_with_their_largest_gap() -> None:
    here, there = a_curve("cuda", [0.2] * 10 + [0.5] * 10), a_curve("cpu", [0.3] * 10 + [0.45] * 10)
    text = compare_curves(here, there)
    assert "largest gap in means of up to 10 rounds: -10.0%, in rounds 1 to 10" in text
    assert "11 to 20" in text and "+5.0%" in text
    shorter = replace(there, rounds=there.rounds[:5])
    assert compare_curves(here, shorter) == "cpu: no rounds in common"


def test_a_table_of_what_came_before_an_error_says_so() -> None:
    broken = a_curve("cpu", [])
    broken.after, broken.stopped = None, "stopped: UserError: the canary"
    assert table(broken).splitlines()[-1] == "stopped: UserError: the canary"
    assert "held out after" not in table(broken)


def test_the_other_curve_is_looked_for_beside_the_file_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept, own = tmp_path / "kept", tmp_path / "own"
    monkeypatch.setattr(main_curve, "RESULTS", kept)
    assert main_curve.other_file("cuda", own / "c.json") is None
    a_curve("cpu", [0.1]).write(kept / "main_curve_cpu.json")
    assert main_curve.other_file("cuda", own / "c.json") == kept / "main_curve_cpu.json"
    a_curve("cpu", [0.1]).write(own / "main_curve_cpu.json")
    assert main_curve.other_file("cuda", own / "c.json") == own / "main_curve_cpu.json"
    assert main_curve.other_file("cpu", own / "c.json") is None


def test_without_a_device_it_says_so_in_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main_curve.main(["--device", "cuda"]) == 2
    assert capsys.readouterr().err == "no CUDA device is to be had; --device cpu trains on the processor\n"


def test_the_recipe_is_the_main_one_with_what_was_asked() -> None:
    asked = ["--device", "cpu", "--rounds", "7", "--seed", "3", "--precision", "bfloat16"]
    recipe = main_curve.recipe_of(main_curve.parser().parse_args(asked))
    assert (recipe.name, recipe.engine.name, recipe.seed) == ("arithmetic_long", "transformers", 3)
    assert (recipe.schedule.rounds, recipe.policy.precision) == (7, "bfloat16")
    plain = main_curve.recipe_of(main_curve.parser().parse_args(["--device", "cpu"]))
    assert (plain.schedule.rounds, plain.policy.precision, len(plain.rewards)) == (100, "auto", 2)


@pytest.mark.parametrize("path", sorted(main_curve.RESULTS.glob("main_curve_*.json")), ids=lambda path: path.name)
def test_every_curve_in_the_repository_is_whole_and_nothing_of_its_recipe_was_overridden(path: Path) -> None:
    curve = read(path)
    assert path.name == main_curve.file_name(curve.device) and curve.machine["cpu"]
    assert curve.settings["overrides"] == [] and curve.settings["seed"] == 0
    assert [each.number for each in curve.rounds] == list(range(1, len(curve.rounds) + 1))
    assert curve.before is not None and curve.after is not None
    assert len(curve.rounds) == curve.settings["rounds"] or curve.stopped.startswith("the minutes ended")


def test_the_guide_has_the_figures_of_the_curve_on_a_cpu() -> None:
    curve, page = read(main_curve.RESULTS / "main_curve_cpu.json"), (ROOT / "docs" / "benchmarks.md").read_text()
    assert curve.before is not None and curve.after is not None
    sampled, greedy = (
        f"from {getattr(curve.before, name):.1%}"[:-1] + f" to {getattr(curve.after, name):.1%}".replace("%", " %")
        for name in ("sampled", "greedy")
    )
    assert f"on {curve.before.problems} held-out problems rise {sampled} and greedy ones {greedy}" in page
    for label, part in windows(curve.rounds).items():
        reward, right, tokens = (mean(part, name) for name in ("reward", "accuracy", "length"))
        row = f"| {label} | {reward:.3f} | {right:.1%} | {tokens:.1f} | {seconds(part, 'round'):.2f} |"
        assert row.replace("%", " %") in page


@pytest.mark.slow
@pytest.mark.thorough
def test_a_tiny_run_leaves_all_that_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    file, once = tmp_path / "curve.json", tmp_path / "once"
    asked = ["--device", "cpu", "--rounds", "3", "--set", *TINY, "--out", str(file)]
    once.mkdir()
    Work(once).start(main_curve.recipe_of(main_curve.parser().parse_args(asked)))

    def with_data_and_start(place: Path, *data: Any) -> Work:
        for made in once.iterdir():
            (place / made.name).symlink_to(made)
        return Work(place, *data)

    monkeypatch.setattr(main_curve, "Work", with_data_and_start)
    assert main_curve.main(asked) == 0
    curve = read(file)
    assert [each.number for each in curve.rounds] == [1, 2, 3] and not curve.stopped
    assert all(set(each.seconds) == {*STAGES, "round"} for each in curve.rounds)
    assert all(each.tokens_a_second["generate"] > 0 and each.tokens_a_second["learn"] > 0 for each in curve.rounds)
    assert curve.before is not None and curve.after is not None and curve.pair_accuracy is not None
    assert (curve.before.problems, curve.before.samples) == (6, 2)
    stages = {"data", "warm_start", "reward_model", "opening", "evaluation", "rounds"}
    assert set(curve.seconds) == stages and all(spent > 0 for spent in curve.seconds.values())
    assert curve.precision in ("float32", "bfloat16") and curve.machine["cpu"]
    assert f"{file}: 3 rounds, " in capsys.readouterr().out

    budget = ["--minutes", "0", "--rounds", "3", "--set", *TINY, "--out", str(file)]
    assert main_curve.main(["--device", "cpu", *budget]) == 0
    stopped = read(file)
    assert len(stopped.rounds) == 1 and stopped.after is not None
    assert stopped.stopped == "the minutes ended after round 1 of 3"

    def broken(*_: object) -> HeldOutResults:
        raise ValueError("no such kernel")

    monkeypatch.setattr(main_curve, "held_out", broken)
    assert main_curve.main(["--device", "cpu", "--rounds", "1", "--set", *TINY, "--out", str(file)]) == 1
    assert read(file).stopped == "stopped: ValueError: no such kernel"
    assert "warm_start" in read(file).seconds


def test_a_recipe_that_there_is_not_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong in (["--rounds", "0"], ["--set", "schedule.round=3"]):
        assert main_curve.main(["--device", "cpu", *wrong]) == 2
        said = capsys.readouterr().err.strip()
        assert "schedule" in said and "\n" not in said


def test_where_the_alarm_stops_it_the_policy_that_was_kept_is_measured_and_the_curve_says_so(tmp_path: Path) -> None:
    policy, handed = torch.nn.Linear(2, 2), []
    training = SimpleNamespace(schedule=SimpleNamespace(rounds=9), policy=SimpleNamespace(base=None))
    engine = SimpleNamespace(load=lambda weights, version: handed.append((dict(weights), version)))
    collapse = Collapse(4, ("nothing ends",), kept=2)
    loop: Any = SimpleNamespace(
        training=training,
        resources=SimpleNamespace(engine=engine),
        learner=SimpleNamespace(policy=policy),
        run=lambda watchers: collapse,
    )
    curve = Curve({"cpu": "one"}, "cpu", {})
    main_curve._run(loop, curve, tmp_path / "curve.json", float("inf"))
    assert curve.stopped == str(collapse) and "kept the policy after round 2" in curve.stopped
    ((weights, version),) = handed
    assert version == 2 and torch.equal(weights["weight"], policy.weight)


def test_files_of_other_recipes_have_names_of_their_own(tmp_path: Path) -> None:
    assert main_curve.file_name("cpu") == main_curve.file_name("cpu", "arithmetic_long") == "main_curve_cpu.json"
    assert main_curve.file_name("cuda", "smollm2_gsm8k") == "real_curve_smollm2_gsm8k_cuda.json"
    a_curve("cpu", [0.1]).write(tmp_path / "real_curve_smollm2_gsm8k_cpu.json")
    there = main_curve.other_file("cuda", tmp_path / "c.json", "smollm2_gsm8k")
    assert there == tmp_path / "real_curve_smollm2_gsm8k_cpu.json"


def test_a_recipe_that_cannot_be_drawn_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for wrong, said in (
        (["--base", "a.whl"], "--base: the recipe arithmetic_long begins with a new policy"),
        (["--recipe", "real/smollm2_hh_reward_model", "--set", "data.path=pairs.jsonl"], "of its own"),
        (["--recipe", "nothing_of_the_kind"], "nothing_of_the_kind"),
    ):
        assert main_curve.main(["--device", "cpu", *wrong]) == 2
        line = capsys.readouterr().err.strip()
        assert said in line and "\n" not in line


def test_parts_are_joined_in_the_order_in_which_they_are_given(tmp_path: Path) -> None:
    first, second = tmp_path / "b", tmp_path / "a"
    first.write_bytes(b"one "), second.write_bytes(b"two")
    assert joined([first, second], tmp_path / "whole").read_bytes() == b"one two"
    with pytest.raises(UserError, match="no such file"):
        joined([first, tmp_path / "c"], tmp_path / "whole")


def test_a_base_is_converted_from_its_parts_beside_the_state_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARDFLOW_HOME", str(tmp_path / "home"))
    content = write_gguf(tmp_path / "tiny.gguf", tiny_model("llama"), "llama").read_bytes()
    parts = [tmp_path / "1", tmp_path / "2"]
    parts[0].write_bytes(content[:5000]), parts[1].write_bytes(content[5000:])
    entry = replace(entry_of("smollm2-135m-instruct"), gguf_sha256=hashlib.sha256(content).hexdigest())
    monkeypatch.setattr(given_base, "entry_of", lambda name: entry)
    folder = base_folder(entry.name, parts, tmp_path / "work")
    assert folder.parent == tmp_path / "work" and (folder / "model.safetensors").is_file()
    assert not (tmp_path / "home").exists() and not (folder / "unpacked").exists()
    assert base_folder(entry.name, parts, tmp_path / "work") == folder
    with pytest.raises(UserError, match="expected is"):
        base_folder(entry.name, parts[::-1], tmp_path / "other")
    with pytest.raises(UserError, match="is not on this machine"):
        base_folder(entry.name, [], tmp_path / "work")


def test_what_is_right_is_watched_and_adds_nothing_to_the_reward() -> None:
    share = RightShare(lambda attempts: [attempt.text == "yes" for attempt in attempts])
    problem = Problem("p", "?", "yes")
    rollouts: Any = [SimpleNamespace(problem=problem, text=text, finished=True) for text in ("yes", "no")]
    resources: Any = None
    assert (share.label, share.weight) == ("right", 0.0) and share(resources, rollouts).tolist() == [1.0, 0.0]


@pytest.mark.rotating(of=6)
def test_a_tiny_base_is_measured_warm_started_and_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    base = tmp_path / "base"
    base.mkdir()
    given_base.convert(write_gguf(tmp_path / "tiny.gguf", tiny_model("llama"), "llama"), base)
    for split in ("train", "test"):
        rows = [{"question": f"{split}: {n} + {n}?", "answer": f"Twice.\n#### {2 * n}"} for n in range(12)]
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    changed = [
        f"policy.base={base}", f"data.path={tmp_path}/train.jsonl", f"data.test_path={tmp_path}/test.jsonl",
        "warm_start.steps=2", "warm_start.batch=2", "rollouts.prompts=2", "rollouts.group_size=2",
        "rollouts.max_tokens=8", "evaluation.problems=3", "evaluation.max_tokens=8", "select={name: all}",
        "data.validation_share=0.4", "data.gate_share=0.4", "policy.precision=float32",
    ]  # fmt: skip
    file = tmp_path / "curve.json"
    asked = ["--device", "cpu", "--recipe", "real/smollm2_gsm8k", "--rounds", "2", "--out", str(file)]
    assert main_curve.main([*asked, "--work", str(tmp_path / "work"), "--set", *changed]) == 0
    curve = read(file)
    assert [each.number for each in curve.rounds] == [1, 2] and curve.settings["recipe"] == "smollm2_gsm8k"
    assert all(held is not None and held.problems == 3 for held in (curve.base, curve.before, curve.after))
    assert set(curve.seconds) == {"data", "base", "warm_start", "opening", "evaluation", "rounds"}
    assert curve.warm_start_loss is not None and "held out base" in table(curve)
    assert [each.name.split("_")[0] for each in (tmp_path / "work").iterdir()] == ["prepared"]
    codec = codec_of(load_recipe("real/smollm2_gsm8k", changed), base)
    (ids,) = codec.prompts(["1 + 1?"])
    asked_for = "1 + 1? Let's think step by step and output the final answer after"
    assert codec.tokenizer.decode(ids).startswith(f"<user>{asked_for}")
