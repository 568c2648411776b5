"""The task set `solids`: pictures show the solid of the program, and flaws make another solid."""

from collections import Counter

import numpy as np

from models.answers.solids import EDGE, solid, views
from models.base.images import content_of, images_in
from models.base.pictures import decoded
from models.datasets.schema import SOUND
from models.task_sets.drawing import make_rows
from models.task_sets.solids import OFF, SolidsSettings

SETTINGS = SolidsSettings(
    problems={"train": 200, "validation": 20, "gate": 20},
    demonstrations={"train": 400},
    solids=600,
    operations=(1, 1, 1),
    flawed=0.5,
)


def test_the_picture_shows_the_three_views_of_the_answer() -> None:
    for row in make_rows(SETTINGS)["problems"]["train"]:
        (name,) = images_in(str(row["prompt"]))
        grey = np.asarray(decoded(content_of(name), name))[:, :, 0].astype(float)
        edge = 2 * EDGE
        front, above, right = views(solid(str(row["answer"])))
        for view, part in ((front, grey[:edge, :edge]), (above, grey[:edge, edge:]), (right, grey[edge:, :edge])):
            assert (part[::2, ::2] == part[1::2, 1::2]).all()
            assert np.allclose(part[::2, ::2], np.where(view == 1.0, 255, 210 * view), atol=0.51)
        assert (grey[edge:, edge:] == 255).all()
        assert row["level"] == str(row["answer"]).count(";") + 1


def test_a_flaw_is_one_number_that_differs_by_one_and_makes_another_solid() -> None:
    rows = make_rows(SETTINGS)
    answers = {row["prompt"]: str(row["answer"]) for row in rows["problems"]["train"]}
    flaws = Counter(row["flaw"] for row in rows["demonstrations"]["train"])
    assert 150 < flaws[OFF] < 250 and flaws.total() == 400
    for row in rows["demonstrations"]["train"]:
        answer, text = answers[row["prompt"]], str(row["completion"])
        if row["flaw"] == SOUND:
            assert text == answer
            continue
        pairs = [pair for pair in zip(answer.split(), text.split(), strict=True) if len({*pair}) > 1]
        assert len(pairs) == 1 and abs(int(pairs[0][0]) - int(pairs[0][1])) == 1
        assert (solid(text) != solid(answer)).any()
