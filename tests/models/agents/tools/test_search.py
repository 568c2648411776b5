"""Search over documents: their ranking, files that are refused, and the record of the documents in the run."""

import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

from models.agents.environments.tools import Tools
from models.agents.play.documents import Index
from models.agents.tools.search import DocumentSearch
from models.base.errors import UserError
from models.datasets.params import checked, read_section
from models.method.problem import Problem
from models.method.tool import ToolError
from models.recipes.files import require_files
from models.recipes.load import load_recipe
from models.task_sets.lookup import LookupSettings
from models.task_sets.make_documents import main
from tasks.runner.contents import content_of

FILE = Path("recipes/documents/lookup.jsonl")


def lines_in(folder: Path, *texts: str) -> Path:
    file = folder / "facts.jsonl"
    file.write_text("".join(f'{{"text": "{text}"}}\n' for text in texts))
    return file


def test_the_document_with_most_of_the_rare_words_comes_first(tmp_path: Path) -> None:
    file = lines_in(tmp_path, "river of velm: tosk", "river of norda: rin", "ruler of velm: ada", "nothing of that")
    tool = DocumentSearch(documents=str(file), results=2)
    assert tool.call("River of VELM").splitlines() == ["river of velm: tosk", "river of norda: rin"]
    assert DocumentSearch(documents=str(file), results=1, longest=5).call("ada") == "ruler"


def test_equal_scores_are_in_the_order_of_the_documents() -> None:
    index = Index(["a b", "a c", "a d", "x"])
    assert index.best("a", 2) == ["a b", "a c"] and index.best("nowhere", 3) == []


def test_a_folder_holds_lines_and_paragraphs(tmp_path: Path) -> None:
    lines_in(tmp_path, "river of velm: tosk")
    (tmp_path / "deeper").mkdir()
    (tmp_path / "deeper" / "notes.md").write_text("Velm lies\nhigh.\n\nNorda is flat.\n")
    tool = DocumentSearch(documents=str(tmp_path), results=1)
    assert (tool.call("high"), tool.call("flat"), tool.call("tosk")) == (
        "Velm lies high.", "Norda is flat.", "river of velm: tosk"
    )  # fmt: skip
    assert len(tool.given) == 2


def test_a_query_without_a_known_word_is_an_error_that_the_policy_reads(tmp_path: Path) -> None:
    tool = DocumentSearch(documents=str(lines_in(tmp_path, "river of velm: tosk")))
    with pytest.raises(ToolError, match="nothing is known"):
        tool.call("quux")
    opened = Tools(tool=[tool], introduced=True).open(Problem("p", "?"))
    assert opened.reset(1)[0] == "search: words to look for"
    assert opened.step("search: quux")[0] == "error: nothing is known of that"
    assert opened.step("search: velm")[0] == "river of velm: tosk"


@pytest.mark.parametrize(
    "name, content, why",
    [
        ("a.jsonl", '{"text": 3}', 'line 1: a document is {"text"'),
        ("a.jsonl", '{"text": "x"}\n{"text"', "line 2: "),
        ("a.jsonl", "", "holds no documents"),
        ("a.csv", "text", "documents are .jsonl, .txt or .md"),
    ],
)
def test_a_file_that_holds_no_documents_is_refused_by_a_line(tmp_path: Path, name: str, content: str, why: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=rf"rollouts\.environment\.tool\.documents: .*{why}"):
        DocumentSearch(documents=str(tmp_path / name)).try_out()
    with pytest.raises(UserError, match="no such file"):
        DocumentSearch(documents=str(tmp_path / "none.jsonl"))
    with pytest.raises(UserError, match="name the documents"):
        DocumentSearch().try_out()


def test_the_recipes_documents_are_on_record_and_another_content_is_another_key(tmp_path: Path) -> None:
    file = lines_in(tmp_path, "river of velm: tosk")
    recipe = tmp_path / "own.yaml"
    recipe.write_text(
        "extends: lookup\nrollouts: {environment: {name: tools, tool: [{name: search, documents: facts.jsonl}]}}\n"
    )
    first = load_recipe(recipe)
    require_files(first)
    assert [source.file for source in first.sources] == [file]
    lines_in(tmp_path, "river of velm: rin")
    other = load_recipe(recipe)
    assert content_of(first.rollouts) != content_of(other.rollouts)
    moved = tmp_path / "moved"
    moved.mkdir()
    lines_in(moved, "river of velm: rin")
    (moved / "own.yaml").write_text(recipe.read_text())
    assert content_of(load_recipe(moved / "own.yaml").rollouts) == content_of(other.rollouts)
    with pytest.raises(UserError, match="has other content than sha256 says"):
        DocumentSearch(documents=str(file), sha256="0" * 64)


def test_the_documents_in_git_are_those_that_the_stage_makes_and_every_question_can_be_looked_up(
    tmp_path: Path,
) -> None:
    assert main(["params.yaml", "lookup", str(tmp_path / "made.jsonl")]) == 0
    assert (tmp_path / "made.jsonl").read_text() == FILE.read_text()
    settings = checked(LookupSettings, read_section(Path("params.yaml"), "lookup"), "params.yaml: lookup")
    tool, random = DocumentSearch(documents=str(FILE), results=1), Random(3)
    for task in (settings.draw(random) for _ in range(200)):
        for said, heard in zip(task.steps[::2], task.steps[1::2], strict=False):
            assert tool.call(said.removeprefix("search: ")) == heard
        assert task.steps[-1] == f"#### {task.answer}"


def test_a_process_that_searches_has_not_loaded_the_compiler_beside_which_vllm_cannot_start() -> None:
    search = (
        "import sys; from models.agents.play.documents import Index; print(Index(['a b', 'c']).best('a', 1), end=' ')"
    )
    said = subprocess.run(
        [sys.executable, "-c", f"{search}; print('numba' in sys.modules)"], capture_output=True, text=True, check=True
    )
    assert said.stdout.split("\n")[0] == "['a b'] False"
