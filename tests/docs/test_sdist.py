"""What is built from a source distribution can be tested, documented and tried as in a checkout."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import tarfile

import pytest

ROOT = pathlib.Path(__file__).parent.parent.parent
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_sdist(sys.argv[1]))"
# Of use in a checkout only.
LEFT_OUT = {".gitignore"}


def tracked() -> list[str]:
    """The files of the checkout."""
    if not (ROOT / ".git").exists() or shutil.which("git") is None:
        pytest.skip("this is no checkout, of which git knows the files")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    return [name for name in listed.stdout.decode().split("\0") if name]


def test_the_sdist_has_all_that_the_checkout_has(tmp_path: pathlib.Path) -> None:
    setuptools = pytest.importorskip("setuptools")
    if int(setuptools.__version__.split(".")[0]) < 77:
        pytest.skip("needs setuptools 77, by which the package is built")
    source = tmp_path / "source"
    files = tracked()
    for name in files:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / name, source / name)
    built = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", BUILD, str(tmp_path)],
        cwd=source,
        check=True,
        capture_output=True,
        text=True,
    )
    with tarfile.open(tmp_path / built.stdout.split()[-1]) as archive:
        found = {name.partition("/")[2] for name in archive.getnames()}
    assert set(files) - found <= LEFT_OUT
    assert not {name for name in found if "__pycache__" in name or name.endswith(".mdb-lock")}
