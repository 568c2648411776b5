"""Checks that the parts of a recipe fit together; otherwise the first round would fail, or train on wrong data.

Each part declares what it needs and what it provides (`models.method`). The checks compare the traits of the
parts, so that no method is named here. Every refusal is one line that names the keys of the recipe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from models.method.alarm import AlarmSettings
from models.method.registry import Slot, parts
from models.method.reward import Blend, Reward
from models.method.schedule import ScheduleSettings
from models.method.slot_part import TOTAL, SlotPart
from models.method.truncation import LABEL
from models.recipes.frozen_roles import check_judge, check_teacher

if TYPE_CHECKING:
    from models.recipes.schema import Recipe


def check_combination(recipe: Recipe, schedule: ScheduleSettings) -> None:
    """Check that the parts of a recipe, and its schedule, fit together.

    Args:
        recipe: the recipe, whose sections are each valid.
        schedule: its schedule, which sets how often a round's completions are used.

    Raises:
        ValueError: two of them do not fit together.
    """
    for check in (
        _settings, _groups, _pairs, _labels, _reference, _divergence, _extras, _companions,
        _token_rewards, _flat_groups, _truncated, _learners, _memory, _sequences, _advice,
    ):  # fmt: skip
        check(recipe)
    check_teacher(recipe, list(_named(recipe)))
    check_judge(recipe, list(_named(recipe)))
    for check_both in (_normalisation, _staleness, _drawing_again, _curriculum, _on_policy):
        check_both(recipe, schedule)


def _named(recipe: Recipe) -> Iterator[tuple[str, SlotPart]]:
    """Yield every part except the reference, with its place in the recipe."""
    yield from (("rollouts", recipe.rollouts), ("advantage", recipe.advantage), ("objective", recipe.objective))
    yield from ((f"rewards.{number}", reward) for number, reward in enumerate(recipe.rewards))
    yield from (("select", select) for select in recipe.select)


def _parts_with(slot: Slot, suits: Callable[[Any], bool]) -> str:
    """Return the names of the parts of a slot that could be set instead; each is tested with its defaults."""
    return " or ".join(name for name, cls in parts(slot).items() if suits(cls()))


def _settings(recipe: Recipe) -> None:
    for _, part in _named(recipe):
        if part.misfit:
            raise ValueError(part.misfit)


def _groups(recipe: Recipe) -> None:
    size = recipe.rollouts.group_size
    for part in (recipe.advantage, recipe.objective):
        if part.needs_group and size < 2:
            raise ValueError(
                f"rollouts.group_size is {size}, but {part.slot} {part.name} compares "
                "the completions of a group: it needs 2 or more"
            )
    if (least := recipe.advantage.least_group) > size:
        raise ValueError(f"rollouts.group_size is {size}, but advantage {recipe.advantage.name} needs {least} or more")


def _pairs(recipe: Recipe) -> None:
    rollouts, objective = recipe.rollouts, recipe.objective
    if objective.level != "pair" or any(select.makes_pairs for select in recipe.select):
        return
    if rollouts.group_size != 2:
        raise ValueError(
            f"rollouts.group_size is {rollouts.group_size}, but objective {objective.name} learns "
            "from pairs: it needs 2, or a selector that makes pairs, such as best_worst"
        )
    if rollouts.largest_group() != 2:
        raise ValueError(
            f"rollouts {rollouts.name} gives {rollouts.largest_group()} completions of a prompt, but "
            f"objective {objective.name} learns from pairs: select needs one that makes them, such as best_worst"
        )
    if not any(select.drops_flat and select.by == TOTAL for select in recipe.select):
        raise ValueError(
            f"objective {objective.name} learns from a better and a worse completion: select needs "
            "drop_flat with `by: total`, which leaves out pairs of equal reward"
        )


def _labels(recipe: Recipe) -> None:
    penalty = [LABEL] if recipe.truncated.rule == "soft_penalty" else []
    labels = [*(reward.label for reward in recipe.rewards), *penalty]
    if len(set(labels)) < len(labels):
        raise ValueError(f"rewards: two components are labelled {max(labels, key=labels.count)!r}")
    if len(deciding := [reward.label for reward in recipe.rewards if reward.verifies]) > 1:
        raise ValueError(f"rewards: {deciding[0]} and {deciding[1]} would both decide what is right in evaluations")
    for number, reward in enumerate(recipe.rewards):
        if reward.companion and reward.by and reward.by not in labels[:number]:
            raise ValueError(
                f"rewards.{number}.by: no reward before it is labelled {reward.by!r}; "
                f"there are {', '.join(labels[:number]) or 'none'}"
            )
    _made_of_others(recipe.rewards)
    several = len(recipe.select) > 1
    named_labels = [(f"select.{n}" if several else "select", select.by) for n, select in enumerate(recipe.select)]
    named_labels += [(part.slot, part.by) for part in (recipe.advantage, recipe.objective)]
    if recipe.schedule is not None:
        named_labels.append(("schedule.curriculum", recipe.schedule.curriculum.by))
    if recipe.alarm is not None:
        named_labels.append(("alarm", recipe.alarm.by))
        _check_alarm_rewards(recipe.alarm, labels)
    for key, label in named_labels:
        if label not in (*labels, TOTAL):
            raise ValueError(f"{key}.by: no reward is labelled {label!r}; there are {', '.join([*labels, TOTAL])}")


def _made_of_others(rewards: Sequence[Reward]) -> None:
    """Check that the rewards that a blend is made of are listed before it."""
    for number, reward in enumerate(rewards):
        if not isinstance(reward, Blend):
            continue
        before = [other.label for other in rewards[:number]]
        if not reward.made_of and not reward.stands_alone:
            raise ValueError(f"rewards.{number}: {reward.name} is made of other rewards, but names none")
        if missing := [label for label in reward.made_of if label not in before]:
            raise ValueError(
                f"rewards.{number}: no reward before {reward.name} is labelled {missing[0]!r}; "
                f"there are {', '.join(before) or 'none'}"
            )


def _check_alarm_rewards(alarm: AlarmSettings, labels: Sequence[str]) -> None:
    """Check that the proxy and the truth of an alarm are two different rewards of the recipe."""
    for key, label in (("proxy", alarm.proxy), ("truth", alarm.truth)):
        if label is not None and label not in labels:
            raise ValueError(f"alarm.{key}: no reward is labelled {label!r}; there are {', '.join(labels)}")
    if (alarm.proxy is None) != (alarm.truth is None) or (alarm.truth is not None and alarm.proxy == alarm.truth):
        raise ValueError("alarm: proxy and truth are two rewards, or neither is named")


def _reference(recipe: Recipe) -> None:
    if recipe.reference.kept:
        if recipe.reference.offload:
            _offload(recipe)
        return
    weights = {"advantage.kl_in_reward": recipe.advantage.kl_in_reward, "objective.kl": recipe.objective.kl}
    for key, weight in weights.items():
        if weight:
            raise ValueError(f"{key} is {weight}, but the recipe has no reference to compare the policy with")
    for place, part in _named(recipe):
        if part.needs_reference:
            raise ValueError(f"{place} {part.name} needs a reference, but the recipe has none")


def _offload(recipe: Recipe) -> None:
    if recipe.policy.lora is not None:
        raise ValueError("reference.offload: with policy.lora the reference is the policy, its adapter off")
    if recipe.placement.learners > 1:
        raise ValueError("reference.offload: of several learners each holds a part of the reference; leave it out")
    if recipe.rollouts.needs_reference:
        raise ValueError(f"reference.offload: rollouts {recipe.rollouts.name} reads the reference at every token")


def _divergence(recipe: Recipe) -> None:
    drawn = recipe.rollouts.sampling
    if recipe.objective.divergence is None or not (drawn.top_p < 1 or drawn.top_k or recipe.rollouts.mask_top_p < 1):
        return
    raise ValueError(
        f"objective {recipe.objective.name} compares whole distributions, but rollouts {recipe.rollouts.name} draws "
        "from a part of them; set rollouts.top_p to 1 and rollouts.top_k to 0"
    )


def _extras(recipe: Recipe) -> None:
    for place, part in _named(recipe):
        extra = part.needs_extra
        if extra is not None and extra not in recipe.rollouts.gives:
            names = _parts_with("rollouts", lambda rollouts, extra=extra: extra in rollouts.gives)  # type: ignore[misc]
            raise ValueError(
                f"{place} {part.name} needs {extra}, which rollouts {recipe.rollouts.name} does not give; "
                f"set rollouts.name to {names}"
            )


def _companions(recipe: Recipe) -> None:
    places: dict[str, str] = {}
    for place, part in _named(recipe):
        if not part.companion:
            continue
        if part.companion in places:
            raise ValueError(
                f"{places[part.companion]} and {place} both bring a companion called {part.companion}, and the second "
                "would overwrite the first; leave one of them out"
            )
        places[part.companion] = place
    for reader in (recipe.rollouts, recipe.objective):
        needed = reader.needs_companion
        if needed and needed not in places:
            names = _parts_with("advantage", lambda advantage, needed=needed: advantage.companion == needed)  # type: ignore[misc]
            raise ValueError(f"{reader.slot} {reader.name} needs a {needed}; set advantage.name to {names}")


def _token_rewards(recipe: Recipe) -> None:
    if recipe.advantage.needs_token_rewards and not any(reward.by_token for reward in recipe.rewards):
        names = _parts_with("rewards", lambda reward: reward.by_token)
        raise ValueError(
            f"advantage {recipe.advantage.name} reads rewards token by token, but none of rewards gives them; "
            f"add {names}"
        )


def _flat_groups(recipe: Recipe) -> None:
    dropping = [select.name for select in recipe.select if select.drops_flat]
    if dropping and recipe.advantage.learns_from_flat_groups:
        raise ValueError(
            f"advantage {recipe.advantage.name} is not zero where all completions of a prompt are worth the same, but "
            f"select {dropping[0]} leaves such prompts out, which makes the gradient biased; set select.name to all"
        )


def _drawing_again(recipe: Recipe, schedule: ScheduleSettings) -> None:
    key, rollouts, curriculum = "", recipe.rollouts, schedule.curriculum
    if any(select.refills for select in recipe.select):
        key = "select.refills draws further prompts"
    elif curriculum.tries and not (rollouts.fresh_first and curriculum.order != "adaptive"):
        key = "schedule.curriculum tries prompts before they are trained on"
    if not key:
        return
    if not rollouts.draws or rollouts.off_policy:
        why = "give completions of earlier rounds, which would come again" if rollouts.draws else "draw none"
        raise ValueError(f"{key}, but rollouts {rollouts.name} {why}")
    if learning := [reward.name for reward in recipe.rewards if reward.companion]:
        raise ValueError(
            f"{key}, but rewards {learning[0]} learns from a round's completions before it judges them, and would "
            "learn again with every draw"
        )


def _curriculum(recipe: Recipe, schedule: ScheduleSettings) -> None:
    curriculum = schedule.curriculum
    if curriculum.order == "adaptive" and schedule.staleness:
        raise ValueError("schedule.curriculum.order is adaptive, which tries prompts between rounds: set async to 0")
    if recipe.rollouts.reads != "problems" and not curriculum.foretold:
        raise ValueError(
            f"schedule.curriculum depends on what the policy's own completions are worth, but rollouts "
            f"{recipe.rollouts.name} takes its prompts from {recipe.rollouts.reads}"
        )


def _truncated(recipe: Recipe) -> None:
    rule, level, last = recipe.truncated.rule, recipe.objective.level, recipe.truncated.last_tokens
    if rule == "masked" and level in ("pair", "group"):
        raise ValueError(
            f"truncated.rule is masked, but objective {recipe.objective.name} compares completions, and one that "
            f"leaves the loss would leave its {level} broken; set it to wrong"
        )
    longest = recipe.rollouts.max_tokens
    if last is not None and last > longest:
        raise ValueError(f"truncated.last_tokens is {last}, more than rollouts.max_tokens, {longest}")


def _learners(recipe: Recipe) -> None:
    if recipe.placement.learners > 1 and recipe.advantage.exports:
        raise ValueError(
            f"placement.learners is {recipe.placement.learners}, but advantage {recipe.advantage.name} writes its "
            "companion, which must be whole; set it to 1"
        )
    if recipe.placement.learners > 1 and recipe.schedule and recipe.schedule.optimiser.moments == "int8":
        raise ValueError(
            f"placement.learners is {recipe.placement.learners}, but schedule.optimiser.moments is int8, whose scales "
            "one learner alone keeps; set one of them back"
        )


def _memory(recipe: Recipe) -> None:
    if recipe.advantage.remembers and recipe.rollouts.off_policy:
        raise ValueError(
            f"rollouts {recipe.rollouts.name} and advantage {recipe.advantage.name} would both keep completions in the "
            "learner's one memory; set advantage.replay to 0"
        )


def _sequences(recipe: Recipe) -> None:
    if not recipe.rollouts.several_sequences:
        return
    for place, part in _named(recipe):
        if part.one_sequence:
            raise ValueError(
                f"{place} {part.name} reads an episode as one sequence, but rollouts {recipe.rollouts.name} may make "
                "several of one; use a part that does not, or rollouts episodes"
            )


def _advice(recipe: Recipe) -> None:
    start = recipe.warm_start
    if start is not None and start.context and start.shows == "feedback" and recipe.rollouts.adviser is None:
        raise ValueError(
            f"warm_start.shows is feedback, but rollouts {recipe.rollouts.name} has no adviser; set rollouts.name "
            f"to {_parts_with('rollouts', lambda rollouts: rollouts.adviser is not None)}"
        )


def _normalisation(recipe: Recipe, schedule: ScheduleSettings) -> None:
    objective = recipe.objective
    if schedule.normalisation is not None and objective.level != "token":
        raise ValueError(
            f"schedule.normalisation is {schedule.normalisation}, but objective {objective.name} has one loss a "
            f"{objective.level}, not one a token, and takes their mean; leave schedule.normalisation out"
        )


def _staleness(recipe: Recipe, schedule: ScheduleSettings) -> None:
    if schedule.staleness and (not recipe.rollouts.draws or recipe.rollouts.reads_models):
        raise ValueError(
            f"schedule.async is {schedule.staleness}, but rollouts {recipe.rollouts.name} needs more than the engine, "
            "which alone can work while the learner does"
        )
    if schedule.staleness < 2:
        if schedule.too_old != "wait":
            raise ValueError(
                f"schedule.too_old is {schedule.too_old}, but with schedule.async {schedule.staleness} nothing grows "
                "older than it may; leave it out or set async to 2 or more"
            )
        return
    why = ""
    if not recipe.rollouts.in_flight:
        why = f"rollouts {recipe.rollouts.name} adds to the samples of a prompt what belongs to a round"
    elif any(select.refills for select in recipe.select):
        why = "select.refills draws further prompts within a round"
    elif not schedule.curriculum.foretold:
        why = "schedule.curriculum chooses the prompts of a round by what was seen before it"
    elif recipe.placement.learners > 1:
        why = f"placement.learners is {recipe.placement.learners}, which would each see other completions end first"
    if why:
        raise ValueError(
            f"schedule.async is {schedule.staleness}, which trains on completions as they end, but {why}; set it to 1 "
            "or 0"
        )


def _on_policy(recipe: Recipe, schedule: ScheduleSettings) -> None:
    if not recipe.objective.on_policy_only:
        return
    reason = f"objective {recipe.objective.name} is right only for completions of the policy as it stands"
    if schedule.staleness:
        raise ValueError(f"schedule.async is {schedule.staleness}, but {reason}; set it to 0")
    if schedule.minibatches * schedule.epochs > 1:
        raise ValueError(
            f"schedule.minibatches is {schedule.minibatches} and schedule.epochs is {schedule.epochs}, but {reason}: "
            "from the second step of a round on they are another's; set both to 1"
        )
    if recipe.rollouts.off_policy:
        raise ValueError(f"rollouts {recipe.rollouts.name} gives completions of earlier rounds, but {reason}")
