"""The verifier that the guide shows is a part, and judges as the page says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
JUDGED = """
import models.parts.rewards.rules
models.parts.rewards.rules.__path__.append({folder!r})
from models.method.attempt import Attempt
from models.method.registry import parts
from models.method.rollout import Problem
verifier, problem = parts("rewards")["whole_number"](), Problem("p", "", answer="#### 42")
texts = [verifier.stated(problem), "so it is #### 042", "#### 41", "no answer"]
print(verifier.right([Attempt(problem, text, True) for text in texts] + [Attempt(problem, texts[0], False)]))
"""


def test_the_verifier_of_the_guide_is_found_by_its_place_and_judges(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "rewards.md").read_text()
    (code,) = re.findall(r"```python\n(\"\"\"Rule-based reward: one if the stated.*?)```", page, flags=re.DOTALL)
    (tmp_path / "whole_number.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-c", JUDGED.format(folder=str(tmp_path))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "[True, True, False, False, False]"
