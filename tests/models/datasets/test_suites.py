"""Expectation suites: those of the project check every column, and a malformed suite is refused in one line."""

from pathlib import Path

import pytest

from models.base.errors import UserError
from models.datasets.row_checks import COMPUTED
from models.datasets.schema import COLUMNS, KINDS
from models.datasets.suites import Suite, read_suite
from models.datasets.validation import ValidationSettings

SUITES = Path(__file__).parents[3] / "data" / "expectations"


@pytest.fixture(params=KINDS)
def suite(request: pytest.FixtureRequest) -> Suite:
    return read_suite(SUITES, request.param)


def test_every_column_of_a_kind_is_checked_for_its_type_and_for_nulls(suite: Suite) -> None:
    for expectation in ("expect_column_values_to_be_of_type", "expect_column_values_to_not_be_null"):
        assert {check.checked for check in suite.checks if check.type == expectation} == set(COLUMNS[suite.kind])


def test_every_parameter_is_a_setting(suite: Suite) -> None:
    wanted = {
        value["$PARAMETER"] for check in suite.checks for value in check.arguments.values() if isinstance(value, dict)
    }
    assert wanted
    assert wanted <= set(ValidationSettings.model_fields)


def test_no_two_checks_are_the_same(suite: Suite) -> None:
    keys = [(check.type, check.checked, str(check.arguments)) for check in suite.checks]
    assert len(keys) == len(set(keys))


def test_every_computed_column_is_checked_by_some_suite() -> None:
    assert set(COMPUTED) <= {check.checked for kind in KINDS for check in read_suite(SUITES, kind).checks}


def test_checks_of_columns_without_meaning_and_of_other_splits_are_left_out() -> None:
    suite = read_suite(SUITES, "problems")
    train = {check.checked for check in suite.for_file("train", ["answer_parses", "prompt_not_held_out"])}
    gate = {check.checked for check in suite.for_file("gate", ["answer_parses", "prompt_not_held_out"])}
    assert "level_share" not in train
    assert train - gate == {"prompt_not_held_out"}


CHECK = (
    "{type: expect_column_values_to_not_be_null, columns: [id], arguments: {}, severity: critical, reason: r, why: w}"
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: problems\nexpectations: [", "not YAML"),
        ("kind: preferences\nexpectations: []", "'kind: problems'"),
        (
            f"kind: problems\nexpectations: [{CHECK}, {CHECK.replace('[id]', '[idd]')}]",
            "expectation 2 .* no column 'idd'",
        ),
        (f"kind: problems\nexpectations: [{CHECK.replace('critical', 'fatal')}]", "expectation 1: severity"),
        (f"kind: problems\nexpectations: [{CHECK.replace('why', 'because')}]", "expectation 1: why"),
    ],
)
def test_a_malformed_suite_gets_one_line_that_names_file_and_entry(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "problems.yaml").write_text(text)
    with pytest.raises(UserError, match=message) as error:
        read_suite(tmp_path, "problems")
    assert str(tmp_path / "problems.yaml") in str(error.value)
    assert "\n" not in str(error.value)


def test_a_missing_suite_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"problems\.yaml: expectation suite not found"):
        read_suite(tmp_path, "problems")


def test_settings_refuse_unknown_keys_and_bounds_out_of_order() -> None:
    with pytest.raises(ValueError, match="quarantine_shares"):
        ValidationSettings.model_validate({"quarantine_shares": 0.1})
    with pytest.raises(ValueError, match=r"min_label_share is 0\.5, above max_label_share 0\.4"):
        ValidationSettings.model_validate({"min_label_share": 0.5, "max_label_share": 0.4})
