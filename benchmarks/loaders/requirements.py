"""What each loader's environment needs, by the name of its module."""

from __future__ import annotations

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
