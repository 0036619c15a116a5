"""What each loader's environment needs, by the name of its module."""

from __future__ import annotations

import pathlib

TORCH = "torch==2.13.0"

REQUIREMENTS: dict[str, list[str]] = {
    "ffcv_loader": [TORCH, "numpy", "numba", "pillow", "setuptools", "ffcv==1.0.2"],
    "tf_record": ["tensorflow"],
    "tf_save": ["tensorflow"],
    "grain_loader": ["numpy", "grain", "array_record"],
    "litdata_loader": [TORCH, "numpy", "litdata"],
    "mosaic": [TORCH, "numpy", "mosaicml-streaming"],
    "torch_lmdb": [TORCH, "numpy", "lmdb"],
}
"""Module name -> what pip installs, in one command, so that nothing replaces the pinned torch."""

SYSTEM: dict[str, tuple[str, ...]] = {"ffcv_loader": ("opencv4", "libturbojpeg")}
"""Module name -> pkg-config packages that must be there before its requirements are built."""

_THIS_TREE = ["--editable", str(pathlib.Path(__file__).resolve().parents[2])]

FRAMEWORKS: dict[str, list[str]] = {
    "torch_yogadl": [TORCH, *_THIS_TREE],
    "keras_tensorflow": ["keras", "tensorflow", *_THIS_TREE],
    "keras_torch": ["keras", TORCH, *_THIS_TREE],
    "keras_jax": ["keras", "jax", *_THIS_TREE],
}
"""The same for ``frameworks.py``: this tree's yogadl, with one framework each."""

# Since release 5, ``datasets`` reads from servers only with what fsspec needs for it.
_STREAMED = [TORCH, "numpy", "webdataset", "datasets", "aiohttp", "requests"]

FAR: dict[str, list[str]] = {
    "mosaic_far": REQUIREMENTS["mosaic"],
    "litdata_far": REQUIREMENTS["litdata_loader"],
    "webdataset_far": _STREAMED,
    "huggingface_far": _STREAMED,
}
"""The same for the peers of ``far.py``."""
