"""`rewardflow validate`, `rewardflow schema` and completion in the shell."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from project import environment
from running import ROOT

from flows import command_line
from models.recipes.schema_file import current_schema

LOADED = """
import sys
from flows.command_line import main
sys.argv = ["rewardflow", *sys.argv[1:]]
try:
    main()
finally:
    print([name for name in ("torch", "numpy", "prefect", "mlflow") if name in sys.modules], file=sys.stderr)
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a state folder with the schema of recipes."""
    folder = tmp_path_factory.mktemp("home")
    current_schema(folder)
    return folder


def tell(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], home: Path, *arguments: str
) -> tuple[int, str, str]:
    """Run a command in this process. Return its exit status, output and error output."""
    monkeypatch.setenv("REWARDFLOW_HOME", str(home))
    monkeypatch.setattr("sys.argv", ["rewardflow", *arguments])
    with pytest.raises(SystemExit) as ended:
        command_line.main()
    printed = capsys.readouterr()
    return int(ended.value.code or 0), printed.out, printed.err


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    texts = {
        "good": "extends: grpo\n",
        "misspelt": "extends: grpo\nseeed: 1\nschedule: {rouns: 3}\n",
        "misfit": "extends: grpo\nrollouts: {group_size: 1}\n",
        "text": 'extends: grpo\nseed: "3"\n',
    }
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(text)
    return {name: tmp_path / f"{name}.yaml" for name in texts}


@pytest.mark.rotating(of=6)
def test_recipes_are_checked_by_the_stored_schema_without_torch(home: Path, files: dict[str, Path]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, "validate", "grpo", str(files["misspelt"]), str(files["misfit"]), "grppo"],
        cwd=ROOT,
        env=environment(REWARDFLOW_HOME=str(home)),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (1, "[]\n")
    *lines, last = done.stdout.splitlines()
    wrong = files["misspelt"]
    assert lines == [
        "valid    grpo",
        f"refused  {wrong}: schedule.rouns: unknown key; did you mean rounds?; and {wrong}: seeed: unknown key; "
        "did you mean seed?",
        f"valid    {files['misfit']}",
        "refused  grppo: no such recipe; did you mean recipes/policy-gradient/grpo.yaml?",
    ]
    assert last.startswith(
        "4 recipes, 2 refused. Checked by the schema: keys, names of parts, types and limits; --full"
    )


def test_full_loads_and_a_value_that_only_the_loader_reads_is_loaded_alone(
    home: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = tell(monkeypatch, capsys, home, "validate", "--full", str(files["misfit"]), str(files["good"]))
    assert code == 1 and out.splitlines() == [
        f"refused  {files['misfit']}: rollouts.group_size is 1, but advantage group_relative compares the completions "
        "of a group: it needs 2 or more",
        f"valid    {files['good']}",
        "2 recipes, 1 refused. Checked by loading: each recipe was loaded, as a run loads it.",
    ]
    code, out, _ = tell(monkeypatch, capsys, home, "validate", str(files["text"]), str(files["good"]))
    assert code == 0 and out.splitlines()[:2] == [
        f"valid    {files['text']}  (by loading it: only the loader can read one of its values)",
        f"valid    {files['good']}",
    ]
    code, out, _ = tell(monkeypatch, capsys, home, "validate", str(files["good"]), "--set", "seed=-1")
    assert code == 1 and "seed: Input should be greater than or equal to 0" in out


@pytest.mark.rotating(of=6)
def test_without_a_stored_schema_recipes_are_loaded_and_the_schema_is_stored(
    tmp_path: Path, files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, _ = tell(monkeypatch, capsys, tmp_path / "new", "validate", str(files["misfit"]))
    assert code == 1 and "Checked by loading" in out and "group_relative" in out
    code, out, _ = tell(monkeypatch, capsys, tmp_path / "new", "validate", str(files["misfit"]))
    assert code == 0 and "Checked by the schema" in out


def test_the_schema_is_printed_or_written(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = tell(monkeypatch, capsys, home, "schema")
    assert json.loads(out)["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    file = tmp_path / "recipe.schema.json"
    assert tell(monkeypatch, capsys, home, "schema", "--write", str(file))[0] == 0
    assert json.loads(file.read_text()) == json.loads(out)


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    ("words", "completions"),
    [
        ("rewardflow vali", ["validate"]),
        ("rewardflow run grpo_", ["grpo_k2"]),
        ("rewardflow validate recipes/real/qwen3_06b_gsm8k_grpo.", ["recipes/real/qwen3_06b_gsm8k_grpo.yaml"]),
        ("rewardflow parts re", ["rewards", "reference"]),
    ],
)
def test_the_shell_completes_commands_recipes_and_slots(words: str, completions: list[str], tmp_path: Path) -> None:
    asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1), "_REWARDFLOW_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        cwd=ROOT,
        env=environment(REWARDFLOW_HOME=str(tmp_path / "home"), **asked),
        capture_output=True,
        text=True,
    )
    assert (done.stdout.split(), done.stderr) == (completions, "[]\n")
    assert not (tmp_path / "home").exists()
