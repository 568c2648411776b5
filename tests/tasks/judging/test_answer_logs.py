"""Files of answers as this project and other programs write them: what is read, and what is refused."""

import json
import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from written import write_lines

from models.base.errors import UserError
from tasks.judging.answers import AnswerSet
from tasks.judging.read_answers import log_in_folder, read_answers


def read(file: Path) -> AnswerSet:
    return read_answers(file, file.name)


def lm_eval_row(document: int, filter_name: str, right: float, repeats: int = 1) -> dict[str, Any]:
    """Return a row of `samples_gsm8k_DATE.jsonl` of lm-eval 0.4.13: a document is written once for each filter."""
    return {
        "doc_id": document,
        "doc": {"question": f"question {document}", "answer": "work\n#### 4"},
        "target": "work\n#### 4",
        "arguments": {"gen_args_0": {"arg_0": f"Question: question {document}\nAnswer:", "arg_1": {"until": ["Q:"]}}},
        "resps": [[f"text {number}" for number in range(repeats)]],
        "filtered_resps": ["4"],
        "filter": filter_name,
        "metrics": ["exact_match"],
        "doc_hash": "d",
        "prompt_hash": "p",
        "target_hash": "t",
        "exact_match": right,
    }


def test_own_format_has_texts_scores_and_several_samples(tmp_path: Path) -> None:
    rows = [
        {"id": 1, "sample": 0, "answer": "#### 4", "score": True, "tokens": 3, "comment": "not read"},
        {"id": "1", "sample": 1, "completion": [{"role": "assistant", "content": "five"}], "finished": False},
        {"prompt": "What?", "scores": {"f1": 0.5, "exact": None}},
    ]
    first, second, third = read(write_lines(tmp_path / "a.jsonl", rows)).answers
    assert (first.problem, first.text, first.scores, first.finished, first.tokens) == (
        "1",
        "#### 4",
        {"score": 1},
        True,
        3,
    )
    assert (second.problem, second.text, second.finished) == ("1", "five", False)
    assert (
        third.problem == "" and third.text is None and third.scores["f1"] == 0.5 and math.isnan(third.scores["exact"])
    )


def test_two_filters_of_lm_eval_become_two_metrics_of_one_answer(tmp_path: Path) -> None:
    rows = [lm_eval_row(d, f, r) for f, r in (("strict-match", 0.0), ("flexible-extract", 1.0)) for d in (0, 1)]
    log = read(write_lines(tmp_path / "samples_gsm8k_2026.jsonl", rows))
    assert log.kind == "lm-eval" and len(log.answers) == 2
    answer = log.answers[1]
    assert answer.problem == "1" and answer.text == "text 0" and answer.prompt.startswith("Question: question 1")
    assert answer.scores == {"exact_match,strict-match": 0.0, "exact_match,flexible-extract": 1.0}
    assert answer.expected == "work\n#### 4"


def test_one_filter_of_lm_eval_keeps_the_plain_name_and_repeats_are_samples(tmp_path: Path) -> None:
    log = read(write_lines(tmp_path / "a.jsonl", [lm_eval_row(0, "none", 1.0, repeats=3)]))
    assert [answer.text for answer in log.answers] == ["text 0", "text 1", "text 2"]
    assert log.answers[0].scores == {"exact_match": 1.0}


def test_multiple_choice_of_lm_eval_has_scores_without_texts(tmp_path: Path) -> None:
    row = lm_eval_row(0, "none", 1.0) | {
        "resps": [[["-1.2", "False"]], [["-0.3", "True"]]],
        "metrics": ["acc", "bleu"],
        "acc": 1,
        "bleu": ["reference", "text"],
    }
    (answer,) = read(write_lines(tmp_path / "a.jsonl", [row])).answers
    assert answer.text is None and answer.scores == {"acc": 1.0}


def test_chat_prompts_of_lm_eval_are_read_as_messages(tmp_path: Path) -> None:
    messages = json.dumps([{"role": "system", "content": "Think."}, {"role": "user", "content": "How\nmany?"}])
    row = lm_eval_row(0, "none", 1.0) | {"arguments": {"gen_args_0": {"arg_0": messages}}}
    assert read(write_lines(tmp_path / "a.jsonl", [row])).answers[0].prompt == "Think.\n\nHow\nmany?"


def test_two_evaluations_in_one_log_of_lm_eval_are_refused(tmp_path: Path) -> None:
    file = write_lines(tmp_path / "a.jsonl", [lm_eval_row(0, "none", 1.0), lm_eval_row(0, "none", 0.0)])
    with pytest.raises(UserError, match=r"a.jsonl, line 2: document 0 occurs twice"):
        read(file)


def test_completions_of_trl_have_every_reward_function_as_a_metric(tmp_path: Path) -> None:
    table = pa.table(
        {
            "step": [5, 5],
            "prompt": [[{"role": "user", "content": "Why?"}], [{"role": "user", "content": "How?"}]],
            "completion": [[{"role": "assistant", "content": "So."}], [{"role": "assistant", "content": "Thus."}]],
            "accuracy_reward": [1.0, 0.0],
            "format_reward": [0.5, None],
            "advantage": [0.7, -0.7],
        }
    )
    pq.write_table(table, tmp_path / "completions_00005.parquet")
    log = read(tmp_path / "completions_00005.parquet")
    assert log.kind == "TRL" and log.score_names == ["accuracy_reward", "format_reward"]
    assert (log.answers[0].prompt, log.answers[0].text, log.answers[0].scores["accuracy_reward"]) == (
        "Why?",
        "So.",
        1.0,
    )
    assert math.isnan(log.answers[1].scores["format_reward"])


def test_rollouts_of_verl_have_their_score_and_other_numbers(tmp_path: Path) -> None:
    row = {
        "input": "user\nWhy?\nassistant\n",
        "output": "So.",
        "gts": "So",
        "score": 1.0,
        "step": 3,
        "acc": True,
        "pred": "So",
    }
    log = read(write_lines(tmp_path / "3.jsonl", [row]))
    (answer,) = log.answers
    assert log.kind == "verl" and answer.scores == {"score": 1.0, "acc": 1.0}
    assert (answer.prompt, answer.text, answer.expected) == (row["input"], "So.", "So")


def test_rollouts_of_prime_rl_are_read(tmp_path: Path) -> None:
    row = {
        "example_id": 7,
        "prompt": [{"role": "user", "content": "Why?"}],
        "completion": [
            {"role": "assistant", "content": "a"},
            {"role": "tool", "content": "b"},
            {"role": "assistant", "content": "c"},
        ],
        "answer": "c",
        "reward": 0.5,
        "is_completed": True,
        "is_truncated": True,
        "metrics": {"format": 1.0},
        "format": 1.0,
        "token_usage": {"input_tokens": 4.0, "output_tokens": 9.0},
    }
    log = read(write_lines(tmp_path / "train_rollouts.jsonl", [row]))
    (answer,) = log.answers
    assert log.kind == "prime-rl" and (answer.problem, answer.text, answer.expected) == ("7", "c", "c")
    assert answer.scores == {"reward": 0.5, "format": 1.0} and not answer.finished and answer.tokens == 9


def test_traces_of_newer_verifiers_are_read(tmp_path: Path) -> None:
    row = {
        "version": 1,
        "task": {"type": "Sum", "key": "k1", "data": {"idx": 0, "prompt": "Why?", "answer": "4"}},
        "nodes": [
            {"parent": None, "message": {"role": "user", "content": "Why?"}, "sampled": False},
            {
                "parent": 0,
                "message": {"role": "assistant", "content": [{"type": "text", "text": "4"}]},
                "sampled": True,
            },
        ],
        "calls": [{"node": 1, "finish_reason": "length"}],
        "rewards": {"correct": {"score": 1.0, "weight": 0.5}, "form": {"score": 1.0, "weight": 0.25}, "late": None},
        "metrics": {"turns": 1.0},
    }
    log = read(write_lines(tmp_path / "train_rollouts.jsonl", [row]))
    (answer,) = log.answers
    assert log.kind == "trace" and (answer.problem, answer.text, answer.expected) == ("k1", "4", "4")
    assert answer.scores == {"reward": 0.75, "turns": 1.0} and not answer.finished


def inspect_log(status: str = "success", **scores: Any) -> dict[str, Any]:
    sample = {
        "id": "s1",
        "epoch": 1,
        "input": [{"role": "user", "content": "Why?"}],
        "target": "4",
        "output": {
            "choices": [{"message": {"role": "assistant", "content": "It is 4"}, "stop_reason": "max_tokens"}],
            "completion": "It is 4",
            "usage": {"input_tokens": 3, "output_tokens": 5, "total_tokens": 8},
        },
        "scores": {name: {"value": value} for name, value in scores.items()},
    }
    return {"version": 2, "status": status, "eval": {"task": "sums"}, "samples": [sample, {**sample, "epoch": 2}]}


def test_logs_of_inspect_have_grades_as_numbers_and_epochs_as_samples(tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    file.write_text(json.dumps(inspect_log(match="C", judge="P", parts={"a": 1, "b": "I"}, words="Paris")))
    log = read(file)
    assert log.kind == "inspect" and [answer.problem for answer in log.answers] == ["s1", "s1"]
    answer = log.answers[0]
    assert answer.scores == {"match": 1.0, "judge": 0.5, "parts.a": 1.0, "parts.b": 0.0}
    assert (answer.text, answer.finished, answer.tokens, answer.expected) == ("It is 4", False, 5, "4")
    assert log.notes == ()


def test_the_status_of_a_stopped_log_of_inspect_is_noted(tmp_path: Path) -> None:
    file = tmp_path / "log.json"
    file.write_text(json.dumps(inspect_log("error", match="C")))
    assert read(file).notes == ("log.json: the status of the log is 'error', not success",)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.jsonl", '{"id": 1}\n', r"a.jsonl, line 1: no known format of answers; the row has id"),
        ("a.jsonl", '{"id": 1, "score": 1}\n{"id": 2, "scor": 1}\n', r"line 2: neither 'answer' nor 'score'"),
        ("a.jsonl", '{"id": 1, "score": "good"}\n', r"line 1: the score 'score' is 'good', not a number"),
        ("a.jsonl", '{"id": [1], "score": 1}\n', r"line 1: the id is '\[1\]', not a text or a whole number"),
        ("a.jsonl", '{"id": 1, "answer": "4", "tokens": -1}\n', r"line 1: 'tokens' is '-1', not a count"),
        ("a.jsonl", '{"id": 1, "answer": "4", "finished": 1}\n', r"line 1: 'finished' is '1', not true or false"),
        ("a.jsonl", '{"id": 1, "scores": [1]}\n', r"line 1: 'scores' is '\[1\]', not an object"),
        ("a.jsonl", '{"id": 1,\n', r"a.jsonl, line 1: not valid JSON"),
        ("a.jsonl", "", r"a.jsonl: no rows"),
        ("a.json", '{"results": {}}', r"a.json: neither a list of rows nor a log of inspect-ai"),
        ("a.json", '{"eval": {}, "status": "cancelled"}', r"a.json: the log has no samples \(status cancelled\)"),
        ("a.json", "{", r"a.json, line 1: not valid JSON"),
        ("a.eval", "PK", r"a.eval: an archive of inspect-ai; `inspect log convert --to json`"),
        ("a.txt", "4", r"a.txt: a file of answers is .jsonl, .json, .parquet, .csv"),
    ],
)
def test_a_file_that_cannot_be_read_gives_one_line_with_its_place(
    name: str, content: str, reason: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=reason):
        read(tmp_path / name)


def test_one_id_with_two_prompts_is_refused(tmp_path: Path) -> None:
    rows = [{"id": 1, "prompt": text, "answer": "4"} for text in ("Why?", "How?")]
    with pytest.raises(UserError, match=r"line 2: the problem '1' has another prompt at .*line 1"):
        read(write_lines(tmp_path / "a.jsonl", rows))


def test_the_digest_is_that_of_the_content_in_any_order(tmp_path: Path) -> None:
    rows = [{"id": number, "answer": str(number)} for number in range(3)]
    first, turned = (read(write_lines(tmp_path / f"{n}.jsonl", r)) for n, r in (("a", rows), ("b", rows[::-1])))
    assert first.digest == turned.digest
    other = read(write_lines(tmp_path / "c.jsonl", [*rows[:2], {"id": 2, "answer": "3"}]))
    assert other.digest != first.digest


def test_the_only_log_of_a_folder_is_taken_and_several_are_listed(tmp_path: Path) -> None:
    log = write_lines(tmp_path / "model" / "samples_gsm8k.jsonl", [lm_eval_row(0, "none", 1.0)])
    (tmp_path / "model" / "results_2026.json").write_text("{}")
    assert log_in_folder(tmp_path) == log
    write_lines(tmp_path / "model" / "samples_ifeval.jsonl", [lm_eval_row(0, "none", 1.0)])
    with pytest.raises(UserError, match=r"name one of its files \(model/samples_gsm8k.jsonl, model/samples_ifeval"):
        log_in_folder(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"not a model folder \(no config.json\), and not one log; it has no file"):
        log_in_folder(tmp_path / "empty")
