"""Step 2: validation of the prepared data; failing rows are quarantined, and too many of them stop the flow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from prefect import task

from models.answers.answer_check import AnswerCheck
from models.answers.answers import extract_answer
from models.base.sections import Sections, of
from models.datasets.schema import Kind, available, table_pieces
from models.datasets.validation import ValidationSettings
from models.policies.aspects import ReadingSettings
from models.policies.fitted_tokenizer import fitted_tokenizer
from models.policies.folder import hash_folder
from models.text.encoding import Codec
from models.text.prompt_form import BARE, PromptForm
from models.text.tokenizer import count_tokens
from tasks.data.split_files import sources_of
from tasks.data.validation import validate
from tasks.data.versions import DataVersion
from tasks.runner.caching import cached_by_key
from tasks.runner.progress import progress
from tasks.runner.step import StepContext, StepOutput, StepResult, run_step
from tasks.steps.prepare_data import log_data
from tasks.tracking import records, runs, tags


class ValidationSections(Sections):
    """Settings that decide which rows pass: the expectations, and the tokenizer that counts lengths."""

    validation: ValidationSettings
    policy: ReadingSettings = of("reading_policy")
    data_template: str | None = of("data.template")
    answer_check: AnswerCheck
    """Check of the expected answers by the recipe's verifier."""


@task(name="validate", **cached_by_key)
def validate_data(
    context: StepContext[ValidationSections],
    version: DataVersion,
    held_out: Sequence[DataVersion] = (),
    trained_on: DataVersion | None = None,
) -> StepResult:
    """Validate every file of the prepared data, and write the rows that pass to `clean/` of the step's folder.

    Args:
        context: the step's.
        version: the data to validate.
        held_out: other data sets, all of whose prompts are held out from the training.
        trained_on: data that the policy's tokenizer is fitted to if it has no base; None: `version`.

    Raises:
        UserError: more rows fail than the recipe allows; the message names file, column, count and three row ids.
    """

    recipe = context.recipe

    def work(folder: Path, run_id: str) -> StepOutput:
        log_data(run_id, version, "checked")
        runs.set_tags(run_id, {tags.DATA_REVISION: version.revision})
        form = PromptForm.of(recipe.policy.system, recipe.data_template)
        tokens, prompts = token_counters((trained_on or version).folder, recipe.policy, form)
        done = 0
        try:
            with progress("validate", sum(source.rows for source in sources_of(version.folder)), ()) as show:

                def advance(rows: int) -> None:
                    nonlocal done
                    done += rows
                    show(done, {})

                prepared, kept = version.folder, folder / ".pieces"
                report = validate(
                    prepared,
                    recipe.validation,
                    tokens,
                    extract_answer,
                    folder,
                    advance=advance,
                    pieces=kept,
                    held_out=[other.folder for other in held_out],
                    count_prompts=prompts,
                    check_answers=recipe.answer_check,
                )
        finally:
            if (folder / "data_docs").is_dir():
                records.log_artifacts(run_id, folder / "data_docs", "validation/data_docs")
            if (folder / "quarantine.parquet").is_file():
                records.log_artifact(run_id, folder / "quarantine.parquet", "validation")
        records.log_text(run_id, "validation/summary.md", report.summary())
        metrics = {
            "validation/rows": float(report.rows),
            "validation/quarantined": float(report.quarantined),
            "validation/expectations": float(report.expectations),
            "validation/warnings": float(len(report.warnings)),
        }
        headline = f"{report.quarantined} of {report.rows:,} rows set aside, {report.expectations} expectations"
        return StepOutput(hash_folder(folder / "clean"), headline, metrics)

    return run_step(context, work)


def token_counters(
    folder: Path, policy: ReadingSettings, form: PromptForm
) -> tuple[Callable[[Sequence[str]], list[int]], Callable[[Sequence[str]], list[int]]]:
    """Return two functions: one counts the tokens of each text, the other those of each prompt.

    They use the base's tokenizer, or one that is trained on these rows. A prompt is counted with the system prompt and
    template that the recipe adds, if any.
    """
    if policy.base is not None:
        from models.policies.build import open_tokenizer

        tokenizer = open_tokenizer(policy.base, trust_remote_code=policy.trust_remote_code)
    else:
        tokenizer = fitted_tokenizer(folder, policy.tokenizer, policy.vision)

    def of_texts(texts: Sequence[str]) -> list[int]:
        return count_tokens(tokenizer, texts)

    if form == BARE:
        return of_texts, of_texts
    codec = Codec(tokenizer, policy.chat, form=form)
    return of_texts, lambda texts: [len(ids) for ids in codec.prompts(texts)]


def example_of(data: Path, kind: Kind, *columns: str) -> str:
    """Return an example text for a model: these columns of the first training row, joined; empty without such rows."""
    if "train" not in available(data).get(kind, ()):
        return ""
    (first,) = next(table_pieces(data, kind, "train")).slice(0, 1).to_pylist()
    return " ".join(str(first[column]) for column in columns)


def clean_folder(validated: StepResult) -> Path:
    """Return the folder of the rows that passed the validation."""
    return Path(validated.folder) / "clean"
