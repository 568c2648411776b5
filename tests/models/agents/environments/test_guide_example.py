"""The environment that the guide shows is a part, and answers as the page says."""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[4]
PLAYED = """
import models.agents.environments
models.agents.environments.__path__.append({folder!r})
from models.method.registry import parts
from models.method.rollout import Problem
episode = parts("environment")["secret_number"]().open(Problem("p", "", answer="62"))
episode.reset(0)
for turn in ("50", "75", "what?", "62"):
    answer, reward, over, _, info = episode.step(turn)
    print(answer, reward, over, info["solved"], sep=",")
"""


def test_the_environment_of_the_guide_is_found_by_its_place_and_plays(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "episodes.md").read_text()
    (code,) = re.findall(r"```python\n(\"\"\"A secret number.*?)```", page, flags=re.DOTALL)
    (tmp_path / "secret_number.py").write_text(code)
    done = subprocess.run(
        [sys.executable, "-c", PLAYED.format(folder=str(tmp_path))],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [
        "higher,0.0,False,False",
        "lower,0.0,False,False",
        "error: guess a number,0.0,False,False",
        "right,1.0,True,True",
    ]
