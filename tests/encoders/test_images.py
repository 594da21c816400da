"""Image files as pixels: sizes, crops and scales, against transformers' own processor."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from metastable.encoders import load
from metastable.encoders.images import Pictures, image_files
from metastable.errors import InvalidInput, StorageError
from tiny_encoders import configs, random_model, transformers


def picture(path, size=(40, 30), seed=0):
    values = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    Image.fromarray(values).save(path)
    return path


@pytest.mark.parametrize(
    ("processor", "options"),
    [
        ("ViTImageProcessorPil", {"size": {"height": 16, "width": 16}}),
        ("ViTImageProcessorPil", {"size": {"height": 16, "width": 16}, "do_normalize": False, "resample": 3}),
        (
            "CLIPImageProcessorPil",
            {"size": {"shortest_edge": 20}, "crop_size": {"height": 16, "width": 16}, "resample": 3},
        ),
    ],
)
def test_pixels_are_those_of_the_models_own_processor(processor, options, tmp_path):
    kind = getattr(transformers, processor, None)
    if kind is None:
        pytest.skip(f"this transformers has no {processor}")
    own = kind(**options)
    own.save_pretrained(tmp_path)
    file = picture(tmp_path / "a.png")
    expected = own(Image.open(file), return_tensors="pt")["pixel_values"][0]
    found = Pictures.of(tmp_path).read(file, (3, 16, 16))
    torch.testing.assert_close(found, expected.float(), rtol=0, atol=1e-5)


def test_a_vision_encoder_reads_files(tmp_path):
    random_model(configs()["vit"]).save_pretrained(tmp_path / "vit")
    encoder = load(tmp_path / "vit")
    file = picture(tmp_path / "a.png")
    pixels = encoder.inputs.pictures.read(file, encoder.inputs.shape)
    torch.testing.assert_close(encoder.embed([str(file)]), encoder.embed([pixels]))
    assert not encoder.inputs.pictures.told and float(pixels.abs().max()) <= 1.0
    with pytest.raises(InvalidInput, match="not texts; got 'no file'"):
        encoder.embed(["no file"])
    (tmp_path / "b.png").write_text("no image")
    with pytest.raises(StorageError, match=r"b\.png cannot be read"):
        encoder.embed([tmp_path / "b.png"])


def test_files_and_folders_of_images(tmp_path):
    files = [picture(tmp_path / name) for name in ("b.png", "a.jpg")]
    (tmp_path / "notes.txt").write_text("x")
    assert image_files([tmp_path]) == sorted(files)
    assert image_files([files[0], tmp_path]) == [files[0], *sorted(files)]
    (tmp_path / "empty").mkdir()
    with pytest.raises(InvalidInput, match="holds no image"):
        image_files([tmp_path / "empty"])
    with pytest.raises(StorageError, match="no image"):
        image_files([tmp_path / "nowhere.png"])


def test_a_config_that_says_nothing_usable(tmp_path):
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({"image_mean": "bright"}))
    with pytest.raises(StorageError, match="does not say how images are read"):
        Pictures.of(tmp_path)
