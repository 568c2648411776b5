"""Hub references: their forms, and their place among the paths of a `data:` section."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from models.base.errors import UserError
from models.datasets.data_files import data_files, files_of
from models.datasets.hub_reference import HubReference, parse_hub_reference
from models.datasets.settings import DataSettings

COMMIT = "0123456789abcdef" * 2 + "01234567"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hf://team/sums", HubReference("team/sums")),
        (f"hf://team/sums@{COMMIT}", HubReference("team/sums", COMMIT)),
        ("hf://team/sums@v1.0:main", HubReference("team/sums", "v1.0", "main")),
        ("hf://team/sums@refs/pr/2:a-b/train.full", HubReference("team/sums", "refs/pr/2", "a-b", "train.full")),
        ("hf://datasets/team/sums:main", HubReference("team/sums", "main", "main")),
        (str(Path("hf://team/sums@v1")), HubReference("team/sums", "v1")),
    ],
)
def test_a_reference_is_parsed_and_written_with_its_revision(text: str, expected: HubReference) -> None:
    assert parse_hub_reference(text) == expected
    assert parse_hub_reference(str(expected)) == expected
    assert expected.is_pinned == (COMMIT in text)


@pytest.mark.parametrize("text", ["hf://sums", "hf://team/sums@", "hf://team/sums:main/", "hf://a/b/c/d", "hf://../x"])
def test_another_form_is_one_line(text: str) -> None:
    with pytest.raises(ValidationError, match="is not a data set of the hub; write hf://OWNER/NAME@COMMIT"):
        DataSettings.model_validate({"name": "mine", "path": text, "format": "auto"})


def test_settings_keep_references_as_text_next_to_paths() -> None:
    given = {"name": "mine", "path": [Path("hf://team/sums"), "rows.csv"], "format": "problems"}
    settings = DataSettings.model_validate(given)
    assert settings.path == ("hf://team/sums@main", Path("rows.csv"))
    assert settings.model_dump(mode="json")["path"] == ["hf://team/sums@main", "rows.csv"]
    assert DataSettings.model_validate(settings.model_dump(mode="json")) == settings


def test_no_folder_of_hub_data_states_a_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REWARDFLOW_HOME", str(tmp_path))
    reference = HubReference("team/sums", COMMIT, "test", "all")
    reference.folder.mkdir(parents=True)
    (reference.folder / "all-00000.parquet").touch()
    assert [file.split for file in data_files([str(reference)])] == [None]
    assert reference.folder.relative_to(tmp_path).parts == (
        "hub_data", "team--sums", COMMIT, "config-test-split-all",
    )  # fmt: skip


def test_hub_data_that_are_not_stored_are_one_line_where_they_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REWARDFLOW_HOME", str(tmp_path))
    assert files_of([f"hf://team/sums@{COMMIT}"]) == []
    with pytest.raises(UserError, match=rf"data\.path: the rows of hf://team/sums@{COMMIT} are not stored here"):
        data_files([f"hf://team/sums@{COMMIT}"])
