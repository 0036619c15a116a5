"""What a second worker brings, and what parts cost.

    python benchmarks/workers.py [--images 4000] [--size 512] [--megabytes 600] [--rounds 5]

A source that decodes a JPEG for each record is stored with ``workers=1`` and ``workers=2``; arrays
that are in memory with one worker, as one file and in parts of 64 MiB. All take turns, each in a
folder of its own, and are synced to the disk. Told, as JSON: by the clock, the seconds of each in
every round, and the medians of the ratios of a round.
"""

from __future__ import annotations

import argparse
import io
import json
import pathlib
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

# Whoever runs this file from a checkout measures that checkout.
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from yogadl.spec import TensorSpec
from yogadl.storage import LFSStorage

PART_BYTES = 64 << 20
WHOLE = 1 << 50
DIFFERENT = 64
VALUE_BYTES = 3072


class Images:
    """Records by position, of which each decodes a JPEG.

    Args:
        count: how many.
        size: height and width in pixels.
    """

    def __init__(self, count: int, size: int) -> None:
        self._count = count
        # Smooth, as photographs are more than noise.
        rows, columns = np.mgrid[:size, :size]
        self._files = []
        for seed in range(DIFFERENT):
            waves = [
                np.sin((rows * a + columns * b + seed) / 40) for a, b in ((1, 2), (3, 1), (2, 5))
            ]
            pixels = np.stack([127 * (1 + wave) for wave in waves], axis=-1).astype("u1")
            file = io.BytesIO()
            Image.fromarray(pixels).save(file, "JPEG", quality=90)
            self._files.append(file.getvalue())

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, position: int) -> dict[str, Any]:
        with Image.open(io.BytesIO(self._files[position % DIFFERENT])) as image:
            # As data sets of photographs do, so that a record is smaller than what was decoded.
            pixels = np.asarray(image.resize((224, 224)))
        return {"image": pixels, "number": np.int64(position)}


def seconds(folder: pathlib.Path, data: Any, spec: Any, **options: Any) -> float:
    """How long a data set takes to be stored."""
    with tempfile.TemporaryDirectory(dir=folder) as name:
        storage = LFSStorage(name)
        started = time.perf_counter()
        storage.submit(data, "data", "1", spec=spec, **options)
        taken = time.perf_counter() - started
        assert len(storage.fetch("data", "1")) == len(
            data if isinstance(data, Images) else data["x"]
        )
    return taken


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--size", type=int, default=512, help="height and width of the JPEGs")
    parser.add_argument("--megabytes", type=int, default=600, help="of the arrays")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--directory", type=pathlib.Path, help="for the data sets")
    arguments = parser.parse_args()
    images = Images(arguments.images, arguments.size)
    of_images = {"image": TensorSpec("uint8", (224, 224, 3)), "number": TensorSpec("int64", ())}
    count = (arguments.megabytes << 20) // VALUE_BYTES
    arrays = {"x": np.random.default_rng(0).integers(0, 256, (count, VALUE_BYTES), "u1")}
    of_arrays = {"x": TensorSpec("uint8", (VALUE_BYTES,))}
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        folder = pathlib.Path(name)
        ways: dict[str, Callable[[], float]] = {
            "one worker": lambda: seconds(folder, images, of_images, workers=1),
            "two workers": lambda: seconds(folder, images, of_images, workers=2),
            "one file": lambda: seconds(folder, arrays, of_arrays, part_bytes=WHOLE),
            "parts": lambda: seconds(folder, arrays, of_arrays, part_bytes=PART_BYTES),
        }
        found: dict[str, list[float]] = {way: [] for way in ways}
        for _ in range(arguments.rounds):
            for way, measure in ways.items():
                found[way].append(measure())
    speedups = [
        one / two for one, two in zip(found["one worker"], found["two workers"], strict=True)
    ]
    costs = [parts / one for one, parts in zip(found["one file"], found["parts"], strict=True)]
    told = {
        "seconds": found,
        "two workers beside one": statistics.median(speedups),
        "parts beside one file": statistics.median(costs),
    }
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    main()
