"""The `data:` section of a recipe: the data set, the location of a user's own files, and how they are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from models.base.bounds import Positive, Seed
from models.base.errors import UserError, shortened
from models.datasets.built_in import BUILT_IN
from models.datasets.hub_reference import DataPath, is_hub_reference, parse_hub_reference

FormatName = Literal[
    "gsm8k", "hh", "humaneval", "problems", "demonstrations", "preferences", "alpaca", "ultrafeedback",
    "helpsteer", "kto", "stepwise", "kinds", "auto",
]  # fmt: skip

DataName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


def _data_path(path: DataPath) -> DataPath:
    """Return a path as the user wrote it, with `~` expanded, or the text of a hub reference.

    Raises:
        ValueError: it is another URL, or is in the home of an unknown user.
    """
    if is_hub_reference(path):
        try:
            reference = parse_hub_reference(path)
        except UserError as error:
            raise ValueError(str(error)) from None
        return str(reference)
    if "://" in str(path):
        raise ValueError(
            f"{shortened(path, 120)} is not a path on this machine, and not hf://OWNER/NAME; download the file and "
            "name it here"
        )
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError(f"{shortened(path, 120)} is not a path: this user has no home folder here") from None


def _one_or_many(value: Any) -> Any:
    if isinstance(value, (str, Path)):
        value = [value]
    if isinstance(value, (list, tuple)):
        if not value:
            raise ValueError("at least one path")
        return tuple(_data_path(item) if isinstance(item, (str, Path)) else item for item in value)
    return value


Paths = Annotated[tuple[DataPath, ...], BeforeValidator(_one_or_many)]
"""Paths on this machine, and hub references as text; a single one may be written without brackets."""


class DataSettings(BaseModel):
    """A data set. With `name` alone it is a built-in one; otherwise `path` and `format` define the files to read."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: DataName = "arithmetic"
    """Folder of the prepared data under data/prepared/."""
    path: Paths | None = None
    """File, folder or list of files: .jsonl, .json, .csv or .parquet. Relative to the working directory. Names such as
    train-*, validation-* and test-* state the split of a file (see data/README.md). A data set of the Hugging Face hub
    is hf://OWNER/NAME@COMMIT, with :CONFIG or :CONFIG/SPLIT after it for a part of it."""
    test_path: Paths | None = None
    """Files whose rows are held out, divided between validation and gate in the ratio of the two shares; only for the
    gate if `path` has validation files. The other files of `path` are then used for training."""
    format: FormatName | None = None
    """Shape of the rows; `kinds` is a folder with one file for each kind (problems.*, demonstrations.*, preferences.*),
    and `auto` recognises the format from the columns. `rewardflow data inspect` shows what it reads."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Field of the format -> name of the user's column, if they differ, such as {prompt: question}."""
    ignore: tuple[str, ...] = ()
    """Columns, and keys of messages, that are left out on purpose. Otherwise a column with text that a chat template
    may write, such as `tools` or `reasoning_content`, is refused."""
    validation_share: Share = 0.05
    """Share of the prompts held out for validation, by a hash of the prompt."""
    gate_share: Share = 0.1
    """Share of the prompts held out for the gate's problems, by a hash of the prompt."""
    gate_rotation: Seed = 0
    """Choice of the held-out prompts that are the gate's; another number chooses as many others, train is unchanged."""
    seed: Seed = 0
    """Seed of the hash that decides the splits."""
    template: str | None = None
    """Text around every prompt, with `{prompt}` exactly once; every other brace is text. The stored rows are
    unchanged: the policy and everything that is fitted to prompts use the template. None: no text is added."""
    limit: Positive | None = None
    """Largest number of rows that are read from `path`, and from `test_path` (of each kind, in the order of the files;
    of each split if the file names state it)."""

    @field_validator("template")
    @classmethod
    def _has_place(cls, template: str | None) -> str | None:
        if template is not None and (count := template.count("{prompt}")) != 1:
            raise ValueError(f"it has {{prompt}} {count} times; write it exactly once (other braces are text)")
        return template

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.path is None:
            if self.name not in BUILT_IN:
                known = ", ".join(BUILT_IN)
                raise ValueError(f"'{self.name}' is not built in ({known} are): it needs a path and a format")
            standing = type(self).model_construct(name=self.name)  # a value at its default is not a change
            changed = [
                key for key in self.model_fields_set - {"template"} if getattr(self, key) != getattr(standing, key)
            ]
            if changed:
                extra = ", ".join(sorted(changed))
                raise ValueError(f"{extra}: only with a path; params.yaml holds what {self.name} is made of")
        elif self.format is None:
            raise ValueError("a data set with a path needs a format")
        if self.held_out_share > 1.0:
            raise ValueError("validation_share and gate_share add up to more than 1")
        if self.test_path and self.held_out_share == 0.0:
            raise ValueError("test_path: validation_share and gate_share say how its rows are divided; both are 0")
        if self.format == "kinds" and self.columns:
            raise ValueError("columns: the files of format kinds have the columns of the prepared form")
        return self

    @property
    def built_in(self) -> bool:
        """Whether the project's own stages make the data set."""
        return self.path is None

    @property
    def splits_by_hash(self) -> bool:
        """Whether the shares decide the split of every prompt, and not a column of the data."""
        return not self.built_in and self.format != "kinds" and "split" not in self.columns

    @property
    def held_out_share(self) -> float:
        """Share of validation and gate together."""
        return self.validation_share + self.gate_share

    @property
    def gate_part(self) -> float:
        """Fraction of the held-out prompts that is the gate's, 0 to 1."""
        return self.gate_share / self.held_out_share if self.held_out_share else 0.0
