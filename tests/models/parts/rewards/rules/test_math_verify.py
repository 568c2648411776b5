"""Comparison of answers as mathematics, tested with real solutions, equivalent forms and hostile answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, cast

import pytest
from sympy import parse_expr

from models.answers import expression_workers
from models.answers.answers import extract_answer
from models.answers.exact import is_right
from models.answers.expression_workers import ExpressionWorkers, NotReady, Pair, shared_workers
from models.base.errors import UserError
from models.method.attempt import Attempt
from models.method.problem import Problem
from models.method.resources import RunResources
from models.parts.rewards.rules import math_verify
from models.parts.rewards.rules.math_verify import MathVerify, is_doubtful
from models.task_sets.derivatives import DerivativesSettings
from models.task_sets.drawing import make_rows
from tests.support.malformed_texts import malformed, rollout

RESOURCES = cast(RunResources, None)
SETTINGS = DerivativesSettings(
    problems={"train": 12, "validation": 1}, demonstrations={"train": 24}, largest=9, kept=0.4, constant=0.4
)


@pytest.fixture(scope="module")
def workers() -> Iterator[ExpressionWorkers]:
    """Open the workers that the reward also uses, and close them at the end."""
    shared = shared_workers(2)
    yield shared
    shared.close()


def rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def solutions(shared_data: Path) -> list[tuple[str, str, bool]]:
    """Return solutions of GSM8K, each with its text, the problem's answer, and whether the text is right.

    There are 8,792 references, as many with a wrong number, and four model solutions of each test problem.
    """
    made = []
    for name in ("train", "test"):
        for row in rows(shared_data / f"gsm8k_{name}.jsonl"):
            answer = row["answer"].split("#### ")[1]
            made += [(row["answer"], answer, True), (f"{row['answer']}1", answer, False)]
    for row in rows(shared_data / "gsm8k_model_solutions.jsonl"):
        answer = extract_answer(row["ground_truth"]) or ""
        made += [(each["solution"], answer, each["is_correct"]) for each in row.values() if isinstance(each, dict)]
    assert len(made) == 2 * 8792 + 4 * 1319
    return made


@pytest.mark.rotating(of=6)
def test_gsm8k_s_references_and_model_solutions_are_judged_as_their_labels_say(shared_data: Path) -> None:
    made = solutions(shared_data)
    attempts = [Attempt(Problem("p", "", answer), text, True) for text, answer, _ in made]
    assert MathVerify().right(attempts) == [right for _, _, right in made]


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.thorough) for part in range(1, 8))])
def test_math_verify_itself_judges_them_alike(shared_data: Path, workers: ExpressionWorkers, part: int) -> None:
    labels = {(extract_answer(text) or "", answer): right for text, answer, right in solutions(shared_data)}
    pairs = list(labels)[part::8]
    assert len(pairs) > 500
    assert workers.same(pairs) == [labels[pair] for pair in pairs]


SAME = [
    ("6 + 2x", "2x + 6"), ("(x+1)^2", "x^2+2x+1"), ("2\\sqrt{2}", "\\sqrt{8}"),
    ("\\frac{1}{\\sqrt{2}}", "\\frac{\\sqrt{2}}{2}"),
    ("{2, 1}", "\\{1, 2\\}"), ("x = 2\\pi", "2\\pi"), ("(-\\infty, 3]", "x \\le 3"), ("$\\frac{x}{2}$", "0.5x"),
    ("\\begin{pmatrix}1&2\\\\3&4\\end{pmatrix}", "\\begin{bmatrix}1&2\\\\3&4\\end{bmatrix}"),
    ("\\text{Paris}", "Paris"),
    ("1,200 dollars", "1200"),
    ("y = 5, x = 6", "x=6, y=5"), ("x = 6 and y = \\sqrt{8}", "x=6, y=2\\sqrt{2}"), ("(6, 5)", "x=6, y=5"),
    ("x = 3, x = 2", "x = 2, x = 3"),
]  # fmt: skip
OTHER = [
    ("6 - 2x", "2x + 6"), ("y + 6", "x + 6"), ("0.333333", "1/3"), ("sirap", "Paris"), ("yx", "xy"), ("x \\pm 1", "x"),
    ("5 or 6", "5"), ("\\{1\\}", "\\{1, 2\\}"), ("x", "x" * 500), ("x" * 500, "x"), ("3x", ""),
    ("x + 1 = x + 1", "x + 2"),
    ("x = 5, y = 6", "x=6, y=5"), ("\\{5, 6\\}", "x=6, y=5"), ("5 or 6", "x=6, y=5"), ("x = 6", "x=6, y=5"),
    ("x = 6, z = 5", "x=6, y=5"), ("x = 6, y = 5, y = 4", "x=6, y=5"),
]  # fmt: skip


@pytest.mark.parametrize(("pairs", "worth"), [(SAME, 1.0), (OTHER, 0.0)], ids=["same", "other"])
def test_the_same_mathematics_is_right_and_nothing_else_is(
    pairs: list[Pair], worth: float, workers: ExpressionWorkers
) -> None:
    values = MathVerify()(RESOURCES, [rollout(f"#### {given}", Problem("p", "", right)) for given, right in pairs])
    assert values.tolist() == [worth] * len(pairs)


def test_what_was_cut_is_wrong_and_evaluations_decide_alike(workers: ExpressionWorkers) -> None:
    problem = Problem("p", "", "2x + 6")
    assert MathVerify()(RESOURCES, [rollout("#### 6 + 2x", problem, finished=False)]).tolist() == [0.0]
    attempts = [Attempt(problem, text, ended) for text, ended in (("#### 6 + 2x", True), ("#### 6 + 2x", False))]
    assert MathVerify().right(attempts) == [True, False]


def test_expected_numbers_and_words_are_left_to_the_exact_rule() -> None:
    assert not any(map(is_doubtful, [("0.333333", "1/3"), ("ab", "x + 1"), ("x", "two words"), ("", "x"), (" ", "x")]))
    assert not any(map(is_doubtful, [("2x", "3"), ("\\pi", "3.14"), ("\\sqrt{25}", "5"), ("10^3", "1000")]))
    assert all(map(is_doubtful, [("x", "y"), ("5", "x"), ("3.14", "\\pi")]))


@pytest.mark.thorough
def test_an_answer_that_never_ends_costs_its_own_verdict_alone(workers: ExpressionWorkers) -> None:
    endless = ["9^{9^{9^{9}}}", "10^{10^{10}} x", "(((" * 100, "\\frac{" * 60, "x^" * 100]
    began = time.monotonic()
    assert workers.same([("2x", "x + x"), *((text, "x + 1") for text in endless), ("x^2", "x x")]) == [
        True, *[False] * len(endless), True,
    ]  # fmt: skip
    assert time.monotonic() - began < 40


@pytest.mark.thorough
def test_a_worker_that_is_killed_or_hangs_beyond_signals_is_replaced() -> None:
    workers = ExpressionWorkers(1, count=1)
    try:
        assert workers.same([("2x", "x + x")]) == [True]
        [worker] = workers._workers
        os.kill(worker.process.pid, signal.SIGSTOP)  # like code that never handles signals
        assert workers.same([("2x", "x + x"), ("3x", "x + 2x"), ("x", "y")]) == [False, True, False]
        [worker] = workers._workers
        os.kill(worker.process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, worker.process.pid, os.WEXITED | os.WNOWAIT)
        assert workers.same([("2x", "x + x"), ("3x", "x + 2x")]) == [True, True]  # it was idle when it was killed
        [last] = workers._workers
    finally:
        workers.close()
    assert last.process.poll() is not None


@pytest.mark.rotating(of=6)
def test_workers_that_ended_with_the_thread_that_started_them_cost_no_verdict() -> None:
    workers = ExpressionWorkers(seconds=2, count=1)
    pairs, verdicts = [("2x + 6", "2(x + 3)"), ("x + 1", "x + 2")], []
    for _ in range(2):
        thread = Thread(target=lambda: verdicts.append(workers.same(pairs)))
        thread.start()
        thread.join()
        workers._workers[0].process.wait(timeout=30)
    workers.close()
    assert verdicts == [[True, False]] * 2


@pytest.mark.thorough
def test_a_call_that_is_broken_off_leaves_no_answers_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    workers = ExpressionWorkers(2, count=1)
    assert workers.same([("x", "x")]) == [True]
    with monkeypatch.context() as patched:

        def interrupt(worker: object) -> bool:
            raise KeyboardInterrupt

        patched.setattr(workers, "_hangs", interrupt)
        with pytest.raises(KeyboardInterrupt):
            workers.same([("x", "y")] * 3)
    assert not workers._workers


@pytest.mark.thorough
def test_workers_end_with_the_process_that_started_them() -> None:
    code = (
        "import os; from models.answers.expression_workers import ExpressionWorkers as E\n"
        "w = E(2, count=1); w.same([('x', 'x')]); print(w._workers[0].process.pid, flush=True); os.kill(os.getpid(), 9)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    place, deadline = Path("/proc") / ended.stdout.strip(), time.monotonic() + 10
    while running(place) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert ended.stdout.strip().isdigit() and not running(place)


def running(process: Path) -> bool:
    try:
        return (process / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_process_that_does_not_start_is_a_failure_and_no_verdict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "broken.py"
    broken.write_text("raise SystemExit(1)")
    monkeypatch.setattr(expression_workers, "_INSIDE", broken)
    with pytest.raises(NotReady, match="does not start"):
        ExpressionWorkers(2, count=1).same([("x", "x")])


def test_without_the_package_a_recipe_is_refused_before_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    MathVerify().try_out()
    monkeypatch.setattr(math_verify, "can_compare", partial(bool, 0))
    with pytest.raises(UserError, match=r"rewards\.math_verify: the package math-verify is not installed"):
        MathVerify().try_out()


@pytest.mark.parametrize("answer", ["7", "2x + 6", "Paris"])
def test_whatever_is_written_is_worth_one_or_zero(answer: str, workers: ExpressionWorkers) -> None:
    assert set(MathVerify()(RESOURCES, malformed(Problem("p", "", answer))).tolist()) <= {0.0, 1.0}


def test_sound_derivatives_are_right_in_either_order_and_flawed_ones_are_not(workers: ExpressionWorkers) -> None:
    made = make_rows(SETTINGS)
    answers = {str(row["prompt"]): str(row["answer"]) for row in made["problems"]["train"]}
    for prompt, answer in answers.items():
        polynomial, derived = (parse_expr(text.replace(" x", "*x").replace("^", "**")) for text in (prompt[7:], answer))
        assert polynomial.diff() == derived, prompt
    shown = made["demonstrations"]["train"]
    assert {row["flaw"] for row in shown} == {"none", "kept", "constant"}
    attempts = [Attempt(Problem("p", "", answers[str(row["prompt"])]), str(row["completion"]), True) for row in shown]
    assert MathVerify().right(attempts) == [row["flaw"] == "none" for row in shown]
    by_letter = [is_right(text, problem.answer, finished=True) for problem, text, _ in attempts]
    assert 0 < sum(by_letter) < sum(row["flaw"] == "none" for row in shown)
