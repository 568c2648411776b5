"""Step 4a, for a process reward model: solutions that the policy writes, with a label for each of their steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from prefect import get_run_logger, task

from models.answers.exact import is_right
from models.base.errors import UserError
from models.base.sections import of
from models.base.seeds import seed_of
from models.datasets.row_table import open_rows
from models.datasets.schema import Split, available
from models.engines.engine import Engine, Sampling
from models.method.judge import GenerativeJudge
from models.method.learner import Role
from models.method.problem import Problem
from models.policies.folder import hash_folder
from models.reward_models.process_settings import ProcessSettings
from models.reward_models.solution_rows import write_solutions
from models.reward_models.solutions import LabellingTools, Labels, Solution, known_labels
from models.text.encoding import Codec
from tasks.compute.labelling import SPLITS, LabellingSections, open_labelling_models, problems_to_label
from tasks.compute.shared_engine import engine_place
from tasks.pages.cost import Cost
from tasks.registered.policy import PolicyFiles
from tasks.runner.caching import cached_by_key
from tasks.runner.progress import stages
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step
from tasks.steps.validate_data import clean_folder
from tasks.tracking import records, registry


class LabelSections(LabellingSections):
    """The sections of the recipe that the labelling of steps reads."""

    process: ProcessSettings = of("reward_model.process")


@task(name="label_steps", **cached_by_key)
def label_steps(
    context: StepContext[LabelSections],
    validated: StepResult,
    warmed: StepResult,
    judges: Mapping[Role, PolicyFiles],
) -> StepResult:
    """Sample solutions and label their steps; write `train.jsonl` and `validation.jsonl` of the step's folder.

    Args:
        context: the step's.
        validated: the data.
        warmed: the policy that draws.
        judges: the model that judges, if the labels need one and it is on this machine; else empty.
    """
    recipe = context.recipe
    settings = recipe.process

    def work(folder: Path, run_id: str) -> StepOutput:
        data, start = clean_folder(validated), Path(warmed.folder) / "policy"
        registry.log_model_inputs(run_id, [warmed.links["model_id"]])
        solutions_by_split: dict[Split, list[Solution]] = {}
        with stages(context.name, ("engine", *SPLITS)) as begin:
            begin("engine")
            needs_judge = settings.labels.needs_judge
            with open_labelling_models(recipe, start, judges, needs_judge=needs_judge) as labelling_models:
                for split, count in zip(SPLITS, (settings.problems, settings.held_out), strict=True):
                    begin(split)
                    hardest = settings.hardest if split == "train" else None
                    problems = problems_to_label(recipe, data, labelling_models.codec, split, count, run_id, hardest)
                    solutions_by_split[split] = draw_and_label(
                        recipe,
                        labelling_models.engine,
                        labelling_models.codec,
                        data,
                        split,
                        problems,
                        labelling_models.judge,
                    )
        for split, solutions in solutions_by_split.items():
            write_solutions(folder / f"{split}.jsonl", solutions)
            records.log_artifact(run_id, folder / f"{split}.jsonl", "labels")
        metrics = {f"label_steps/{name}": value for name, value in counts(solutions_by_split["train"]).items()}
        labelled, mean = metrics["label_steps/labelled"], metrics["label_steps/mean_label"]
        headline = (
            f"{labelled:,.0f} labelled steps of {len(solutions_by_split['train']):,} solutions, mean label {mean:.3f}"
        )
        get_run_logger().info(f"{context.name}: {headline}")
        tokens = sum(
            len(solution.completion) for split_solutions in solutions_by_split.values() for solution in split_solutions
        )
        return StepOutput(hash_folder(folder), headline, metrics, tokens=Cost(tokens_sampled=tokens))

    with engine_place():
        return run_step(context, work)


def draw_and_label(
    recipe: LabelSections,
    engine: Engine,
    codec: Codec,
    data: Path,
    split: Split,
    problems: Sequence[Problem],
    judge: GenerativeJudge | None = None,
) -> list[Solution]:
    """Sample solutions of a split's `problems` from the policy in `engine`, and label each of their steps.

    `judge` is used if the labels need one.
    """
    settings = recipe.process
    sampling = Sampling(
        max_tokens=recipe.longest_drawn, temperature=settings.temperature, samples=settings.samples, log_probs=False
    )
    references = right_solutions(data, split, settings.labels)
    seed = seed_of(recipe.seed, f"labels of {split}")
    tools = LabellingTools(engine, codec, recipe.verify, sampling, settings.marks, seed, references, judge)
    return settings.labels(tools, problems)


def right_solutions(data: Path, split: Split, labels: Labels) -> Mapping[str, str]:
    """Return prompt -> right solution, for prompts with one in the data; empty if the labeller does not need them.

    A solution is a demonstration that states its answer, or else the better answer of a preference.

    Raises:
        UserError: the labeller needs right solutions, and the data contain none.
    """
    if not labels.needs_references:
        return {}
    right = known_solutions(data, split)
    if not right:
        raise UserError(
            f"reward_model.process.labels: {labels.name} compares with right solutions; the data hold none of {split}"
        )
    return right


def known_solutions(data: Path, split: Split) -> Mapping[str, str]:
    """Return prompt -> right solution, for every prompt with one in the data; see `right_solutions`."""
    right: dict[str, str] = {}
    splits_by_kind = available(data)
    if split in splits_by_kind.get("preferences", ()):
        for batch in open_rows(data, "preferences", split).batches():
            right |= {str(row["prompt"]): str(row["chosen"]) for row in batch.to_pylist()}
    if split in splits_by_kind.get("demonstrations", ()):
        for batch in open_rows(data, "demonstrations", split).batches():
            rows = batch.to_pylist()
            right |= {
                str(row["prompt"]): str(row["completion"])
                for row in rows
                if is_right(str(row["completion"]), str(row["answer"]), finished=True)
            }
    return right


def counts(solutions: list[Solution]) -> dict[str, float]:
    """Count solutions, steps and labelled steps; also return the mean label and the share of right solutions."""
    labels = [label for solution in solutions for label in solution.labels if label == label]
    return {
        "solutions": float(len(solutions)),
        "steps": float(sum(len(solution.ends) for solution in solutions)),
        "labelled": float(sum(int(known_labels(solution).sum()) for solution in solutions)),
        "mean_label": sum(labels) / max(1, len(labels)),
        "right": sum(solution.right for solution in solutions) / max(1, len(solutions)),
    }
