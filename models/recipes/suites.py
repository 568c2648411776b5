"""Settings of evaluation suites: tasks of another evaluation harness, under `evaluation.suites`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from models.base.bounds import Positive, Seed
from models.base.errors import UserError
from models.evaluation.gate.suites import SuiteGuard

HarnessName = Literal["lm-eval", "inspect"]
TaskName = Annotated[str, Field(min_length=1, max_length=250)]
ONLY_LM_EVAL = ("include_path", "few_shot", "chat", "generation", "unsafe_code")
"""Settings that only lm-eval has."""


class SuiteSettings(BaseModel):
    """A suite: tasks of a harness, on which base, candidate and champion are measured."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    harness: HarnessName = "lm-eval"
    """lm-eval: lm-evaluation-harness; inspect: inspect-ai. Each runs in an environment of its own."""
    tasks: tuple[TaskName, ...] = ()
    """lm-eval: names of tasks. inspect: files of tasks, FILE.py or FILE.py@TASK. Their data must be on this machine.
    One task or more."""
    name: str = Field(default="", pattern=r"^([a-z0-9][a-z0-9_-]*)?$", max_length=64)
    """Name of the suite in metrics and guards; empty: that of the harness."""
    include_path: str | None = None
    """Folder with task files (YAML) of your own, for lm-eval."""
    python: str = ""
    """Interpreter that has the harness; empty: REWARDFLOW_LM_EVAL or REWARDFLOW_INSPECT, or the environment
    `harness/lm-eval` or `harness/inspect` in the state folder."""
    limit: Positive | None = None
    """Only the first problems of each task."""
    few_shot: Annotated[int, Field(ge=0, le=1000)] | None = None
    """Number of examples in the prompt; None: as the task defines it."""
    chat: bool = False
    """Whether to wrap prompts in the policy's chat template; inspect always does."""
    system: str | None = None
    """System message, for prompts in a chat template."""
    generation: dict[str, bool | int | float | str | tuple[str, ...] | None] = Field(default_factory=dict)
    """Generation arguments that override those of the tasks, such as {max_gen_toks: 512}."""
    max_tokens: Positive | None = None
    """Longest answer of inspect, in tokens; None: as the task defines it, or as far as there is room."""
    longest: Positive = 2048
    """Tokens of a prompt and its answer together; longer prompts lose their beginning."""
    seed: Seed = 0
    """Seed of sampled answers and of the examples in prompts."""
    unsafe_code: bool = False
    """Allow tasks that run code which the policy wrote. The harness runs it without the sandbox."""
    guards: dict[TaskName, SuiteGuard] = Field(default_factory=dict)
    """Task -> metric that a candidate must keep to be promoted."""

    @model_validator(mode="after")
    def _fits_the_harness(self) -> SuiteSettings:
        if not self.tasks:
            raise ValueError("tasks: name one task or more")
        if self.harness == "inspect":
            for name in ONLY_LM_EVAL:
                if name in self.model_fields_set:
                    raise ValueError(f"{name}: only the harness lm-eval has it")
        elif self.max_tokens is not None:
            raise ValueError("max_tokens: only the harness inspect has it; set generation: {max_gen_toks: ...}")
        for task in self.guards:
            if self.harness == "lm-eval" and task not in self.tasks:
                raise ValueError(f"guards.{task}: not one of tasks; a group is guarded by its parts, named in tasks")
        if self.system is not None and self.harness == "lm-eval" and not self.chat:
            raise ValueError("system: a system message needs chat: true")
        return self

    @property
    def title(self) -> str:
        """Name of the suite in metrics and guards."""
        return self.name or self.harness

    @property
    def key(self) -> str:
        """Place of the suite in the recipe, for error messages."""
        return f"evaluation.suites: {self.title}"


def check_suites(suites: tuple[SuiteSettings, ...]) -> None:
    """Check that the suites have different names.

    Raises:
        UserError: two have the same name.
    """
    titles = [suite.title for suite in suites]
    for title in titles:
        if titles.count(title) > 1:
            raise UserError(f"evaluation.suites: two are called {title!r}; give one of them another name")
