"""Thumbnails in HTML pages: references become pictures, and text can never become HTML."""

import base64
import re
from io import BytesIO

from PIL import Image

from models.base.images import images_in, reference_to
from tasks.pages.data_docs import page
from tasks.pages.thumbnails import MOST, sample_of_images, with_thumbnails
from tests.support.vision_families import random_picture

DATA = re.compile(r'src="data:image/png;base64,([^"]+)"')


def sizes(html: str) -> list[tuple[int, int]]:
    return [Image.open(BytesIO(base64.b64decode(data))).size for data in DATA.findall(html)]


def test_references_become_pictures_and_the_rest_is_escaped() -> None:
    wide, high = random_picture(200, 50, 0), random_picture(3, 6, 1)
    html = with_thumbnails(f"<b>{wide} & {high}</b>")
    assert sizes(html) == [(96, 24), (48, 96)]
    assert DATA.sub("", html).count("<img ") == 2
    assert html.startswith("&lt;b&gt;<img ") and html.endswith("&lt;/b&gt;") and "> &amp; <img " in html


def test_references_without_a_readable_picture_stay_text() -> None:
    broken, unknown = reference_to(b"not a picture"), f"<image:{'1' * 32}>"
    assert with_thumbnails(broken + unknown) == f"&lt;image:{images_in(broken)[0]}&gt;&lt;image:{'1' * 32}&gt;"


def test_the_data_docs_show_a_sample_of_the_pictures() -> None:
    names = [images_in(random_picture(4, 4, seed))[0] for seed in range(MOST + 3)]
    assert sizes(page("scenes", [], {}, names)) == [(96, 96)] * MOST
    assert f"{MOST} of {MOST + 3}" in sample_of_images(names)
    assert sample_of_images([]) == "" and "<img" not in page("scenes", [], {})
