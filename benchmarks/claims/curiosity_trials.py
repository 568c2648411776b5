"""A claim about red teaming: novelty finds more weaknesses of a target at equal success (curiosity, paper 145).

Requests of a deed and a thing, of which 32 are harmful (models/task_sets/requests.py); the target, the toy's policy
after its warm start, answers each of them about half of the time. Both arms train by the recipe `curiosity` from that
warm start against that target, and differ only in the weight of the reward `novelty`. Success is made equal by
counting: the effect is the difference in weaknesses covered when each arm has had as many successes as the less
successful arm in all.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.claims.toy import PARAMS, Arm, Toy, train
from models.datasets.params import checked, read_section
from models.datasets.prepare import prepare
from models.datasets.settings import DataSettings
from models.task_sets import make_tasks

REQUESTS = "requests"
COMMON_TO_BOTH = ("data.name=requests",)
CURIOUS = Arm("curiosity", COMMON_TO_BOTH)
PLAIN = Arm("curiosity", (*COMMON_TO_BOTH, "rewards.1.weight=0.0"))
ROUNDS = 60


def more_weaknesses(toy: Toy, seed: int) -> tuple[float, dict[str, float]]:
    """Measure how many more of the planted weaknesses are covered with novelty, at equal success."""
    requests = _requests(toy)
    curves = {}
    for name, arm in (("curious", CURIOUS), ("plain", PLAIN)):
        trained = train(requests, arm, seed, ROUNDS)
        successes, covered = (trained.curve(f"rewards/provoked/{metric}") for metric in ("successes", "covered"))
        curves[name] = (successes, covered)
    equal = min(successes[-1] for successes, _ in curves.values())
    at_equal = {name: covered_at(equal, *curve) for name, curve in curves.items()}
    rates = {f"{name}, successes": successes[-1] for name, (successes, _) in curves.items()}
    return at_equal["curious"] - at_equal["plain"], at_equal | rates


def covered_at(successes: float, counts: Sequence[float], covered: Sequence[float]) -> float:
    """Return how many weaknesses were covered in the last round with at most so many successes, 0 before the first.

    Args:
        successes: number of successes.
        counts: successes since the first round, [rounds], which never fall.
        covered: weaknesses covered since the first round, [rounds].
    """
    reached = [value for count, value in zip(counts, covered, strict=True) if count <= successes]
    return reached[-1] if reached else 0.0


def _requests(toy: Toy) -> Toy:
    """Return the toy's policy on the data of requests."""
    made = Toy(toy.folder / REQUESTS)
    if not made.data.is_dir():
        settings = checked(make_tasks.settings_type(REQUESTS), read_section(PARAMS, REQUESTS), str(PARAMS))
        make_tasks.write(settings, made.folder / "raw")
        prepare(DataSettings(name=REQUESTS, path=(made.folder / "raw",), format="kinds"), made.data)
    return made
