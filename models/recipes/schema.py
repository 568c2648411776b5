"""Schema of a recipe in pydantic. The settings of each section are defined next to the code that reads them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, create_model, model_validator

from models.answers.answer_check import AnswerCheck
from models.base.bounds import Positive, Seed, Temperature, require_finite
from models.base.placement import PlacementSettings
from models.base.source_code import GivenFile
from models.datasets.built_in import BUILT_IN
from models.datasets.settings import DataSettings
from models.datasets.validation import ValidationSettings
from models.engines.engine import EngineSettings
from models.evaluation.drift import DriftSettings
from models.evaluation.gate.gate import GateSettings
from models.evaluation.other_images import ShownImages
from models.evaluation.wrapped import Wrapping
from models.learner.model_parts import ALL_PARTS
from models.learner.supervised import SupervisedSettings
from models.method.advantage import Advantage
from models.method.alarm import AlarmSettings
from models.method.objective import Objective
from models.method.reference import Reference
from models.method.registry import SLOTS, Slot, default_part, slot_type
from models.method.reward import Reward
from models.method.rollout_source import Rollouts
from models.method.schedule import ScheduleSettings
from models.method.select import Select
from models.method.slots import Slots
from models.method.truncation import TruncationSettings
from models.parts.rewards.rules.exact_answer import ExactAnswer
from models.parts.shared.jury import JurySettings
from models.policies.aspects import ReadingSettings, UseSettings, reading_of, start_of, use_of
from models.policies.build import PolicySettings
from models.policies.teacher import ModelSettings, TeacherSettings
from models.recipes.combinations import check_combination
from models.recipes.named_models import check_models, with_entries
from models.recipes.room import check_room
from models.recipes.suites import SuiteSettings, check_suites
from models.recipes.timeouts import TimeoutSettings
from models.reward_models.annotators import GroupSettings
from models.reward_models.ensemble import EnsembleSettings
from models.reward_models.facts import FactSettings
from models.reward_models.fit import RewardModelSettings
from models.reward_models.gap import GapSettings
from models.reward_models.judges.settings import JudgeSettings
from models.reward_models.principles import Principles
from models.reward_models.process_settings import ProcessSettings
from models.reward_models.solutions import Labels
from models.reward_models.strength import StrengthSettings
from models.reward_models.trust import ReportSettings


class Section(BaseModel):
    """Base class of sections: immutable, and unknown keys are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Paper(Section):
    """The paper that a method comes from."""

    id: int | None = None
    """Number of the paper in the catalogue of source papers."""
    title: str = ""
    """Title of the paper, with its number in an archive if it has one."""
    family: str = ""
    """Kind of method, as in the catalogue: policy-gradient, preference-optimisation, ..."""


class RewardModelSection(Section):
    """Fit of the reward model, and the accuracy that it must reach. `reward_model: null` leaves the step out."""

    fit: RewardModelSettings = RewardModelSettings()
    least_accuracy: float = Field(default=0.6, ge=0.0, le=1.0)
    """Held-out pair accuracy below which the flow stops before any reinforcement learning; for a process reward model,
    the accuracy on pairs of a good and a bad step."""
    process: ProcessSettings | None = None
    """Process reward model, fitted to labelled steps of solutions; null: a reward model, fitted to preferences."""
    pairs: JurySettings | None = None
    """Jury of judges that makes the preferences, from completions of the policy; null: those of the data are used."""
    strength: StrengthSettings | None = None
    """Correction of pairs by several other reward models (swapped pairs, margins); null: pairs are used unchanged."""
    parallel: bool = False
    """Whether it learns the features that distinguish sound demonstrations from their prompts, which are then parallel
    texts; a text is read on its own. false: it learns from preferences."""
    gap: GapSettings | None = None
    """Scores of how much better a completion is than the one in its prompt; null: each is scored on its own."""
    ensemble: EnsembleSettings | None = None
    """Several reward models whose scores are combined; null: a single one."""
    principles: Principles | None = None
    """Texts before the prompt that the reward model follows, each with its rule for the better completion of a pair:
    given (as in the data), shorter or longer; the first must be given. null: no such texts."""
    facts: FactSettings | None = None
    """Facts that the reward model reads with each prompt and the policy does not: the answer of the prompt's problem.
    null: it reads what the policy reads."""
    groups: GroupSettings | None = None
    """One reward model for each group of annotators who agree; that of the worst served group is used. null: one for
    all."""
    report: ReportSettings | None = None
    """Report on the reward model before the policy's training, with the thresholds that it must meet; null: none."""

    @property
    def has_goal(self) -> bool:
        """Whether the reward model is fitted with a goal state, which is stored with it."""
        return self.fit.contrast is not None and self.fit.contrast.goal > 0

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.process is not None and (self.ensemble is not None or self.strength is not None):
            raise ValueError("process: a process reward model has neither ensemble nor strength; set these to null")
        if self.process is not None and self.fit.contrast is not None:
            raise ValueError("process: a process reward model knows no pairs to contrast; set fit.contrast to null")
        if self.fit.reactions is not None and (self.process is not None or self.strength is not None):
            raise ValueError("fit.reactions: a reaction is to one completion; set process and strength to null")
        if self.gap is not None and (self.parallel or self.process is not None or self.strength is not None):
            raise ValueError("gap: a gap is one of labelled preferences; set parallel, process and strength back")
        if self.parallel and (self.process is not None or self.strength is not None):
            raise ValueError("parallel: parallel texts are not labelled preferences; set process and strength to null")
        if self.pairs is not None and (self.parallel or self.process is not None):
            raise ValueError("pairs: a jury makes preferences; set process to null and parallel to false")
        if self.principles is not None and any(
            (self.process, self.parallel, self.gap, self.fit.contrast, self.fit.reactions)
        ):
            raise ValueError(
                "principles: they order preferences again; set process, gap, fit.contrast and fit.reactions to null, "
                "and parallel to false"
            )
        if self.facts is not None and any(
            (self.process, self.parallel, self.gap, self.principles, self.has_goal, self.report)
        ):
            raise ValueError(
                "facts: a reward model that reads facts is one of plain preferences; set process, gap, principles and "
                "report to null, parallel to false, and fit.contrast.goal to 0"
            )
        others = (self.process, self.ensemble, self.strength, self.parallel, self.principles)
        if self.groups is not None and any(others):
            raise ValueError(
                "groups: each has a reward model of plain preferences; set process, ensemble, strength and principles "
                "to null, and parallel to false"
            )
        return self


@dataclass(frozen=True, kw_only=True)
class EvaluationSettings:
    """Measurement of policies on the validation split. Set under `evaluation:`."""

    problems: Positive = 300
    """Held-out problems, evenly spaced over the split; the same for every model."""
    samples: Positive = 16
    """Completions of each problem at `temperature`."""
    temperature: Temperature = 1.0
    """Temperature of the sampled completions; one greedy completion of each problem is measured as well."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Top-p of the sampled completions: only the likeliest tokens with this probability together are drawn."""
    max_tokens: Positive | None = None
    """Maximum number of tokens of a completion; None: as in the rollouts."""
    ks: tuple[Positive, ...] = (1, 4, 16)
    """Subset sizes of pass@k and maj@k."""
    seed: Seed = 0
    """Seed of the sampled completions."""
    wrap: Wrapping | None = None
    """Rewriting of all prompts of evaluations and the gate as code; null: the prompts of the rows."""
    images: ShownImages = "own"
    """Pictures that the prompts show: their own, those of other problems, or blank ones (the blind control)."""
    suites: tuple[SuiteSettings, ...] = ()
    """Tasks of lm-evaluation-harness and inspect-ai, on which base, candidate and champion are measured too."""

    def __post_init__(self) -> None:
        check_suites(self.suites)


class Recipe(Section):
    """All sections of a recipe except the slots. `recipe_type` adds these, for the parts that exist."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)
    """Name of the MLflow experiment and of the registered models."""
    seed: Seed = 0
    """Seed of all randomness of the training."""
    source: Paper = Paper()
    data: DataSettings = DataSettings()
    validation: ValidationSettings = ValidationSettings()  # type: ignore[call-arg]
    policy: PolicySettings = PolicySettings()
    engine: EngineSettings = EngineSettings()
    placement: PlacementSettings = PlacementSettings()
    """Where learner and engines run; results do not depend on it."""
    timeouts: TimeoutSettings = TimeoutSettings()
    warm_start: SupervisedSettings | None = Field(default_factory=SupervisedSettings)
    """Supervised fine-tuning before all other training; null leaves it out (policy.base is then required)."""
    reward_model: RewardModelSection | None = RewardModelSection()
    """Fit of the reward model before the loop; null leaves it out."""
    models: dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], ModelSettings] = {}
    """Frozen models by name, which parts, `teacher` and `judge` refer to."""
    teacher: TeacherSettings | None = None
    """Frozen model that the policy is distilled from, if a part requires one."""
    judge: JudgeSettings | None = None
    """Model that reads completions and grades them, if a part requires one; {}: the policy as it began."""
    evaluation: EvaluationSettings = EvaluationSettings()
    gate: GateSettings = GateSettings()
    drift: DriftSettings = DriftSettings()
    """Settings of the drift report in the nightly evaluation of the champion."""
    truncated: TruncationSettings = TruncationSettings()
    """Treatment of completions that did not end."""
    schedule: ScheduleSettings | None = Field(default_factory=ScheduleSettings)
    """Length and optimisation of the loop; null: the flow ends after the reward model."""
    alarm: AlarmSettings | None = Field(default_factory=AlarmSettings)
    """Conditions under which the policy counts as collapsed, and the action then; null: never."""
    reports: str | None = Field(default=None, pattern=r"^s3://[^/]+")
    """S3 address that the validation report and the description are uploaded to; None: no upload."""
    approval: bool = False
    """Ask a person before a candidate that passed the gate becomes champion."""
    promote_unpinned: bool = False
    """Promote also candidates that depend on files outside any commit: edited or new code, data that were not added.
    Such a candidate cannot be reproduced."""
    if TYPE_CHECKING:  # fields of `recipe_type`
        rollouts: Rollouts
        rewards: list[Reward]
        select: list[Select]
        advantage: Advantage
        objective: Objective
        reference: Reference

    @property
    def sources(self) -> list[GivenFile]:
        """Files of the user's own that rollouts and rewards read: code of rewards, documents of tools."""
        return [source for part in (self.rollouts, *self.rewards) for source in part.given]

    @property
    def verifier(self) -> Reward | None:
        """The reward that also decides in evaluations and at the gate; None: the problems' answers decide."""
        return next((reward for reward in self.rewards if reward.verifies), None)

    @property
    def answer_check(self) -> AnswerCheck:
        """Settings of the check of the data's expected answers."""
        played = self.verifier is None and self.rollouts.episodes is not None
        reading = [reward for reward in self.rewards if reward.needs_answers]
        decides = self.verifier or ExactAnswer()
        return AnswerCheck(None if played else decides, decides.by_wording and bool(reading) and not played)

    @property
    def shown_verifier(self) -> Reward | None:
        """The verifier, if the warm start selects demonstrations by whether they are right; otherwise None."""
        return self.verifier if self.warm_start is not None and self.warm_start.judges else None

    @property
    def reading_policy(self) -> ReadingSettings:
        """Settings of the policy that decide how texts become tokens."""
        return reading_of(self.policy)

    @property
    def starting_policy(self) -> PolicySettings:
        """Settings of the policy that decide how it is at the start of the loop; others have their defaults."""
        return start_of(self.policy, self.warm_start is not None)

    @property
    def used_policy(self) -> UseSettings:
        """Settings of the policy for sampling from it once its files exist."""
        return use_of(self.policy)

    @property
    def scoring_precision(self) -> Literal["auto", "float32", "bfloat16"] | None:
        """Precision of the reward model's scoring; None without a reward model."""
        return self.policy.precision if self.reward_model is not None else None

    @property
    def slots(self) -> Slots:
        """The parts that the loop is made of."""
        return Slots(**{slot: getattr(self, slot) for slot in SLOTS})

    @property
    def labels(self) -> Labels | None:
        """Labeller of steps for a process reward model; None if there is none."""
        process = self.reward_model.process if self.reward_model is not None else None
        return process.labels if process is not None else None

    @property
    def judges_rows(self) -> bool:
        """Whether a judge makes the rows that the reward model is fitted to: labels of steps, or pairs."""
        pairs = self.reward_model is not None and self.reward_model.pairs is not None
        return pairs or (self.labels is not None and self.labels.needs_judge)

    @property
    def judges_report(self) -> bool:
        """Whether the report of the reward model also compares the judge with the truth."""
        report = self.reward_model.report if self.reward_model is not None else None
        return report is not None and report.judged > 0

    @property
    def largest_round(self) -> int:
        """Largest number of completions in one round."""
        rollouts = self.slots.rollouts
        return rollouts.groups_in_round() * rollouts.largest_group()

    @property
    def open_ended(self) -> bool:
        """Whether the number of completions is not known in advance: rounds may draw further prompts, or prompts are
        tried first."""
        tries = self.schedule is not None and self.schedule.curriculum.tries
        return tries or any(select.refills for select in self.slots.select)

    @model_validator(mode="before")
    @classmethod
    def _with_entries(cls, raw: Any) -> Any:
        return with_entries(raw)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        require_finite(self)  # a number that is text in the YAML is seen only now
        check_models(self)
        if not self.policy.train or len(set(self.policy.train)) < len(self.policy.train):
            raise ValueError("policy.train: name at least one part, and each once")
        if self.policy.train != ALL_PARTS and self.policy.base is None and self.policy.size.vision is None:
            raise ValueError("policy.train: the policy reads no images; leave it out, or set policy.size.vision")
        if self.policy.system is not None and not self.policy.chat:
            raise ValueError("policy.system: only with policy.chat: true; without a chat template use data.template")
        if self.warm_start is None and self.policy.base is None:
            raise ValueError("warm_start: null needs policy.base, a model to begin with")
        check_room(self, self.policy.size.positions if self.policy.base is None else None)
        for name, held_out in self.gate.held_out.items():
            if held_out.is_control:
                continue
            if name == self.data.name or (held_out.path is not None and name in BUILT_IN):
                raise ValueError(
                    f"gate.held_out.{name}: a data set has this name already; give the held-out set another"
                )
            built_in = held_out.built_in or name
            if held_out.path is None and built_in not in BUILT_IN:
                called = "has this name" if held_out.built_in is None else f"is called {built_in}"
                raise ValueError(f"gate.held_out.{name}: no path, and no built-in data set {called}; set a path")
            if built_in == self.data.name and held_out.wrap is None:
                raise ValueError(f"gate.held_out.{name}.built_in: these are the recipe's own rows; set wrap")
        if self.gate.fluency_margin is not None and self.rollouts.episodes is not None:
            raise ValueError("gate.fluency_margin: only where the policy answers in one turn; set it to null")
        if self.schedule is None:
            return self
        if self.policy.subnetwork is not None and self.schedule.optimiser.weight_decay:
            raise ValueError(
                "policy.subnetwork lets only some weights learn, but schedule.optimiser.weight_decay would shrink the "
                "others too; set it to 0"
            )
        if self.reward_model is None and any(reward.needs_reward_model for reward in self.rewards):
            raise ValueError("rewards: reward_model is used but the recipe fits none (reward_model: null)")
        process = self.reward_model.process if self.reward_model is not None else None
        if process is None and (named := [reward.name for reward in self.rewards if reward.needs_steps]):
            raise ValueError(
                f"rewards: {named[0]} reads the values of steps, which reward_model.process fits; it is null"
            )
        if (goals := [reward.name for reward in self.rewards if reward.needs_goal]) and not (
            self.reward_model is not None and self.reward_model.has_goal
        ):
            raise ValueError(f"rewards: {goals[0]} needs a goal; set reward_model.fit.contrast.goal above 0")
        principles = (self.reward_model.principles if self.reward_model is not None else None) or {}
        for reward in self.rewards:
            if reward.principle and reward.principle not in principles:
                known = ", ".join(principles) or "none"
                raise ValueError(
                    f"rewards.{reward.label}.principle: {reward.principle!r} is none of reward_model.principles, which "
                    f"has {known}"
                )
        gap = self.reward_model.gap if self.reward_model is not None else None
        if gap is not None and gap.context != self.rollouts.training_context:
            raise ValueError(
                "reward_model.gap.context is not what completions are trained behind: set rollouts.name to improved "
                "and rollouts.context to the same"
            )
        check_combination(self, self.schedule)
        if self.data.splits_by_hash:
            for name in ("validation_share", "gate_share"):
                if getattr(self.data, name) == 0.0:
                    raise ValueError(f"data.{name}: 0 leaves no problems to evaluate on; only with schedule: null")
        return self


@lru_cache(maxsize=1)
def recipe_type() -> type[Recipe]:
    """Return the full type of a recipe: its sections and one field for each slot."""

    def field(slot: Slot) -> Any:
        default = default_part(slot)
        return Field(default_factory=lambda: [default()] if SLOTS[slot].many else default())

    fields: dict[str, Any] = {slot: (slot_type(slot), field(slot)) for slot in SLOTS}
    return create_model("Recipe", __base__=Recipe, **fields)
