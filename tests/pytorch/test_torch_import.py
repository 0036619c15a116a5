"""What ``import yogadl.torch`` needs and brings along."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

BLOCKED = """
import importlib.abc, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] == "torch":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)

sys.meta_path.insert(0, Blocker())
import yogadl.errors
try:
    import yogadl.torch
except yogadl.errors.MissingExtraError as error:
    print(error)
"""


def _python(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_without_torch_the_error_names_the_extra() -> None:
    assert "yogadl[torch]" in _python(BLOCKED)


def test_no_other_framework_is_imported() -> None:
    pytest.importorskip("torch.utils.data", reason="needs PyTorch")
    others = ["tensorflow", "keras", "jax", "torchdata", "boto3", "google.cloud"]
    code = f"import sys, yogadl.torch; print([name for name in {others} if name in sys.modules])"
    assert _python(code).strip() == "[]"
