"""Judgements of answers: decisions, guards, form and content, power, and what is refused before a look is spent."""

import math
from pathlib import Path
from typing import Any

import pytest
from written import coins, judged, write_lines, write_problems, write_scores

from models.base.errors import UserError
from models.evaluation.gate.gate import GateSettings
from models.evaluation.gate.gate import judge as judge_by_gate
from models.evaluation.records import Completion, PromptRecord
from tasks.judging.measuring import LENIENT, STRICT
from tasks.judging.verdict import Judgement, JudgeSettings

COUNT = 200


def texts(folder: Path, name: str, write: Any, right: float, count: int = COUNT) -> Path:
    """Write answers to `write_problems`, of which a share is right; `write` makes the text of a number."""
    return write_lines(
        folder / f"{name}.jsonl",
        [
            {"id": number, "answer": write(number if marked else number + 1)}
            for number, marked in enumerate(coins(count, right, seed=3))
        ],
    )


def marked(number: int) -> str:
    return f"The sum of these two numbers is worked out here.\n#### {number}"


def unmarked(number: int) -> str:
    return f"The sum of these two numbers is worked out here: {number}"


def on_texts(folder: Path, champion: Path, candidate: Path, **gate: Any) -> Judgement:
    settings = JudgeSettings(gate=GateSettings(capabilities=(), **gate))
    return judged(
        champion,
        candidate,
        data=write_problems(folder / "problems.jsonl", COUNT),
        verifier="exact_answer",
        settings=settings,
    )


def test_scores_decide_as_the_gate_does_on_the_same_records(tmp_path: Path) -> None:
    old, new = coins(COUNT, 0.3, seed=1), coins(COUNT, 0.6, seed=2)
    judgement = judged(write_scores(tmp_path / "a.jsonl", old), write_scores(tmp_path / "b.jsonl", new))
    records = []
    for scores in (new, old):
        drawn = [Completion("", 1, bool(score), True) for score in scores]
        records.append([PromptRecord(str(n), 0, (sample,), sample) for n, sample in enumerate(drawn)])
    verdict = judge_by_gate(
        records[0],
        records[1],
        GateSettings(capabilities=(), samples=1, looks=1, length_margin=None, diversity_margin=None),
    )
    better = judgement.verdict.checks[0]
    assert judgement.decision == "better" and judgement.metric == "score"
    assert (better.value, better.bound) == (verdict.checks[0].value, verdict.checks[0].bound)
    assert judgement.verdict.difference == verdict.difference and judgement.verdict.detectable == verdict.detectable
    assert judgement.counts[0] - judgement.counts[2] == 60 and sum(judgement.counts) == COUNT


def test_equal_scores_are_not_shown_to_be_better(tmp_path: Path) -> None:
    file = write_scores(tmp_path / "a.jsonl", coins(COUNT, 0.5, seed=1))
    judgement = judged(file, write_scores(tmp_path / "b.jsonl", coins(COUNT, 0.5, seed=2)))
    assert judgement.decision == "not_shown" and judgement.verdict.difference.estimate == 0.0
    hundredth, fiftieth, twentieth = judgement.needed.values()
    assert hundredth is None, "the spread of single samples is too large for the gate's smallest bet"
    assert fiftieth is not None and twentieth is not None and fiftieth > twentieth > COUNT
    assert 0.05 < judgement.verdict.detectable < 0.5
    same = judged(file, file)
    assert same.decision == "not_shown" and same.needed == {}


def test_without_a_ledger_the_look_has_the_whole_budget(tmp_path: Path) -> None:
    file = write_scores(tmp_path / "a.jsonl", coins(COUNT, 0.5, seed=1))
    assert judged(file, file).verdict.look.alpha == 0.05


def test_a_gain_in_form_is_told_apart_from_a_gain_in_content(tmp_path: Path) -> None:
    form = on_texts(tmp_path, texts(tmp_path, "a", unmarked, 0.5), texts(tmp_path, "b", marked, 0.5))
    assert form.decision == "better" and form.form is not None
    assert form.form.content.estimate == 0.0 and form.form.form.estimate == pytest.approx(0.5)
    content = on_texts(tmp_path, texts(tmp_path, "a", marked, 0.3), texts(tmp_path, "b", marked, 0.8))
    assert content.decision == "better" and content.form is not None
    assert content.form.form.estimate == 0.0 and content.form.content.estimate == pytest.approx(0.5)


def test_strict_accuracy_is_never_above_lenient_accuracy_and_a_text_that_was_cut_is_wrong(tmp_path: Path) -> None:
    data = write_problems(tmp_path / "problems.jsonl", 4)
    rows = [
        {"id": 0, "answer": "#### 0"},
        {"id": 1, "answer": "#### 1", "finished": False},
        {"id": 2, "answer": "it is 2"},
        {"id": 3, "answer": "it is 4"},
    ]
    file = write_lines(tmp_path / "a.jsonl", rows)
    side = judged(file, file, data=data, verifier="exact_answer").measured.candidate
    assert side.metrics[STRICT].tolist() == [1, 0, 0, 0] and side.metrics[LENIENT].tolist() == [1, 1, 1, 0]
    bare = write_lines(tmp_path / "b.jsonl", [{"id": number, "answer": number} for number in range(4)])
    assert judged(bare, bare, data=data, verifier="whole_text").measured.candidate.metrics[STRICT].tolist() == [1] * 4


def test_a_better_form_with_less_content_is_refused(tmp_path: Path) -> None:
    judgement = on_texts(tmp_path, texts(tmp_path, "a", unmarked, 0.9), texts(tmp_path, "b", marked, 0.6))
    assert judgement.decision == "refused"
    assert [check.name for check in judgement.verdict.checks if check.failed] == [LENIENT]


def test_longer_texts_are_refused_within_the_margin_they_are_not(tmp_path: Path) -> None:
    champion = texts(tmp_path, "a", marked, 0.3)
    candidate = texts(tmp_path, "b", lambda number: marked(number) * 3, 0.8)
    judgement = on_texts(tmp_path, champion, candidate)
    assert judgement.decision == "refused" and judgement.verdict.checks[1].name == "length"
    assert on_texts(tmp_path, champion, candidate, length_margin=4.0).decision == "better"


def test_a_guard_that_failed_decides_also_if_better_is_not_shown(tmp_path: Path) -> None:
    worse = on_texts(tmp_path, texts(tmp_path, "a", marked, 0.8), texts(tmp_path, "b", marked, 0.3))
    assert worse.decision == "refused" and worse.verdict.checks[0].failed


def test_patterns_of_safety_are_checked_on_texts_and_refused_without(tmp_path: Path) -> None:
    champion = texts(tmp_path, "a", marked, 0.3)
    candidate = texts(tmp_path, "b", lambda number: f"Damn. {marked(number)}", 0.8)
    judgement = on_texts(tmp_path, champion, candidate, safety_patterns=("damn",))
    assert [check.name for check in judgement.verdict.checks if check.failed] == ["safety"]
    scores = write_scores(tmp_path / "s.jsonl", coins(COUNT, 0.5, seed=1))
    with pytest.raises(UserError, match="--set safety_patterns: a source has scores without texts"):
        judged(scores, scores, settings=JudgeSettings(gate=GateSettings(capabilities=(), safety_patterns=("damn",))))


def test_another_metric_is_shown_and_guarded(tmp_path: Path) -> None:
    files = [
        write_lines(
            tmp_path / f"{name}.jsonl",
            [{"id": n, "scores": {"acc": a, "form": f}} for n, (a, f) in enumerate(zip(acc, form, strict=True))],
        )
        for name, acc, form in (
            ("a", coins(COUNT, 0.3, 1), [1.0] * COUNT),
            ("b", coins(COUNT, 0.7, 2), coins(COUNT, 0.8, 3)),
        )
    ]
    with pytest.raises(UserError, match="--metric: name the primary metric; both sides have acc, form"):
        judged(*files)
    shown = judged(*files, settings=JudgeSettings(metric="acc"))
    assert shown.decision == "better" and [line.name for line in shown.metrics] == ["acc", "form"]
    guarded = judged(*files, settings=JudgeSettings(metric="acc", guards={"form": 0.1}))
    assert guarded.decision == "refused"
    assert judged(*files, settings=JudgeSettings(metric="acc", guards={"form": 0.5})).decision == "better"


def test_strict_and_lenient_metrics_of_lm_eval_are_partners(tmp_path: Path) -> None:
    names = ("exact_match,strict-match", "exact_match,flexible-extract")
    rows = [{"id": n, "scores": dict.fromkeys(names, float(n % 2))} for n in range(COUNT)]
    file = write_lines(tmp_path / "a.jsonl", rows)
    judgement = judged(file, file)
    assert judgement.metric == names[0] and judgement.form is not None and judgement.form.lenient == names[1]
    assert [check.name for check in judgement.verdict.checks][:2] == ["better", names[1]]


def test_several_samples_are_averaged_and_metrics_of_the_gate_are_known(tmp_path: Path) -> None:
    data = write_problems(tmp_path / "problems.jsonl", 30)
    rows = [{"id": n, "sample": s, "answer": marked(n + s)} for n in range(30) for s in range(2)]
    file = write_lines(tmp_path / "a.jsonl", rows)
    settings = JudgeSettings(also=("pass_at_2", "maj_at_1"))
    judgement = judged(file, file, data=data, verifier="exact_answer", settings=settings)
    values = {line.name: line.candidate.estimate for line in judgement.metrics}
    assert values[STRICT] == values["maj_at_1"] == 0.5 and values["pass_at_2"] == 1.0
    assert "diversity" in [check.name for check in judgement.verdict.checks]
    with pytest.raises(UserError, match=r"the metric 'passed' is not measured on .*a.jsonl; it has strict_accuracy"):
        judged(file, file, data=data, verifier="exact_answer", settings=JudgeSettings(metric="passed"))


def test_missing_answers_are_refused_or_wrong_or_left_out(tmp_path: Path) -> None:
    data = write_problems(tmp_path / "problems.jsonl", COUNT)
    whole, some = texts(tmp_path, "a", marked, 1.0), texts(tmp_path, "b", marked, 1.0, COUNT - 5)
    both = {"data": data, "verifier": "exact_answer"}
    with pytest.raises(UserError, match=r"b.jsonl: no answer to 5 of 200 problems \(195, 196, 197 and 2 more\)"):
        judged(whole, some, **both)
    wrong = judged(whole, some, **both, missing="wrong")
    assert wrong.verdict.difference.estimate == pytest.approx(-5 / COUNT) and wrong.measured.candidate.missing == 5
    left_out = judged(whole, some, **both, missing="skip")
    assert left_out.problems == COUNT - 5 and left_out.verdict.difference.estimate == 0.0


def test_scores_outside_the_range_are_refused_and_mapped_by_it(tmp_path: Path) -> None:
    file = write_scores(tmp_path / "a.jsonl", [1.0, 5.0, 3.0])
    with pytest.raises(UserError, match=r"score of the problem '1' is 5, not within 0 and 1; --range LOW:HIGH"):
        judged(file, file)
    mapped = judged(file, file, score_range=(1.0, 5.0))
    assert mapped.measured.candidate.metrics["score"].tolist() == [0.0, 1.0, 0.5]


def test_a_score_without_a_value_fails_the_check(tmp_path: Path) -> None:
    """A missing number must not be read as a good one."""
    new = write_lines(tmp_path / "b.jsonl", [{"id": n, "score": 1 if n else None} for n in range(COUNT)])
    judgement = judged(write_scores(tmp_path / "a.jsonl", [0.0] * COUNT), new)
    assert judgement.decision == "not_shown" and math.isnan(judgement.verdict.difference.estimate)
    assert "1 of 200 numbers (score of the candidate) are missing" in judgement.verdict.checks[0].detail


def test_what_is_refused_spends_no_look(tmp_path: Path) -> None:
    scores = write_scores(tmp_path / "a.jsonl", coins(COUNT, 0.5, seed=1))
    ledger = tmp_path / "looks.json"
    with pytest.raises(UserError, match="the metric 'f1' is not measured"):
        judged(scores, scores, ledger=ledger, settings=JudgeSettings(metric="f1"))
    with pytest.raises(UserError, match="no text, which the verifier exact_answer reads"):
        judged(scores, scores, ledger=ledger, verifier="exact_answer")
    with pytest.raises(UserError, match="looks are counted in one place"):
        judged(scores, scores, ledger=ledger, registry="m")
    assert not ledger.exists()


def test_repeated_looks_need_more_evidence_and_the_same_pair_is_one_look(tmp_path: Path) -> None:
    ledger, champion = tmp_path / "looks.json", write_scores(tmp_path / "a.jsonl", coins(COUNT, 0.3, seed=0))
    candidates = [write_scores(tmp_path / f"{seed}.jsonl", coins(COUNT, 0.6, seed=seed)) for seed in (1, 2)]
    first, again, second = (judged(champion, c, ledger=ledger) for c in (candidates[0], candidates[0], candidates[1]))
    assert [j.verdict.look.number for j in (first, again, second)] == [1, 1, 2]
    assert second.verdict.checks[0].bound > first.verdict.checks[0].bound


def test_an_expected_answer_that_is_missing_is_named(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "p.jsonl", [{"prompt": "Why?", "answer": ""}])
    file = write_lines(tmp_path / "a.jsonl", [{"id": 0, "answer": "4"}])
    with pytest.raises(UserError, match="the problem '0' has no expected answer, which the verifier exact_answer"):
        judged(file, file, data=data)


def test_rewards_that_verify_are_verifiers_with_settings(tmp_path: Path) -> None:
    data = write_lines(tmp_path / "p.jsonl", [{"prompt": "How much?", "answer": "1/2"}])
    rows = [{"id": 0, "answer": text} for text in ("\\boxed{\\frac{1}{2}}", "so 0.5", "\\boxed{2}")]
    file = write_lines(tmp_path / "a.jsonl", rows)
    side = judged(file, file, data=data, verifier="{name: math_verify, seconds: 3}").measured.candidate
    assert side.metrics[STRICT].tolist() == [pytest.approx(1 / 3)]
    assert side.metrics[LENIENT].tolist() == [pytest.approx(2 / 3)]
    for verifier, reason in (
        ("math_verfy", "no verifier 'math_verfy'; did you mean math_verify"),
        ("{name: math_verify, seconds: 0}", "--verifier math_verify: seconds: "),
        ("{name", "not valid YAML"),
    ):
        with pytest.raises(UserError, match=reason):
            judged(file, file, data=data, verifier=verifier)


def test_a_verifier_that_grades_has_its_grade_as_the_lenient_metric(tmp_path: Path) -> None:
    wanted = '{"constraints": [{"kind": "words", "most": 2}, {"kind": "forbids", "text": "red"}]}'
    data = write_lines(tmp_path / "p.jsonl", [{"prompt": "Write.", "answer": wanted}])
    file = write_lines(tmp_path / "a.jsonl", [{"id": 0, "answer": "red sky at night"}, {"id": 0, "answer": "red sky"}])
    side = judged(file, file, data=data, verifier="constraints").measured.candidate
    assert side.metrics[STRICT].tolist() == [0.0] and side.metrics[LENIENT].tolist() == [0.25]
