"""The check of the language: what it counts, and that its baseline may only fall."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

FILE = Path(__file__).resolve().parents[1] / ".ci" / "language.py"


@pytest.fixture(scope="module")
def language() -> ModuleType:
    spec = importlib.util.spec_from_file_location("language", FILE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SOURCE = '''
"""A module."""
def plain():
    """Return it."""
def clause():
    """What it is."""
    raise ValueError("there is nobody")  # beside the point
class Shown:
    @property
    def kind(self):
        """What it is, as a property may be described."""
    size: int
    """Of whoever asked."""
'''


def test_every_kind_of_finding_is_counted_once(language: ModuleType) -> None:
    findings = list(language.of_python("a.py", SOURCE))
    assert sorted(findings) == [
        ("docstrings that begin with a clause", "a.py:5 What it is."),
        ("words in comments", "a.py:7 beside"),
        ("words in docstrings", "a.py:13 whoever"),
        ("words in texts", "a.py:7 nobody"),
    ]


def test_code_blocks_of_markdown_are_left_out(language: ModuleType) -> None:
    text = "It lies in a file.\n```console\n$ told anew\n```\nIt goes on."
    assert list(language.of_markdown("a.md", text)) == [
        ("words in Markdown", "a.md:1 lies in"),
        ("words in Markdown", "a.md:5 goes on"),
    ]


def test_only_the_comments_of_a_recipe_are_read(language: ModuleType) -> None:
    text = "# A calculator lies in a shop.\nprompt: who told it\nrounds: 3  # goes on\n"
    assert list(language.of_comments("words in recipes", "a.yaml", text)) == [
        ("words in recipes", "a.yaml:1 lies in"),
        ("words in recipes", "a.yaml:3 goes on"),
    ]


@pytest.mark.parametrize(
    ("subject", "is_poor"),
    [
        ("gate: store verdicts as typed records", False),
        ("models/training, tasks: split the round", False),
        ("Merge branch main", False),
        ("Everything is better now", True),
        ("gate: " + "x" * 30 + " " + "y" * 40, True),
    ],
)
def test_the_subject_of_a_commit_names_an_area_and_is_short(language: ModuleType, subject: str, is_poor: bool) -> None:
    assert language.poor_subjects([subject]) == [subject] * is_poor


def test_a_count_above_the_baseline_fails_and_the_baseline_is_never_raised(
    language: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(language, "places", lambda: list(language.of_python("a.py", SOURCE)))
    monkeypatch.setattr(language, "BASELINE", tmp_path / "language.json")
    allowed = dict.fromkeys(language.counts([]), 2) | {"words in comments": 0}
    language.BASELINE.write_text(json.dumps(allowed))
    monkeypatch.setattr("sys.argv", ["language.py", "--lower", "--list"])
    assert language.main() == 1
    assert "words in comments: 1, at most 0" in capsys.readouterr().out
    lowered = json.loads(language.BASELINE.read_text())
    assert lowered["words in comments"] == 0 and lowered["words in texts"] == 1 and lowered["words in Markdown"] == 0
