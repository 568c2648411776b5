"""What is read of a YAML text belongs to who reads it, also where the text was read before."""

from models.datasets.strict_yaml import KEPT, parse_yaml


def test_what_a_reader_does_to_a_value_shows_in_no_other_reading() -> None:
    for filling in ("", "#" * KEPT):
        text = f"{{a: [1, {{b: c}}], d: {{}}}}  {filling}"
        first = parse_yaml(text)
        first["a"][1]["b"] = "changed"
        first["d"]["new"] = 1
        assert parse_yaml(text) == {"a": [1, {"b": "c"}], "d": {}}


def test_an_alias_stays_the_value_that_it_stands_for() -> None:
    value = parse_yaml("a: &x [1]\nb: *x")
    value["a"].append(2)
    assert value["b"] == [1, 2] and parse_yaml("a: &x [1]\nb: *x") == {"a": [1], "b": [1]}
