"""Normalisation and n-grams of texts: when two texts are equal, and when they overlap."""

from models.datasets.normalise import ngrams, normalise, overlapping


def test_case_white_space_and_compatibility_forms_do_not_count() -> None:
    assert normalise("  Ｈow\tMANY\n\nﬁsh ") == "how many fish"


def test_normalising_twice_changes_nothing_more() -> None:
    text = "Ⅷ  ＡＢ\u00a0c ſ"
    assert normalise(normalise(text)) == normalise(text)


def test_the_ngrams_of_four_words_by_three_are_two() -> None:
    assert ngrams("A b  c d", 3) == {"a b c", "b c d"}


def test_a_text_shorter_than_n_is_one_ngram_and_an_empty_one_none() -> None:
    assert ngrams("a b", 8) == {"a b"}
    assert ngrams(" \n", 8) == set()


def test_overlap_is_a_shared_run_of_n_words_and_not_shared_words() -> None:
    train = ["x one two three y", "three two one", "nothing at all", "One two THREE"]
    assert overlapping(train, ["so one two three it is"], 3) == [0, 3]


def test_a_short_text_overlaps_only_with_its_equal() -> None:
    assert overlapping(["a b", "a b c", ""], ["A  B", ""], 3) == [0]
