"""A run of the loop over episodes in a process that kills itself during an episode.

    python -m tests.support.killed_search START CHECKPOINTS STEPS

The process sends itself SIGKILL at the environment's STEPS-th step. If STEPS is 0, it runs to the end.
"""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from safetensors.torch import save_file

from tests.support.tiny_episodes import ENDING, Chatter, episodes
from tests.support.tiny_loops import SLOTS, run


def main(start: Path, checkpoints: Path, steps: int) -> None:
    """Run the loop, and write the final weights to a file next to the folder of the checkpoints."""
    left = steps

    def killed(turn: str) -> None:
        nonlocal left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)

    slots = replace(SLOTS, rollouts=episodes(Chatter(lasts=3, act=killed)))
    learner, _ = run(start, checkpoints, slots=slots, codec=ENDING)
    weights = {name: value.contiguous().clone() for name, value in learner.policy.state_dict().items()}
    save_file(weights, checkpoints.with_suffix(".safetensors"))


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
