"""The agent program with `verifiers` from the guide, run in a virtual environment of its own over the gateway."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agent_programs import assert_all_calls_are_trained_on_once, draw, program
from tests.support.tiny_episodes import Listening, gap

PAGE = (Path(__file__).resolve().parents[4] / "docs" / "episodes.md").read_text()
GUIDE = PAGE.split("### verifiers")[1].split("\n## ")[0]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a virtual environment with the package that the guide installs, and return its interpreter."""
    folder = tmp_path_factory.mktemp("verifiers") / "venv"
    (wanted,) = re.findall(r"pip install (\S+)", GUIDE)
    uv = shutil.which("uv", path=Path(sys.executable).parent)
    assert uv, "uv is in the lock"
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder], check=True)
    made = folder / "bin" / "python"
    ended = subprocess.run([uv, "pip", "install", "--quiet", "--python", made, wanted], capture_output=True, text=True)
    if ended.returncode:
        pytest.skip(f"{wanted} cannot be installed here: {ended.stderr.strip().splitlines()[-1]}")
    return made


@pytest.mark.slow
@pytest.mark.thorough
def test_the_guides_program_is_trained_on_what_the_engine_drew(
    engine: Listening,
    python: Path,
    tmp_path: Path,
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE, flags=re.DOTALL)
    (tmp_path / "my_agent.py").write_text(code)
    command = (str(python), str(tmp_path / "my_agent.py"))
    made = draw(engine, program("", command=command, call_tokens=40, seconds=120.0, shows_answer=True))
    assert_all_calls_are_trained_on_once(engine, made)
    assert gap(made) <= 1e-5
    assert {rollout.group for rollout in made} == {0, 1} and not {rollout.episode.cut for rollout in made} & {
        "error",
        "time",
    }
    for rollout in made:
        assert rollout.episode.turns[-1].reward == float("7" in rollout.text)
