"""The `data:` section of a recipe: which data set, and where a user's own files lie and how they are to be read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from models.base.bounds import Positive, Seed
from models.base.errors import shortened
from models.datasets.built_in import BUILT_IN

FormatName = Literal["gsm8k", "hh", "humaneval", "problems", "demonstrations", "preferences", "kinds"]

DataName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9_-]*$", max_length=64)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


def _local(path: str | Path) -> Path:
    """A path as the user wrote it, with `~` filled in.

    Raises:
        ValueError: it is an address, or in the home of nobody.
    """
    if "://" in str(path):
        raise ValueError(f"{shortened(path, 120)} is no path on this machine; download the file and name it here")
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ValueError(f"{shortened(path, 120)} is no path: nobody's home is called that") from None


def _one_or_many(value: Any) -> Any:
    if isinstance(value, (str, Path)):
        value = [value]
    if isinstance(value, (list, tuple)):
        if not value:
            raise ValueError("at least one path")
        return tuple(_local(item) if isinstance(item, (str, Path)) else item for item in value)
    return value


Paths = Annotated[tuple[Path, ...], BeforeValidator(_one_or_many)]
"""Paths on this machine; one alone may stand without brackets."""


class DataSettings(BaseModel):
    """A data set. With `name` alone it is a built-in one; otherwise `path` and `format` say what to read."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    name: DataName = "arithmetic"
    """Folder of the prepared data under data/prepared/."""
    path: Paths | None = None
    """File, folder or list of files: .jsonl, .json, .csv or .parquet. Relative to the working directory. Names such as
    train-*, validation-* and test-* state the split of a file (see data/README.md)."""
    test_path: Paths | None = None
    """Files whose rows are held out, divided between validation and gate as the two shares stand to each other; the
    gate's where `path` has validation files. The other files of `path` are trained on then."""
    format: FormatName | None = None
    """Shape of the rows; `kinds` is a folder with one file a kind (problems.*, demonstrations.*, preferences.*).
    `rewardflow data inspect` shows what it reads."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Field of the format -> name of the user's column, where they differ, such as {prompt: question}."""
    ignore: tuple[str, ...] = ()
    """Columns, and keys of messages, that are left out on purpose: a column that holds text which a chat template may
    write, such as `tools` or `reasoning_content`, is refused otherwise."""
    validation_share: Share = 0.05
    """Share of the prompts held out for validation, by a hash of the prompt."""
    gate_share: Share = 0.1
    """Share of the prompts held out for the gate's problems, by a hash of the prompt."""
    gate_rotation: Seed = 0
    """Another number divides the held-out prompts anew: as many others of them become the gate's, train stays."""
    seed: Seed = 0
    """Seed of the hash that splits."""
    template: str | None = None
    """Text around every prompt, with `{prompt}` exactly once; every other brace is text. The rows stay as they are: the
    policy and whatever is fitted to prompts read it. None: nothing."""
    limit: Positive | None = None
    """Read at most so many rows of `path` and so many of `test_path` (of each kind, in the order of the files; of each
    split where the names of files state it)."""

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
            standing = type(self).model_construct(name=self.name)  # what is written out at its default is no setting
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
        """Whether the shares decide every prompt's split, and no column of the data."""
        return not self.built_in and self.format != "kinds" and "split" not in self.columns

    @property
    def held_out_share(self) -> float:
        """Validation and gate together."""
        return self.validation_share + self.gate_share

    @property
    def gate_part(self) -> float:
        """Which part of the held-out prompts is the gate's, 0 to 1."""
        return self.gate_share / self.held_out_share if self.held_out_share else 0.0
