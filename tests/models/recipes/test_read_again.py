"""Repeated reading of a recipe: changes to one reading do not show in another, and a changed text is read as it is."""

from pathlib import Path

from models.recipes.layers import read_layers


def test_what_a_reader_or_an_override_changes_shows_in_no_other_reading(tmp_path: Path) -> None:
    (tmp_path / "below.yaml").write_text("evaluation: {ks: [1, 8]}\nrollouts: {name: sample, group_size: 4}\n")
    (tmp_path / "mine.yaml").write_text("extends: below\nseed: 3\n")
    first = read_layers(tmp_path / "mine.yaml", ["rollouts.group_size=9"])
    first["evaluation"]["ks"].append(64)
    assert first["rollouts"]["group_size"] == 9
    again = read_layers(tmp_path / "mine.yaml", [])
    assert again["evaluation"]["ks"] == [1, 8] and again["rollouts"]["group_size"] == 4


def test_a_text_that_changed_is_read_as_it_is(tmp_path: Path) -> None:
    for seed in (1, 2):
        (tmp_path / "mine.yaml").write_text(f"seed: {seed}\n")
        assert read_layers(tmp_path / "mine.yaml", []) == {"seed": seed}
