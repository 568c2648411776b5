"""Which parts of a recipe can work together: what would fail in the first round, or silently learn something else.

Parts say themselves what they need and what they bring (`models.loop.slots`); here one is held against the other, so
that no method is named. Every refusal is one line that names the keys of the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from models.loop.fit import ScheduleSettings
from models.loop.slots import Accompanied, LearningReward
from models.loop.truncation import LABEL
from models.parts import Slot, parts


def check_combination(slots: Any, schedule: ScheduleSettings) -> None:
    """Hold the parts of a recipe against one another.

    Args:
        slots: has `rollouts`, `rewards`, `select`, `advantage`, `objective`, `reference`, `truncated` and `alarm`.
        schedule: how often a round's completions are used.

    Raises:
        ValueError: two of them do not fit together.
    """
    for check in (_groups, _pairs, _labels, _reference, _beside, _companions, _token_rewards, _flat_groups):
        check(slots)
    _truncated(slots)
    _staleness(slots, schedule)
    _on_policy(slots, schedule)


def _named(slots: Any) -> Iterator[tuple[str, Any]]:
    """Every part but selectors and reference, with its place in the recipe."""
    yield from (("rollouts", slots.rollouts), ("advantage", slots.advantage), ("objective", slots.objective))
    yield from ((f"rewards.{number}", reward) for number, reward in enumerate(slots.rewards))


def _having(slot: Slot, wanted: Callable[[Any], bool]) -> str:
    """Names of the parts of a slot that could be set instead."""
    return " or ".join(name for name, cls in parts(slot).items() if wanted(cls))


def _groups(slots: Any) -> None:
    for slot in ("advantage", "objective"):
        part = getattr(slots, slot)
        if getattr(part, "needs_group", getattr(part, "level", "") == "group") and slots.rollouts.group_size < 2:
            raise ValueError(
                f"rollouts.group_size is {slots.rollouts.group_size}, but {slot} {part.name} compares "
                "the completions of a group: it needs 2 or more"
            )


def _pairs(slots: Any) -> None:
    if slots.objective.level != "pair" or any(getattr(one, "makes_pairs", False) for one in slots.select):
        return
    if slots.rollouts.group_size != 2:
        raise ValueError(
            f"rollouts.group_size is {slots.rollouts.group_size}, but objective {slots.objective.name} learns "
            "from pairs: it needs 2, or a selector that makes pairs, such as best_worst"
        )
    if slots.rollouts.largest_group() != 2:
        raise ValueError(
            f"rollouts {slots.rollouts.name} gives {slots.rollouts.largest_group()} completions of a prompt, but "
            f"objective {slots.objective.name} learns from pairs: select needs one that makes them, such as best_worst"
        )
    if not any(select.name == "drop_flat" and select.by == "total" for select in slots.select):
        raise ValueError(
            f"objective {slots.objective.name} learns from a better and a worse completion: select needs "
            "drop_flat, which leaves out pairs of equal reward"
        )


def _labels_of(slots: Any) -> list[str]:
    """What the components of the reward are called, in metrics and in every `by`."""
    penalty = [LABEL] if slots.truncated.rule == "soft_penalty" else []
    return [*(reward.label for reward in slots.rewards), *penalty]


def _labels(slots: Any) -> None:
    labels = _labels_of(slots)
    if len(set(labels)) < len(labels):
        raise ValueError(f"rewards: two components are labelled {max(labels, key=labels.count)!r}")
    for number, reward in enumerate(slots.rewards):
        if isinstance(reward, LearningReward) and reward.by not in labels[:number]:
            raise ValueError(
                f"rewards.{number}.by: no reward before it is labelled {reward.by!r}; "
                f"there are {', '.join(labels[:number]) or 'none'}"
            )
    going_by = [("select", one) for one in slots.select]
    for slot, part in [*going_by, *((slot, getattr(slots, slot)) for slot in ("advantage", "objective", "alarm"))]:
        by = getattr(part, "by", "total")
        if by not in (*labels, "total"):
            raise ValueError(f"{slot}.by: no reward is labelled {by!r}; there are {', '.join([*labels, 'total'])}")


def _reference(slots: Any) -> None:
    for slot, part in _named(slots):
        if slots.reference.needed:
            break
        for key in ("kl", "kl_in_reward"):
            if weight := getattr(part, key, 0.0):
                raise ValueError(f"{slot}.{key} is {weight}, but there is no reference to hold the policy against")
        if getattr(part, "needs_reference", False):
            raise ValueError(f"{slot} {part.name} needs a reference, but the recipe has none")


def _beside(slots: Any) -> None:
    laid = getattr(slots.rollouts, "beside", ())
    for slot, part in _named(slots):
        asked = getattr(part, "asks", None)
        if asked is not None and asked not in laid:
            able = _having("rollouts", lambda cls, asked=asked: asked in getattr(cls, "beside", ()))  # type: ignore[misc]
            raise ValueError(
                f"{slot} {part.name} needs {asked}, which rollouts {slots.rollouts.name} does not give; "
                f"set rollouts.name to {able}"
            )


def _companions(slots: Any) -> None:
    brought: dict[str, str] = {}
    for slot, part in _named(slots):
        if not isinstance(part, Accompanied):
            continue
        if part.companion in brought:
            raise ValueError(
                f"{brought[part.companion]} and {slot} both bring a companion called {part.companion}, and one would "
                "overwrite the other; leave one of them out"
            )
        brought[part.companion] = slot
    needed = getattr(slots.rollouts, "needs_companion", None)
    if needed is not None and needed not in brought:
        able = _having("advantage", lambda cls: getattr(cls, "companion", None) == needed)
        raise ValueError(f"rollouts {slots.rollouts.name} needs a {needed}; set advantage.name to {able}")


def _token_rewards(slots: Any) -> None:
    if getattr(slots.advantage, "needs_token_rewards", False) and not any(
        getattr(reward, "by_token", False) for reward in slots.rewards
    ):
        able = _having("reward", lambda cls: getattr(cls, "by_token", False))
        raise ValueError(
            f"advantage {slots.advantage.name} reads rewards token by token, but none of rewards gives them; add {able}"
        )


def _flat_groups(slots: Any) -> None:
    dropping = [one.name for one in slots.select if getattr(one, "drops_flat", False)]
    if dropping and getattr(slots.advantage, "flat_groups_teach", False):
        raise ValueError(
            f"advantage {slots.advantage.name} is not zero where all completions of a prompt are worth the same, but "
            f"select {dropping[0]} leaves such prompts out, which makes the gradient biased; set select.name to all"
        )


def _truncated(slots: Any) -> None:
    rule, level, last = slots.truncated.rule, slots.objective.level, slots.truncated.last_tokens
    if rule == "masked" and level in ("pair", "group"):
        raise ValueError(
            f"truncated.rule is masked, but objective {slots.objective.name} compares completions, and one that leaves "
            f"the loss would leave its {level} broken; set it to wrong"
        )
    if last is not None and last > slots.rollouts.max_tokens:
        raise ValueError(f"truncated.last_tokens is {last}, more than rollouts.max_tokens, {slots.rollouts.max_tokens}")


def _staleness(slots: Any, schedule: ScheduleSettings) -> None:
    if schedule.staleness and (not slots.rollouts.draws or getattr(slots.rollouts, "reads_models", False)):
        raise ValueError(
            f"schedule.async is 1, but rollouts {slots.rollouts.name} needs more than the engine, which alone can "
            "work while the learner does"
        )


def _on_policy(slots: Any, schedule: ScheduleSettings) -> None:
    if not getattr(slots.objective, "on_policy_only", False):
        return
    told = f"objective {slots.objective.name} is right only for completions of the policy as it stands"
    if schedule.staleness:
        raise ValueError(f"schedule.async is 1, but {told}; set it to 0")
    if schedule.minibatches * schedule.epochs > 1:
        raise ValueError(
            f"schedule.minibatches is {schedule.minibatches} and schedule.epochs is {schedule.epochs}, but {told}: "
            "from the second step of a round on they are another's; set both to 1"
        )
    if getattr(slots.rollouts, "replayed", 0):
        raise ValueError(f"rollouts {slots.rollouts.name} gives completions of earlier rounds, but {told}")
