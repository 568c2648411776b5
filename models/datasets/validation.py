"""Requirements on the prepared data, and the result of a validation: settings and report as plain data.

The checks themselves are written in `data/expectations/`; their bounds are given in a recipe under `validation:` and
are the settings here. Rows that fail a critical check are set aside; up to `quarantine_share` of a file the pipeline
continues without them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel, ConfigDict, Field, model_validator


class ValidationSettings(BaseModel):
    """Bounds of the checks, as written under `validation:` in a recipe. An unknown key is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    quarantine_share: float = Field(0.02, ge=0.0, le=1.0)
    """Largest share of failing rows of one file that is set aside; one more row stops the flow."""
    max_characters: int = Field(20_000, ge=1)
    """Longest text of one column, in characters."""
    max_tokens: int = Field(4096, ge=1)
    """Longest sequence of a row, in tokens: the prompt, with its longest completion if it has one."""
    max_images: int = Field(8, ge=0)
    """Largest number of images of a prompt."""
    min_image_edge: int = Field(4, ge=1)
    """Smallest width and height of an image, in pixels."""
    min_label_share: float = Field(0.01, ge=0.0, le=1.0)
    """Share of a known level or kind of flaw in its file below which there is a warning."""
    max_label_share: float = Field(0.98, ge=0.0, le=1.0)
    """Share of a known level or kind of flaw in its file above which there is a warning."""
    min_longer_share: float = Field(0.1, ge=0.0, le=1.0)
    """Smallest share of pairs whose chosen answer is the longer one (a tie counts half) without a warning."""
    max_longer_share: float = Field(0.9, ge=0.0, le=1.0)
    """Largest such share. Above it a reward model learns to measure length and nothing else."""
    ngram: int = Field(0, ge=0)
    """Words of the n-grams that a train prompt must not share with a held-out one; 0: only whole prompts are compared.

    13 is usual for natural text (GPT-3, appendix C). Problems made from a template share their n-grams by
    construction, so the default is 0.
    """

    image_distance: int | None = Field(None, ge=0, le=63)
    """Bits in which the perceptual hashes of a train image and a held-out image may differ for them to count as the
    same, out of 64. None: images are compared only as part of their prompts.

    4 finds copies that were scaled or compressed again. Drawings with much empty space have similar hashes by
    construction, so the default is None.
    """

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> ValidationSettings:
        for low, high in (("min_label_share", "max_label_share"), ("min_longer_share", "max_longer_share")):
            if getattr(self, low) > getattr(self, high):
                raise ValueError(f"{low} is {getattr(self, low)}, above {high} {getattr(self, high)}")
        return self


@dataclass(frozen=True, kw_only=True)
class ValidationReport:
    """Result of a validation. A report exists only if the data may be used, so `passed` is about every row."""

    passed: bool
    """Whether no row failed a critical check. False: some did, but few enough to continue without them."""
    rows: int
    """Number of rows read, all files together."""
    quarantined: int
    """Number of rows set aside; a row that failed three checks counts once."""
    by_reason: dict[str, int] = field(default_factory=dict)
    """Failures by reason, most frequent first; a row that failed three checks counts under three reasons."""
    by_file: dict[str, tuple[int, int]] = field(default_factory=dict)
    """File -> number of rows read and of rows set aside."""
    warnings: list[str] = field(default_factory=list)
    """One sentence for each failed check of severity "warning"."""
    notes: list[str] = field(default_factory=list)
    """Facts about the preparation that a reader must know: splits by file name, dropped rows."""
    expectations: int = 0
    """Number of expectations evaluated, all files together."""
    docs: str = ""
    """Path of the Data Docs, one HTML page."""
    clean: str = ""
    """Folder with the rows that passed, with the file names of the data that was read."""
    quarantine: str = ""
    """Parquet file with the rows set aside: file, id, column, reason, row as JSON."""

    def summary(self) -> str:
        """Return the report as Markdown: a table of the files, the reasons, the warnings."""
        lines = [
            f"{self.rows} rows compared with {self.expectations} expectations, {self.quarantined} set aside.",
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
