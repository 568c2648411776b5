"""The command `judge`: exit statuses, files that it writes, packages that it loads, and errors in one line."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from flows import command_line

ROOT = Path(__file__).resolve().parents[3]
LOADED = """
import sys
from flows.command_line import main
sys.argv = ["rewardflow", *sys.argv[1:]]
try:
    main()
except SystemExit as end:
    names = ("torch", "transformers", "prefect", "mlflow", "pandas", "matplotlib", "great_expectations")
    print(end.code, [name for name in names if name in sys.modules])
"""

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Return a function that runs `judge` in a new folder, and returns its exit status, output and error output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("os.environ", {**os.environ, "REWARDFLOW_HOME": str(tmp_path / "home")})

    def judge(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["rewardflow", "judge", *arguments])
        code: object = 0
        try:
            command_line.main()
        except SystemExit as end:
            code = end.code
        shown = capsys.readouterr()
        return (code if isinstance(code, int) else 0), shown.out, shown.err

    return judge


def write(file: Path, rows: list[dict[str, object]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file.name


def scores(folder: Path, name: str, right: range, count: int = 300) -> str:
    """Write 0 or 1 for every problem; those of `right` are 1."""
    return write(folder / f"{name}.jsonl", [{"id": n, "score": float(n in right)} for n in range(count)])


def test_better_ends_with_0_and_writes_json_page_and_ledger(tmp_path: Path, run: Run) -> None:
    champion, candidate = scores(tmp_path, "a", range(100)), scores(tmp_path, "b", range(200))
    files = ("--json", "out/r.json", "--html", "out/r.html", "--ledger", "looks.json")
    status, out, err = run("--champion", champion, "--candidate", candidate, *files)
    assert (status, err) == (0, "") and "verdict     better: score +0.333" in out
    assert json.loads((tmp_path / "out" / "r.json").read_text())["decision"] == "better"
    assert (tmp_path / "out" / "r.html").read_text().startswith("<!doctype html>")
    assert json.loads((tmp_path / "looks.json").read_text())["history"][0]["decision"] == "better"
    assert not (tmp_path / "home").exists(), "nothing is written to the state folder"


def test_not_shown_ends_with_3(tmp_path: Path, run: Run) -> None:
    champion, candidate = scores(tmp_path, "a", range(100)), scores(tmp_path, "b", range(102))
    status, out, _ = run("--champion", champion, "--candidate", candidate)
    assert status == 3 and "not shown to be better: score +0.007" in out
    assert "no ledger counts this look" in out


def test_a_guard_that_fails_ends_with_4(tmp_path: Path, run: Run) -> None:
    rows = [[{"id": n, "scores": {"acc": float(n < right), "safe": float(n < safe)}} for n in range(300)]
            for right, safe in ((100, 300), (200, 200))]  # fmt: skip
    champion, candidate = (write(tmp_path / f"{name}.jsonl", of) for name, of in zip("ab", rows, strict=True))
    both = ("--champion", champion, "--candidate", candidate, "--metric", "acc")
    status, out, _ = run(*both, "--guard", "safe=0.1")
    assert status == 4 and "refused: better (acc +0.333" in out and "the guard safe failed" in out
    assert run(*both, "--guard", "safe=0.9")[0] == 0


def test_an_early_look_can_show_what_a_late_look_cannot(tmp_path: Path, run: Run) -> None:
    champion = scores(tmp_path, "a", range(100))
    for number in range(3):
        scores(tmp_path, f"filler{number}", range(101 + number))
    candidate = scores(tmp_path, "b", range(107))
    setting = ("--champion", champion, "--ledger", "looks.json", "--set", "looks=4")
    assert run("--champion", champion, "--candidate", candidate)[0] == 0
    for number in range(3):
        assert run(*setting, "--candidate", f"filler{number}.jsonl")[0] == 3
    status, out, _ = run(*setting, "--candidate", candidate)
    assert status == 3 and "look 4 of 4" in out and "0.00% is left" in out
    status, out, _ = run(*setting, "--candidate", scores(tmp_path, "last", range(200)))
    assert status == 3 and "take problems that this ledger has not counted looks at" in out


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--set", "length=1"], "error: --set length: unknown; there are error_budget, looks, confidence"),
        (["--set", "metric=f1"], "error: --set metric: not a setting of judge; --metric names it"),
        (["--set", "looks=0"], "error: gate.looks: 0 must be 1 or more"),
        (["--set", "looks=many"], "error: --set looks: Input should be a valid integer"),
        (["--set", "looks"], "error: --set: 'looks' is not KEY=VALUE"),
        (["--guard", "f1"], "error: --guard: 'f1' is not NAME=VALUE, such as f1=0.05"),
        (["--guard", "f1=2"], "error: --guard f1: the margin '2' must be a number between 0 and 1"),
        (["--range", "1:0"], "error: --range: '1:0' is not LOW:HIGH with LOW below HIGH"),
        (["--template", "text"], "error: --template: write {prompt} exactly once"),
        (["--metric", "f1"], "error: the metric 'f1' is not measured on b.jsonl; it has score"),
        (["--verifier", "exact"], "error: --verifier: no verifier 'exact'"),
        (["--data", "none.jsonl"], "error: --data: none.jsonl: no such file"),
        (["--json", "."], "error: .: a folder; name a file"),
        (["--ledger", "a.jsonl"], "error: --ledger a.jsonl: not a ledger of judge"),
        (["--candidate", "none.jsonl"], "error: --candidate: none.jsonl: no such file or folder"),
        (["--candidate", "champion"], "nothing was run here yet"),
    ],
)
def test_what_is_wrong_gives_one_line_and_status_1(arguments: list[str], reason: str, tmp_path: Path, run: Run) -> None:
    champion, candidate = scores(tmp_path, "a", range(10), 20), scores(tmp_path, "b", range(10), 20)
    chosen = [] if "--candidate" in arguments else ["--candidate", candidate]
    status, out, err = run("--champion", champion, *chosen, *arguments)
    assert (status, out) == (1, "") and reason in err and err.count("\n") == 1


def test_a_run_of_mlflow_is_recorded_on_request(tmp_path: Path, run: Run, new_store: Callable[[Path], Path]) -> None:
    new_store(tmp_path / "home")
    champion, candidate = scores(tmp_path, "a", range(100)), scores(tmp_path, "b", range(200))
    status, out, _ = run("--champion", champion, "--candidate", candidate, "--mlflow")
    from tasks.tracking import store

    run_id = out.split("run         ")[1].strip()
    assert status == 0 and store.client().get_run(run_id).info.run_name == "b.jsonl against a.jsonl"


@pytest.mark.rotating(of=6)
def test_files_of_answers_load_no_torch(tmp_path: Path) -> None:
    problems = [{"prompt": f"What is {n}?", "answer": str(n)} for n in range(40)]
    write(tmp_path / "problems.jsonl", problems)
    for name, share in (("a", 10), ("b", 40)):
        write(tmp_path / f"{name}.jsonl", [{"id": n, "answer": f"#### {n if n < share else -1}"} for n in range(40)])
    arguments = [
        "--champion",
        "a.jsonl",
        "--candidate",
        "b.jsonl",
        "--data",
        "problems.jsonl",
        "--verifier",
        "exact_answer",
    ]
    asked = subprocess.run(
        [sys.executable, "-c", LOADED, "judge", *arguments, "--html", "page.html", "--ledger", "looks.json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "REWARDFLOW_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
    )
    assert asked.stdout.splitlines()[-1] == "0 []", asked.stderr
