"""How fit the prepared data must be, and what a validation found: settings and report as plain data.

The checks themselves are written in `data/expectations/`; the numbers they are held to stand in a recipe under
`validation:` and are the settings here. Rows that fail a critical check are set aside; up to `quarantine_share` of
a file the pipeline goes on without them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ValidationSettings(BaseModel):
    """Bounds of the checks, as they stand under `validation:` in a recipe. An unknown key is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    quarantine_share: float = Field(0.02, ge=0.0, le=1.0)
    """Largest share of failing rows of one file that is set aside; one row more stops the flow."""
    max_characters: int = Field(20_000, ge=1)
    """Longest text of one column, in characters."""
    max_tokens: int = Field(4096, ge=1)
    """Longest sequence that a row makes, in tokens: the prompt, with its longest completion where it has one."""
    min_label_share: float = Field(0.01, ge=0.0, le=1.0)
    """A known level or kind of flaw that is rarer than this in its file is worth a warning."""
    max_label_share: float = Field(0.98, ge=0.0, le=1.0)
    """A known level or kind of flaw that is more common than this in its file is worth a warning."""
    min_longer_share: float = Field(0.1, ge=0.0, le=1.0)
    """Smallest share of pairs whose chosen answer is the longer one (a tie counts half) that passes unwarned."""
    max_longer_share: float = Field(0.9, ge=0.0, le=1.0)
    """Largest such share. Past it a reward model learns to measure length and nothing else."""
    ngram: int = Field(0, ge=0)
    """Words of the n-grams that a train prompt must not share with a held-out one; 0 compares whole prompts only.

    13 is usual for natural text (GPT-3, appendix C). Problems made from a template share their n-grams by
    construction, so the default is 0.
    """

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> ValidationSettings:
        for low, high in (("min_label_share", "max_label_share"), ("min_longer_share", "max_longer_share")):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(f"{low} is {getattr(self, low)}, above {high} {getattr(self, high)}")
        return self


@dataclass(frozen=True, kw_only=True)
class ValidationReport:
    """What a validation found. A report exists only where the data may be used, so `passed` is about every row."""

    passed: bool
    """No row failed a critical check. False: some did, few enough to go on without them."""
    rows: int
    """Rows read, all files together."""
    quarantined: int
    """Rows set aside; a row that failed three checks counts once."""
    by_reason: dict[str, int] = field(default_factory=dict)
    """Failures by reason, most frequent first; a row that failed three checks counts under three reasons."""
    by_file: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of each file: rows read and rows set aside."""
    warnings: list[str] = field(default_factory=list)
    """One sentence for each check of severity "warning" that did not hold."""
    notes: list[str] = field(default_factory=list)
    """Facts of the preparation that a reader must know: splits by file name, dropped rows."""
    expectations: int = 0
    """Expectations evaluated, all files together."""
    docs: str = ""
    """Path of the Data Docs, one HTML page."""
    clean: str = ""
    """Folder with the rows that passed, under the file names of the data that was read."""
    quarantine: str = ""
    """Parquet file with the rows set aside: file, id, column, reason, row as JSON."""

    def summary(self) -> str:
        """The report as Markdown: a table of the files, the reasons, the warnings."""
        lines = [
            f"{self.rows} rows held against {self.expectations} expectations, {self.quarantined} set aside.",
            "",
            "| file | rows | set aside |",
            "| --- | ---: | ---: |",
            *(f"| {file} | {rows} | {failed} |" for file, (rows, failed) in self.by_file.items()),
        ]
        if self.by_reason:
            lines += ["", "| reason | failures |", "| --- | ---: |"]
            lines += [f"| {reason} | {count} |" for reason, count in self.by_reason.items()]
        if self.notes:
            lines += ["", *(f"- {note}" for note in self.notes)]
        if self.warnings:
            lines += ["", *(f"- warning: {warning}" for warning in self.warnings)]
        return "\n".join(lines) + "\n"
