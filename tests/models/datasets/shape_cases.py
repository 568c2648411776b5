"""The common shapes of data, each with a small file and what it becomes. data/README.md shows them as a table.

python -m tests.models.datasets.shape_cases        writes the table into data/README.md
"""

import json
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from models.base.errors import UserError
from models.datasets.prepare import prepare
from models.datasets.recognition import recognise
from models.datasets.schema import IDS, KINDS, Kind, available, read_rows
from models.datasets.settings import DataSettings

FOLDER = Path(__file__).with_name("shapes")
DOCS = Path(__file__).resolve().parents[3] / "data" / "README.md"
BEGIN = "<!-- shapes: written by tests/models/datasets/shape_cases.py -->\n"
END = "<!-- end of shapes -->\n"
Rows = dict[Kind, list[dict[str, Any]]]


class Case(NamedTuple):
    """A shape of data, and the expected result for its file."""

    name: str
    """Where the shape is from, for the table."""
    file: str
    format: str
    """Format that is recognised."""
    rows: Rows
    """Rows of each kind, without ids, unknown texts and levels; none if the file is refused."""
    columns: dict[str, str] = {}  # noqa: RUF012
    """Field -> column, as recognised."""
    refused: str = ""
    """End of the error."""
    unused: int = 0
    """Completions in no row."""
    remark: str = ""

    @property
    def path(self) -> Path:
        """The file with the rows."""
        return FOLDER / f"{self.file}.jsonl"


def _pair(prompt: str, chosen: str, rejected: str, **more: str) -> Rows:
    """Return what a preference pair becomes."""
    return {
        "problems": [{"prompt": prompt, **more}],
        "demonstrations": [{"prompt": prompt, "completion": chosen, **more}],
        "preferences": [{"prompt": prompt, "chosen": chosen, "rejected": rejected, **more}],
    }


def _answered(*pairs: tuple[str, str], **more: str) -> Rows:
    """Return what prompts with one answer each become."""
    return {
        "problems": [{"prompt": prompt, **more} for prompt, _ in pairs],
        "demonstrations": [{"prompt": prompt, "completion": completion, **more} for prompt, completion in pairs],
    }


SEASON = "Answer in one word.\n\nWhich season follows winter?"
RAIN, TORTOISE, FJORD = "Write a line about rain.", "How long do tortoises live?", "What is a fjord?"
GREETING, SUM = "Write a greeting.", "Compute 3 * 4 + 5."
JARS = "Each box holds 6 jars, so 4 boxes hold 4*6 = 24 jars.\n#### 24"
SQUARE = "What is the area of a square with side 5?"

CASES = (
    Case("messages (TRL, OpenAI)", "messages", "demonstrations",
         {"problems": [{"prompt": SEASON, "system": "Answer in one word."}, {"prompt": "Which month follows May?"}],
          "demonstrations": [{"prompt": SEASON, "completion": "Spring", "system": "Answer in one word."},
                             {"prompt": "Which month follows May?", "completion": "June"}]},
         remark="a system message becomes part of the prompt"),
    Case("prompt and completion (TRL)", "prompt_completion", "demonstrations",
         _answered(("Name a metal that is liquid at room temperature.", "Mercury"), ("Name a noble gas.", "Argon"))),
    Case("pairs as texts", "preference_texts", "preferences",
         _pair("How do I boil an egg?", "Put it in boiling water for eight minutes.", "Eggs are oval.")),
    Case("pairs as messages (TRL)", "preference_messages", "preferences",
         _pair("Be brief.\n\nWhy is the sky blue?", "Air scatters blue light most.", "Because it is.",
               system="Be brief.")),
    Case("pairs with implicit prompt (TRL)", "preference_implicit", "preferences",
         _pair("What does a barometer measure?", "Air pressure.", "The weather."),
         remark="the prompt is read from both answers"),
    Case("ShareGPT", "sharegpt", "demonstrations", _answered(("Translate 'bread' into French.", "Pain"))),
    Case("Alpaca", "alpaca", "alpaca",
         _answered(("Turn the sentence into a question.\n\nThe shop is open.", "Is the shop open?"),
                   ("Name three primary colours.", "Red, yellow and blue.")),
         remark="the input is below the instruction, after a blank line"),
    Case("Dolly", "dolly", "alpaca",
         _answered(("Which river is named?\n\nThe old mill stands at the Avon.", "The Avon.")),
         {"input": "context", "completion": "response"}),
    Case("UltraFeedback", "ultrafeedback", "ultrafeedback",
         {"problems": [{"prompt": RAIN}],
          "demonstrations": [{"prompt": RAIN, "completion": "Rain taps the window like a patient guest."}],
          "preferences": [{"prompt": RAIN, "chosen": "Rain taps the window like a patient guest.", "rejected": lower}
                          for lower in ("It rains.", "Rain is wet water.")]},
         remark="the best completion against each lower one, by `fine-grained_score`, else `overall_score`"),
    Case("UltraFeedback, binarized", "ultrafeedback_binarized", "preferences",
         _pair("Suggest a name for a grey cat.", "Ash would suit it.", "Cat."), remark="the scores are not read"),
    Case("HelpSteer2", "helpsteer2", "helpsteer",
         {"problems": [{"prompt": TORTOISE}, {"prompt": FJORD}],
          "demonstrations": [{"prompt": TORTOISE, "completion": "Many live for more than a hundred years."}],
          "preferences": [{"prompt": TORTOISE, "chosen": "Many live for more than a hundred years.",
                           "rejected": "A while."}]}, unused=2,
         remark="rows with one prompt are compared by `helpfulness` (`data.columns={score: ...}` names another score)"),
    Case("Skywork", "skywork", "preferences", _pair("Is 91 a prime number?", "No, it is 7 times 13.", "Yes, it is.")),
    Case("tool calls", "tool_calls", "demonstrations", {},
         refused="'tools' is not read; write it into the text as the chat template does, or leave it out with "
                 "data.ignore=[tools]", remark="see below"),
    Case("several turns", "several_turns", "demonstrations", {},
         refused="a prompt is one user message, a system message before it at most"),
    Case("KTO", "kto", "kto",
         {"problems": [{"prompt": "Say how many legs a spider has."}, {"prompt": GREETING},
                       {"prompt": "Name a bird of prey."}],
          "demonstrations": [{"prompt": GREETING, "completion": "Good morning!"},
                             {"prompt": "Name a bird of prey.", "completion": "The kestrel."}],
          "preferences": [{"prompt": GREETING, "chosen": "Good morning!", "rejected": "What do you want?"}]}, unused=1,
         remark="a desirable completion is a demonstration, and is preferred to an undesirable one of its prompt"),
    Case("stepwise labels (TRL)", "stepwise", "stepwise",
         {"problems": [{"prompt": SUM}, {"prompt": "Halve 14."}],
          "demonstrations": [{"prompt": SUM, "completion": "3 * 4 = 12.\n12 + 5 = 17."}],
          "preferences": [{"prompt": SUM, "chosen": "3 * 4 = 12.\n12 + 5 = 17.",
                           "rejected": "4 + 5 = 9.\n3 * 9 = 27."}]}, unused=1,
         remark="as KTO: a solution is desirable if all of its steps are right"),
    Case("GSM8K", "gsm8k", "gsm8k",
         {"problems": [{"prompt": "A box holds 6 jars. How many jars do 4 boxes hold?", "answer": "24"}],
          "demonstrations": [{"prompt": "A box holds 6 jars. How many jars do 4 boxes hold?", "completion": JARS,
                              "answer": "24"}]}),
    Case("HH", "hh", "hh",
         _pair("\n\nHuman: Which fruit has its seeds outside?\n\nAssistant:", "The strawberry.", "All of them.")),
    Case("HumanEval", "humaneval", "humaneval",
         {"problems": [{"prompt": 'def double(n):\n    """Return twice n."""\n', "entry_point": "double",
                        "tests": "def check(candidate):\n    assert candidate(4) == 8\n"}],
          "demonstrations": [{"prompt": 'def double(n):\n    """Return twice n."""\n',
                              "completion": "    return 2 * n\n"}]}),
    Case("problem and solution (NuminaMath)", "problem_solution", "demonstrations",
         _answered((SQUARE, "The area is 5 times 5, which is 25."), answer="25"),
         {"prompt": "problem", "completion": "solution"}),
    Case("question and answer", "question_answer", "problems",
         {"problems": [{"prompt": "How many minutes has an hour?", "answer": "60"}]}, {"prompt": "question"}),
)  # fmt: skip


class Result(NamedTuple):
    """What a file became."""

    format: str
    columns: dict[str, str]
    rows: Rows
    unused: int
    refused: str


def result_of(path: Path) -> Result:
    """Recognise the shape of a file and prepare it, all rows for training."""
    known = recognise([path], {})
    settings = DataSettings(name="shape", path=(path,), format="auto", validation_share=0.0, gate_share=0.0)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made"
        try:
            manifest = prepare(settings, made)
        except UserError as error:
            return Result(known.format, known.columns, {}, 0, str(error))
        rows: Rows = {
            kind: [
                {name: value for name, value in row.items() if name not in IDS and value not in ("", 0)}
                for row in read_rows(made, kind, "train")
            ]
            for kind in KINDS
            if kind in available(made)
        }
    return Result(known.format, known.columns, rows, manifest.get("unused", 0), "")


def as_parquet(case: Case, folder: Path) -> Path:
    """Write the rows of a case as Parquet, with lists and nested values as such."""
    rows = [json.loads(line) for line in case.path.read_text(encoding="utf-8").splitlines()]
    pq.write_table(pa.Table.from_pylist(rows), folder / f"{case.file}.parquet")
    return folder / f"{case.file}.parquet"


def table() -> str:
    """Return the cases as a Markdown table."""
    lines = ["| data | columns | `data.format` | what the rows of its test file become |", "| --- | --- | --- | --- |"]
    for case in CASES:
        rows = [json.loads(line) for line in case.path.read_text(encoding="utf-8").splitlines()]
        columns = ", ".join(f"`{name}`" for name in rows[0])
        named = f"`{case.format}`"
        if case.columns:
            own = ", ".join(f"{field}: {column}" for field, column in case.columns.items())
            named += f", `data.columns={{{own}}}`"
        made = [f"{len(held)} {kind if len(held) > 1 else kind[:-1]}" for kind, held in case.rows.items()]
        count = f"{len(rows)} row{'s' if len(rows) > 1 else ''}: "
        became = count + (", ".join(made) if made else f"refused: {case.refused}")
        became += f"; {case.unused} completion{'s' if case.unused > 1 else ''} in no row" if case.unused else ""
        became += f" ({case.remark})" if case.remark else ""
        lines.append(f"| {case.name} | {columns} | {named} | {became} |")
    return "\n".join(lines) + "\n"


def shown() -> str:
    """Return the table in data/README.md."""
    return DOCS.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip("\n") + "\n"


if __name__ == "__main__":
    before, _, rest = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    DOCS.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
