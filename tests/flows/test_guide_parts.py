"""The example parts of the guide are found by their folder and behave as the page describes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.guide import ROOT

PLAYED = """
episode = parts("environment")["secret_number"]().open(Problem("p", "", answer="62"))
episode.reset(0)
for turn in ("50", "75", "what?", "62"):
    answer, reward, over, _, info = episode.step(turn)
    print(answer, reward, over, info["solved"], sep=",")
"""
JUDGED = """
verifier, problem = parts("rewards")["whole_number"](), Problem("p", "", answer="#### 42")
texts = [verifier.stated(problem), "so it is #### 042", "#### 41", "no answer", "#### 5-", "#### " + "5" * 5000]
attempts = [Attempt(problem, text, True) for text in texts]
unreadable = [Attempt(Problem("p", "", answer=answer), f"#### {answer}", True) for answer in ("abc", "4.5", "")]
print(*verifier.right([*attempts, Attempt(problem, texts[0], False), *unreadable]), sep="\\n")
"""


@pytest.mark.rotating(of=6)
@pytest.mark.parametrize(
    ("page", "begins", "package", "script", "expected"),
    [
        (
            "episodes.md",
            "A secret number",
            "models.agents.environments",
            PLAYED,
            [
                "higher,0.0,False,False",
                "lower,0.0,False,False",
                "error: guess a number,0.0,False,False",
                "right,1.0,True,True",
            ],
        ),
        (
            "rewards.md",
            "Rule-based reward: one if the stated",
            "models.parts.rewards.rules",
            JUDGED,
            ["True", "True", *["False"] * 8],
        ),
    ],
    ids=["environment", "verifier"],
)
def test_a_part_of_the_guide_is_found_by_its_place_and_does_what_the_page_says(
    tmp_path: Path, page: str, begins: str, package: str, script: str, expected: list[str]
) -> None:
    text = (ROOT / "docs" / page).read_text()
    (code,) = re.findall(rf'```python\n("""{begins}.*?)```', text, flags=re.DOTALL)
    (tmp_path / "shown.py").write_text(code)
    head = (
        f"import {package}\n{package}.__path__.append({str(tmp_path)!r})\n"
        "from models.method.attempt import Attempt\nfrom models.method.registry import parts\n"
        "from models.method.rollout import Problem\n"
    )
    done = subprocess.run([sys.executable, "-c", head + script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == expected
