"""A table of the forms of answers. Tests check the verifiers against it, and docs/rewards.md shows it.

python -m tests.support.answer_forms        writes the table into docs/rewards.md
"""

from pathlib import Path
from typing import NamedTuple

DOCS = Path(__file__).resolve().parents[2] / "docs" / "rewards.md"
BEGIN = "<!-- answer forms: written by tests/support/answer_forms.py -->\n"
END = "<!-- end of answer forms -->\n"


class Form(NamedTuple):
    """A completion, the problem's answer, and the expected result."""

    completion: str
    expected: str
    read: str | None
    """The answer that is read from the completion, or None."""
    right: bool


FORMS = (
    Form("so #### 5", "5", "5", True),
    Form("so \\boxed{5}", "5", "5", True),
    Form("so \\boxed {5}", "5", "5", True),
    Form("so <answer>5</answer>", "5", "5", True),
    Form("The answer is 5. Thank you.", "5", "5", True),
    Form("**Answer:** 5", "5", "5", True),
    Form("### Final answer\n\n5", "5", "5", True),
    Form("Answer：５", "5", "５", True),
    Form("答案：5。", "5", "5", True),
    Form("#### The answer is 5", "5", "5", True),
    Form("#### Step 1: add\n2 + 3 = 5\n#### Result\n\\boxed{5}", "5", "5", True),
    Form("\\boxed{5}\n#### Explanation\n2 and 3 make 5.", "5", "5", True),
    Form("\\boxed{5}\n```python\n#### 7 is next\n```", "5", "5", True),
    Form("#### 5\nI hope the answer is helpful.", "5", "5", True),
    Form("<think>#### 7</think> \\boxed{5}", "5", "5", True),
    Form("perhaps #### 7 </think> #### 5", "5", "5", True),
    Form("<think>#### 5</think> done", "5", None, False),
    Form("<think>#### 5", "5", None, False),
    Form("#### 4\n#### 5", "5", "5", True),
    Form("#### 5\n#### 4", "5", "4", False),
    Form("#### 4\nThe answer is 5.", "4", "5", False),
    Form("#### 4 or 5", "5", "4 or 5", False),
    Form("#### 4\n#### 4 or 5", "4", "4 or 5", False),
    Form("it is 5", "5", None, False),
    Form("#### ٥", "5", "٥", True),
    Form("#### १२", "12", "१२", True),
    Form("#### \u200f5\u200e", "5", "\u200f5\u200e", True),
    Form("#### 1,200.50 €", "1200.5", "1,200.50 €", True),
    Form("#### ٣٫٥", "7/2", "٣٫٥", True),
    Form("#### 84/2", "42", "84/2", False),
    Form("#### 5²", "52", "5²", False),
    Form("#### (1,2)", "(1, 2)", "(1,2)", True),
    Form("#### [1, 2]", "(1, 2)", "[1, 2]", False),
    Form("#### 1, 200", "1200", "1, 200", False),
    Form("#### cafe\u0301", "caf\u00e9", "cafe\u0301", True),
    Form("The answer is Dr. Smith. She won.", "Dr. Smith", "Dr. Smith", True),
    Form("The answer is the U.S. Navy.", "the U.S. Navy", "the U.S. Navy", True),
    Form("The answer is Harry S. Truman.", "Harry S. Truman", "Harry S. Truman", True),
    Form("The answer is B. Because it is larger.", "B", "B", True),
    Form("so #### 5", "#### 5", "5", True),
    Form("so #### 5", "$\\boxed{5}$", "5", True),
    Form("so #### 5", "2 + 3 = 5\n#### 5", "5", True),
)


def table() -> str:
    """Return the forms as a Markdown table."""
    lines = ["| a completion | the problem's answer | is read as | |", "| --- | --- | --- | --- |"]
    for form in FORMS:
        read = "nothing" if form.read is None else _code(form.read)
        verdict = "right" if form.right else "wrong"
        lines.append(f"| {_code(form.completion)} | {_code(form.expected)} | {read} | {verdict} |")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    for hidden in "\u200e\u200f\u0301":
        text = text.replace(hidden, f"\\u{ord(hidden):04x}")
    mark = "``" if "`" in text else "`"
    return f"{mark} {text} {mark}".replace("\n", "⏎") if mark == "``" else f"{mark}{text}{mark}".replace("\n", "⏎")


def shown() -> str:
    """Return the table in docs/rewards.md."""
    return DOCS.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0].strip("\n") + "\n"


if __name__ == "__main__":
    before, _, rest = DOCS.read_text(encoding="utf-8").partition(BEGIN)
    DOCS.write_text(f"{before}{BEGIN}\n{table()}\n{END}{rest.partition(END)[2]}", encoding="utf-8")
