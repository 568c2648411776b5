"""Molecules: validity, the fitted predictor against an independent solution, values by hand, and refusals."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from models.answers.molecules import LONGEST, has_rdkit, read_molecule, written_smiles
from models.base.errors import UserError
from models.method.attempt import Attempt
from models.parts.rewards.models.molecule import Molecule, features_of
from models.recipes.find import find_recipe
from models.recipes.load import load_recipe
from tests.support.tiny_judges import rollouts
from tests.support.tiny_resources import make_resources

needs_rdkit = pytest.mark.skipif(not has_rdkit(), reason="the extra molecules is not installed")
HERE = make_resources()
ROWS = [("HH", "CC", 1.0), ("HP", "CCO", 2.0), ("PP", "c1ccccc1", 4.0), ("PH", "CN", 0.5), ("HH", "CCCO", 2.5)]


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    file = tmp_path / "measured.jsonl"
    rows = [{"target": target, "smiles": smiles, "value": value} for target, smiles, value in ROWS]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@needs_rdkit
@pytest.mark.parametrize("smiles", ["CCO", "c1ccccc1", "CC(=O)Oc1ccccc1C(=O)O", "[NH4+]", "C.C"])
def test_molecules_are_read(smiles: str) -> None:
    read = read_molecule(smiles)
    assert read is not None and sum(read[1]) > 0 and read_molecule(read[0]) == read


@needs_rdkit
@pytest.mark.parametrize("smiles", ["", "C(", "c1ccc", "C(C)(C)(C)(C)C", "xyz", "C" * (LONGEST + 1), "é", "\x00", "1"])
def test_texts_that_are_no_molecule_are_not(smiles: str) -> None:
    assert read_molecule(smiles) is None


@needs_rdkit
def test_two_spellings_of_a_molecule_are_the_same() -> None:
    assert read_molecule("OCC") == read_molecule("CCO") != read_molecule("CCN")


def test_the_smiles_is_the_answer_or_all_of_the_text_without_spaces() -> None:
    assert written_smiles(" C C O ") == "CCO" and written_smiles("I think ; #### CCO") == "CCO"


@needs_rdkit
def test_the_value_is_the_standardised_prediction_of_an_independent_ridge_regression(measured: Path) -> None:
    reward = Molecule(measured=str(measured), ridge=0.5, bonus=0.25, invalid=-3.0)
    made = reward.reasoned(HERE, rollouts("OCC", "CC(", prompt="HP"))

    def row(target: str, smiles: str) -> np.ndarray:
        read = read_molecule(smiles)
        assert read is not None
        counts, shares = np.log1p(np.array(read[1])), np.array([target.count(letter) / 2 for letter in "HP"])
        return np.concatenate([counts, shares, np.outer(counts, shares).ravel(), [1.0]])

    design = np.stack([row(target, smiles) for target, smiles, _ in ROWS])
    values = np.array([value for *_, value in ROWS])
    roots = np.diag(np.sqrt([0.5] * (design.shape[1] - 1) + [1e-9]))
    padded = np.vstack([design, roots]), np.concatenate([values, np.zeros(design.shape[1])])
    weights = np.linalg.lstsq(*padded, rcond=None)[0]
    predicted = row("HP", "CCO") @ weights
    expected = (predicted - values.mean()) / values.std(ddof=1) + 0.25
    assert made.values.tolist() == pytest.approx([expected, -3.0], abs=1e-5)
    assert made.reasons == ["CCO", ""]
    assert made.watched == {"valid": 0.5, "different": 1.0, "property": pytest.approx(predicted, abs=1e-6)}


@needs_rdkit
def test_without_measurements_validity_alone_is_paid_and_decides() -> None:
    some = rollouts("CCO", "C(", "OCC")
    made = Molecule(bonus=1.0).reasoned(HERE, some)
    assert made.values.tolist() == [1.0, -2.0, 1.0]
    assert made.watched == {"valid": pytest.approx(2 / 3), "different": 0.5}
    assert Molecule().right([Attempt.of(each) for each in some]) == [True, False, True]


@needs_rdkit
def test_a_value_does_not_depend_on_the_other_completions(measured: Path) -> None:
    reward = Molecule(measured=str(measured))
    texts = ["CCO", "CC", "xx", "c1ccccc1"]
    together = reward(HERE, rollouts(*texts))
    assert torch.allclose(together, torch.cat([reward(HERE, rollouts(text)) for text in texts]), atol=1e-6)


def test_the_features_have_a_product_for_each_count_and_letter() -> None:
    row = features_of(["HHP"], [[1.0, 0.0]], "HP")[0]
    single = float(torch.tensor(2.0, dtype=torch.float64).log())
    assert row.tolist() == pytest.approx([single, 0, 2 / 3, 1 / 3, single * 2 / 3, single / 3, 0, 0, 1])


@needs_rdkit
@pytest.mark.parametrize(
    "content, line",
    [('{"target": "H", "smiles": "C("  , "value": 1}\n', "line 1: 'C\\(' is not a molecule"),
     ('{"target": "H", "smiles": "C"}\n', 'line 1: not {"target"'),
     ('{"target": "H", "smiles": "C", "value": 1}\n', "needs at least two measurements")],
)  # fmt: skip
def test_measurements_that_teach_nothing_are_refused(tmp_path: Path, content: str, line: str) -> None:
    file = tmp_path / "measured.jsonl"
    file.write_text(content)
    with pytest.raises(UserError, match=rf"^rewards\.molecule\.measured: .*{line}"):
        Molecule(measured=str(file)).try_out()


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("models.parts.rewards.models.molecule.has_rdkit", lambda: False)
    with pytest.raises(UserError, match=r"^rewards\.molecule: the package rdkit is not installed"):
        Molecule().try_out()


def test_the_recipe_can_be_read_without_the_package() -> None:
    (reward,) = load_recipe(find_recipe("drug_gen")).rewards
    assert isinstance(reward, Molecule) and reward.given[0].file.name == "affinities.jsonl"
