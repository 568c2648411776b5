"""DistinctTexts, the texts that a tokenizer is fitted to: each occurs once; a limited choice ignores their order."""

from pathlib import Path
from random import Random

from models.datasets.distinct_texts import DistinctTexts
from models.datasets.schema import Kind, arrow_schema, file_name, write_rows
from models.policies.fitted_tokenizer import training_texts
from models.text.tokenizer import MOST_TEXTS, TokenizerSettings

TEXTS = [f"question {number}" for number in range(300)]
PROMPTS: dict[Kind, tuple[str, ...]] = {"problems": ("prompt",)}


def problems(folder: Path, prompts: list[str]) -> Path:
    folder.mkdir()
    rows = [
        {"id": str(number), "prompt": prompt, "answer": "1", "level": 0, "tests": "", "entry_point": ""}
        for number, prompt in enumerate(prompts)
    ]
    write_rows(folder / file_name("problems", "train"), rows, arrow_schema("problems"))
    return folder


def test_each_text_comes_once_where_it_stands_first(tmp_path: Path) -> None:
    folder = problems(tmp_path / "data", [*TEXTS[:5], *TEXTS[3:8], *TEXTS])
    for most in (None, 300, 1000):
        assert list(DistinctTexts(folder, PROMPTS, most)) == TEXTS


def test_of_too_many_the_same_come_in_any_order_and_they_are_spread(tmp_path: Path) -> None:
    ordered = problems(tmp_path / "ordered", TEXTS)
    chosen = list(DistinctTexts(ordered, PROMPTS, 100))
    assert len(set(chosen)) == 100 and chosen == [text for text in TEXTS if text in chosen]
    mixed = problems(tmp_path / "mixed", Random(0).sample(TEXTS * 2, 600))
    assert set(DistinctTexts(mixed, PROMPTS, 100)) == set(chosen)
    assert set(DistinctTexts(mixed, PROMPTS, 40)) < set(chosen)
    first_half = sum(TEXTS.index(text) < 150 for text in chosen)
    assert 30 <= first_half <= 70, "a hash does not look at the place: 50 are due, with a deviation of 4"


def test_bytes_are_fitted_to_a_part_and_words_to_all(tmp_path: Path) -> None:
    folder = problems(tmp_path / "data", TEXTS)
    few = training_texts(folder, TokenizerSettings(kind="bytes"))
    assert isinstance(few, DistinctTexts) and few.most == MOST_TEXTS
    every = training_texts(folder, TokenizerSettings(kind="words"))
    assert isinstance(every, DistinctTexts) and every.most is None
