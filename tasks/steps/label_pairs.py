"""Step 4a, if a jury makes the preferences: pairs of the policy's completions on whose order the jurors agree."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from prefect import get_run_logger, task

from models.base.errors import UserError
from models.base.sections import of
from models.base.seeds import seed_of
from models.datasets.schema import SYSTEM, Row, Split, arrow_schema, file_name, write_rows
from models.engines.engine import Sampling
from models.method.learner import Role
from models.method.problem import Problem
from models.parts.shared.jury import FATES, JurySettings, Verdicts, ask_jury
from models.policies.folder import hash_folder
from models.reward_models.solutions import LabellingTools
from tasks.compute.labelling import SPLITS, LabellingModels, LabellingSections, open_labelling_models, problems_to_label
from tasks.compute.shared_engine import engine_place
from tasks.pages.cost import Cost
from tasks.registered.policy import PolicyFiles
from tasks.runner.caching import cached_by_key
from tasks.runner.progress import stages
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step
from tasks.steps.validate_data import clean_folder
from tasks.tracking import records, registry


class JurySections(LabellingSections):
    """The sections of the recipe that the labelling of pairs reads."""

    pairs: JurySettings = of("reward_model.pairs")


@task(name="label_pairs", **cached_by_key)
def label_pairs(
    context: StepContext[JurySections],
    validated: StepResult,
    warmed: StepResult,
    judges: Mapping[Role, PolicyFiles],
) -> StepResult:
    """Sample completions, let the jury compare them, and write the pairs on which it agrees as preferences.

    They are written to `preferences_train.parquet` and `preferences_validation.parquet` of the step's folder, in the
    format of a prepared data set.

    Args:
        context: the step's.
        validated: the data with the problems.
        warmed: the policy that draws.
        judges: the model that judges, if it is on this machine; else empty.

    Raises:
        UserError: the jury agrees on no pair of a split.
    """
    recipe = context.recipe
    settings = recipe.pairs

    def work(folder: Path, run_id: str) -> StepOutput:
        data, start = clean_folder(validated), Path(warmed.folder) / "policy"
        registry.log_model_inputs(run_id, [warmed.links["model_id"]])
        metrics: dict[str, float] = {}
        tokens = 0
        with stages(context.name, ("engine", *SPLITS)) as begin:
            begin("engine")
            with open_labelling_models(recipe, start, judges, needs_judge=True) as labelling_models:
                for split, count in zip(SPLITS, (settings.problems, settings.held_out), strict=True):
                    begin(split)
                    problems = problems_to_label(recipe, data, labelling_models.codec, split, count, run_id)
                    verdicts, drawn_tokens = draw_and_ask(recipe, labelling_models, split, problems)
                    tokens += drawn_tokens
                    file = folder / file_name("preferences", split)
                    rows = rows_of(verdicts)
                    write_rows(file, rows, arrow_schema("preferences", system=any(row[SYSTEM] for row in rows)))
                    records.log_artifact(run_id, file, "pairs")
                    pair_counts = counts(verdicts, problems)
                    if split == "train":
                        metrics |= {f"label_pairs/{name}": value for name, value in pair_counts.items()}
                    get_run_logger().info(f"{context.name}: {split}, {verdicts.pair_count} pairs: {verdicts.summary}")
                    if not verdicts.pairs:
                        raise UserError(
                            f"reward_model.pairs: the jury agrees on none of {verdicts.pair_count} pairs of {split} "
                            f"({verdicts.summary}); draw more samples, or ask a judge that knows the question"
                        )
        kept, right = metrics["label_pairs/kept"], metrics["label_pairs/chosen_right"]
        compared = metrics["label_pairs/asked"]
        headline = f"{kept:,.0f} of {compared:,.0f} pairs kept, the better one right in {right:.0%}"
        return StepOutput(hash_folder(folder), headline, metrics, tokens=Cost(tokens_sampled=tokens))

    with engine_place():
        return run_step(context, work)


def draw_and_ask(
    recipe: JurySections, labelling_models: LabellingModels, split: Split, problems: Sequence[Problem]
) -> tuple[Verdicts, int]:
    """Sample completions of a split's `problems`; return the jury's verdicts on them, and their number of tokens."""
    settings = recipe.pairs
    sampling = Sampling(
        max_tokens=recipe.longest_drawn, temperature=settings.temperature, samples=settings.samples, log_probs=False
    )
    seed = seed_of(recipe.seed, f"pairs of {split}")
    tools = LabellingTools(
        labelling_models.engine, labelling_models.codec, recipe.verify, sampling, (), seed, {}, labelling_models.judge
    )
    solutions = tools.solutions(problems)
    return ask_jury(settings, tools.required_judge(), solutions, seed), sum(
        len(solution.completion) for solution in solutions
    )


def rows_of(verdicts: Verdicts) -> list[Row]:
    """Convert the pairs to rows of preferences."""
    return [
        {
            "id": f"pair {number}",
            "prompt_id": pair.chosen.problem.id,
            "prompt": pair.chosen.problem.prompt,
            "chosen": pair.chosen.text,
            "rejected": pair.rejected.text,
            "level": pair.chosen.problem.level,
            "flaw": "",
            SYSTEM: pair.chosen.problem.system,
        }
        for number, pair in enumerate(verdicts.pairs)
    ]


def counts(verdicts: Verdicts, problems: Sequence[Problem]) -> dict[str, float]:
    """Count the pairs that were given to the jury, by outcome, and the pairs that were kept.

    Also return the share of problems with a kept pair, and the shares of kept pairs in which the better and the worse
    completion solve the problem.
    """
    kept_pairs = verdicts.pairs
    return {
        "asked": float(verdicts.pair_count),
        **{fate: float(verdicts.fates[fate]) for fate in FATES},
        "kept": float(len(kept_pairs)),
        "problems": len({pair.chosen.problem.id for pair in kept_pairs}) / max(1, len(problems)),
        "chosen_right": sum(pair.chosen.right for pair in kept_pairs) / max(1, len(kept_pairs)),
        "rejected_right": sum(pair.rejected.right for pair in kept_pairs) / max(1, len(kept_pairs)),
    }
