"""Steps of a flow that evaluate a policy on the suites of the recipe."""

from __future__ import annotations

from collections.abc import Sequence

from flows.runtime.opening import FlowContext
from flows.runtime.steps import call_step
from tasks.harness.suite import Suite, read_suite
from tasks.registered.policy import PolicyFiles
from tasks.runner.step import StepResult
from tasks.steps.evaluate_suite import SuiteSections, evaluate_suite


def read_suites(opened: FlowContext) -> list[Suite]:
    """Read and check the suites of the recipe.

    Raises:
        UserError: the interpreter of a harness is missing, or a file that a suite names.
    """
    return [read_suite(settings, opened.home) for settings in opened.recipe.evaluation.suites]


def call_suites(
    opened: FlowContext, suites: Sequence[Suite], role: str, policy: PolicyFiles, refresh: bool = False
) -> dict[str, StepResult]:
    """Evaluate a policy on each suite. Returns the evaluations by the name of the suite.

    Args:
        opened: the flow.
        suites: the recipe's suites.
        role: base, candidate, champion, ...: part of the names of the evaluations.
        policy: the policy to evaluate.
        refresh: whether to run the steps again.
    """
    sections = SuiteSections(opened.recipe)
    return {
        suite.settings.title: call_step(
            opened, evaluate_suite, sections, policy, suite, refresh=refresh, name=f"{suite.settings.title} {role}"
        )
        for suite in suites
    }
