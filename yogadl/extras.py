"""Optional dependencies, imported when first needed."""

from __future__ import annotations

import importlib
from typing import Any

from yogadl.errors import MissingExtraError


def require(module: str, extra: str) -> Any:
    """Imports an optional dependency.

    Args:
        module: what to import.
        extra: the pip extra of yogadl that brings it.

    Raises:
        MissingExtraError: it is not installed. Errors inside an installed one pass through.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise MissingExtraError(
            f"this needs {module}, which is not installed: pip install 'yogadl[{extra}]'"
        ) from error
