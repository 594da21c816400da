"""`Pictures`: image files as a model reads them, resized, cropped and scaled as its folder says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from metastable.arguments import OneLine
from metastable.encoders.transformers_library import library
from metastable.encoders.weight_file import read_json
from metastable.errors import InvalidInput, MetastableError, StorageError

IMAGE_FILES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".ppm")
"""How image files end."""
BILINEAR = 2
"""Pillow's number of bilinear interpolation, which image processors use where they name no other."""


@dataclass(frozen=True, repr=False)
class Pictures(OneLine):
    """pixel = (factor * value - mean) / std per channel, value in 0..255, after resizing and cropping."""

    mean: tuple[float, ...] = (0.5, 0.5, 0.5)
    std: tuple[float, ...] = (0.5, 0.5, 0.5)
    factor: float = 1 / 255
    shortest: int | None = None
    """The shorter side is resized to this, and the centre is cut out; None: both sides become the model's."""
    resample: int = BILINEAR
    told: bool = False
    """Whether a preprocessor_config.json said so, or these are the defaults."""

    @classmethod
    def of(cls, folder: Path | None) -> Pictures:
        """What preprocessor_config.json in a folder says; the default of ViT, values in [-1, 1], without one."""
        file = None if folder is None else folder / "preprocessor_config.json"
        if file is None or not file.is_file():
            return cls()
        given = read_json(file)
        if not isinstance(given, dict):
            raise StorageError(f"{file.name} in {file.parent.name} is no dictionary")
        size = given.get("size")
        shortest = size.get("shortest_edge") if isinstance(size, dict) else None
        if isinstance(size, int) and given.get("do_center_crop"):
            shortest = size
        scales = given.get("do_normalize", True)
        try:
            return cls(
                mean=tuple(map(float, given.get("image_mean", cls.mean))) if scales else (0.0,),
                std=tuple(map(float, given.get("image_std", cls.std))) if scales else (1.0,),
                factor=float(given.get("rescale_factor", cls.factor)) if given.get("do_rescale", True) else 1.0,
                shortest=None if shortest is None else int(shortest),
                resample=int(given.get("resample", BILINEAR)),
                told=True,
            )
        except (TypeError, ValueError) as error:
            raise StorageError(f"{file.name} in {file.parent.name} does not say how images are read") from error

    def read(self, path: Path, shape: Sequence[int]) -> Float[Tensor, "c h w"]:
        """An image file as pixels of shape (channels, height, width)."""
        channels, height, width = shape
        try:
            image = library().image_utils.load_image(str(path)).convert("L" if channels == 1 else "RGB")
        except MetastableError:
            raise
        except Exception as error:  # whatever a broken file makes a decoder raise
            raise StorageError(f"the image {path.name} cannot be read: {_reason(error)}") from error
        if channels not in (1, 3):
            raise InvalidInput(f"an image file has 1 or 3 channels, this model reads {channels}")
        image = self._sized(image, height, width)
        pixels = self.factor * np.asarray(image, dtype=np.float32).reshape(height, width, channels)
        scaled = (pixels - np.asarray(self.mean, np.float32)) / np.asarray(self.std, np.float32)
        return torch.from_numpy(np.ascontiguousarray(scaled.transpose(2, 0, 1), dtype=np.float32))

    def _sized(self, image: Any, height: int, width: int) -> Any:
        if self.shortest is None:
            return image.resize((width, height), self.resample)
        short = max(self.shortest, height, width)
        ratio = short / min(image.size)
        across, down = (max(short, int(side * ratio)) for side in image.size)
        left, top = (across - width) // 2, (down - height) // 2
        return image.resize((across, down), self.resample).crop((left, top, left + width, top + height))


def image_files(paths: Sequence[Path]) -> list[Path]:
    """Image files, and those in folders, in order of their names."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in path.iterdir() if file.suffix.lower() in IMAGE_FILES)
            if not inside:
                raise InvalidInput(f"the folder {path.name} holds no image ({', '.join(IMAGE_FILES)})")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise StorageError(f"there is no image {path.name}")
    return found


def _reason(error: Exception) -> str:
    return "it is no image" if "identify" in str(error) else " ".join(str(error).split())[:80]
