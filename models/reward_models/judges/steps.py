"""Questions to a judge about the steps of a completion: the prompt, the text before a step, and the step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.method.judge import GenerativeJudge
from models.method.steps import step_begins, step_texts
from models.reward_models.judges.question import NOTHING, fill
from models.reward_models.judges.verdict import holds
from models.text.encoding import Codec

STEP_PLACES = frozenset({"prompt", "before", "step"})
"""Placeholders of a template about a step."""


def step_placeholders(
    codec: Codec, prompt: str, completion: Sequence[int], ends: Sequence[int], marks: Sequence[str]
) -> list[dict[str, str]]:
    """Return the values of a template's placeholders for each step, [steps].

    Args:
        codec: the policy's.
        prompt: prompt of the completion.
        completion: token ids, [tokens].
        ends: index of the last token of each step, [steps].
        marks: separators that end a step; they are stripped from the end of a step and of the text before it.
    """
    steps = step_texts(codec, completion, ends)
    before = codec.text([completion[:begin] for begin in step_begins(ends)])
    return [
        {"prompt": prompt, "before": _bare(so_far, marks) or NOTHING, "step": _bare(step, marks)}
        for so_far, step in zip(before, steps, strict=True)
    ]


def ask_of_steps(
    judge: GenerativeJudge, template: str, placeholders: Sequence[Mapping[str, str]], votes: int
) -> list[float | None]:
    """Return the share of yes votes about each step, [steps]; None if no vote is readable."""
    return [holds(answers) for answers in judge.ask([fill(template, values) for values in placeholders], votes)]


def _bare(text: str, marks: Sequence[str]) -> str:
    """Return the text without surrounding white space and without marks at its end."""
    text = text.strip()
    while mark := next((mark for mark in marks if mark.strip() and text.endswith(mark)), ""):
        text = text[: -len(mark)].rstrip()
    return text
