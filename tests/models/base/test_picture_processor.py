"""Image processors: values by hand, numbers of tokens, memory, and pictures that a processor refuses."""

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch

from models.base import picture_processor
from models.base.errors import UserError
from models.base.images import content_of, images_in
from models.base.picture_processor import PictureProcessor
from models.base.pictures import decoded
from models.policies.vision import VisionSettings
from tests.support.vision_families import FAMILIES, random_picture

SMALL = VisionSettings().processor()
QWEN = PictureProcessor("Qwen2VLImageProcessorPil", json.dumps(FAMILIES["qwen3_vl"].images().to_dict()), "{}", 0, 2)


def name_of(width: int, height: int, seed: int = 0) -> str:
    return images_in(random_picture(width, height, seed))[0]


def test_a_picture_of_the_towers_size_keeps_its_values() -> None:
    name = name_of(32, 32)
    values = torch.from_numpy(np.array(decoded(content_of(name), name))).permute(2, 0, 1)
    inputs = SMALL.inputs(name)
    assert inputs.grid is None and inputs.pixels.shape == (1, 3, 32, 32)
    torch.testing.assert_close(inputs.pixels[0], values.float() / 127.5 - 1.0, rtol=0, atol=1e-6)


@pytest.mark.parametrize(("width", "height"), [(64, 16), (16, 64), (100, 100), (1, 1)])
def test_every_picture_becomes_a_square_of_as_many_tokens(width: int, height: int) -> None:
    assert SMALL.inputs(name_of(width, height)).pixels.shape == (1, 3, 32, 32)
    assert SMALL.count(name_of(width, height)) == 4


@pytest.mark.parametrize(
    ("width", "height", "grid"), [(32, 32, (4, 4)), (64, 32, (4, 8)), (96, 48, (4, 8)), (16, 48, (6, 2))]
)
def test_a_grid_keeps_the_shape_within_its_limits(width: int, height: int, grid: tuple[int, int]) -> None:
    inputs = QWEN.inputs(name_of(width, height))
    assert inputs.grid == grid and len(inputs.pixels) == grid[0] * grid[1]
    assert QWEN.count(name_of(width, height)) == grid[0] * grid[1] // 4


def test_a_picture_that_a_processor_refuses_is_one_line() -> None:
    name = name_of(900, 2)
    with pytest.raises(UserError, match=rf"^image {name}: the policy's image processor refuses it \(.*aspect ratio"):
        QWEN.count(name)


@pytest.mark.parametrize("name", ["AutoModel", "os", "ImageProcessorPil", ""])
def test_only_an_image_processor_of_transformers_is_built(name: str) -> None:
    with pytest.raises(UserError, match=f"transformers has no image processor '{name}'"):
        replace(SMALL, name=name).count(name_of(8, 8))


def test_a_processor_is_stored_and_read_back() -> None:
    assert PictureProcessor(**json.loads(json.dumps(asdict(SMALL)))) == SMALL


def test_the_memory_for_recent_pictures_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_processor, "_RECENT", {})
    monkeypatch.setattr(picture_processor, "RECENT_BYTES", 2 * 3 * 32 * 32 * 4)
    own = replace(SMALL, around="{}")
    names = [name_of(8, 8, seed) for seed in range(4)]
    inputs = [own.inputs(name) for name in names]
    assert [name for _, name in picture_processor._RECENT] == names[-2:]
    assert own.inputs(names[3]) is inputs[3]
    torch.testing.assert_close(own.inputs(names[0]).pixels, inputs[0].pixels)
