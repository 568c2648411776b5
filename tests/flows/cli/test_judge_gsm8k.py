"""The command `judge` on the answers of four models to the 1,319 test problems of GSM8K, if the data are there."""

import json
from pathlib import Path

import pytest

from flows import command_line

PAIRS = [
    ("6b_finetuning", "6b_verification", 0, 0.174),
    ("6b_finetuning", "175b_finetuning", 0, 0.130),
    ("6b_finetuning", "175b_verification", 0, 0.346),
    ("6b_verification", "175b_finetuning", 3, -0.043),
    ("6b_verification", "175b_verification", 0, 0.172),
    ("175b_finetuning", "175b_verification", 0, 0.215),
]
"""Champion, candidate, exit status, and difference of the accuracies."""


@pytest.fixture(scope="module")
def answers(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the answers of each model as a file of answers, with the labels as scores, and return the folder."""
    solutions = shared_data / "gsm8k_model_solutions.jsonl"
    if not solutions.is_file():
        pytest.skip(f"no answers of models to GSM8K: {solutions} is missing")
    rows = [json.loads(line) for line in solutions.read_text().splitlines()]
    folder = tmp_path_factory.mktemp("answers")
    for name in {name for pair in PAIRS for name in pair[:2]}:
        lines = [
            {"id": n, "prompt": row["question"], "answer": row[name]["solution"], "score": row[name]["is_correct"]}
            for n, row in enumerate(rows)
        ]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(("champion", "candidate", "status", "difference"), PAIRS)
def test_each_pair_has_its_verdict_and_the_verifier_agrees_with_the_labels(
    champion: str,
    candidate: str,
    status: int,
    difference: float,
    answers: Path,
    shared_data: Path,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    sources = ["--champion", str(answers / f"{champion}.jsonl"), "--candidate", str(answers / f"{candidate}.jsonl")]
    settings = ["--data", str(shared_data / "gsm8k_test.jsonl"), "--verifier", "exact_answer"]
    files = ["--json", str(tmp_path / "r.json"), "--ledger", str(tmp_path / "looks.json")]
    monkeypatch.setattr("sys.argv", ["rewardflow", "judge", *sources, *settings, *files])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    assert (ended.value.code or 0) == status
    result = json.loads((tmp_path / "r.json").read_text())
    metrics = {line["name"]: line["difference"] for line in result["metrics"]}
    assert metrics["strict_accuracy"] == metrics["score"] and result["problems"] == 1319
    assert round(result["difference"]["estimate"], 3) == difference
