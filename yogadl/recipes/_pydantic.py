"""What classes of pydantic's are: their fields and validators.

What pydantic compiles of those is not looked at.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

from yogadl.recipes._objects import kept
from yogadl.recipes._protocol import Walk, pairs

_log = logging.getLogger(__name__)

_COMPLETE = "__pydantic_complete__"
_MARK = "__pydantic_decorators__"
_COUNTING = frozenset(
    (
        "__pydantic_computed_fields__",
        "__pydantic_config__",
        "__pydantic_fields__",
        "__pydantic_generic_metadata__",
    )
)
_OTHERS = frozenset(("__class_vars__", "__is_pydantic_dataclass__", "__signature__"))


def complete(kind: type) -> None:
    """Has pydantic look for what a model names that was not there when it was made, as it does when
    the model is used first: its fields are others then."""
    if _MARK not in vars(kind) or vars(kind).get(_COMPLETE) is not False:
        return
    base: Any = getattr(sys.modules.get("pydantic"), "BaseModel", None)
    # What a class of the user's has by the name is not asked.
    if any(one is base for one in kind.__mro__):
        rebuild = base.model_rebuild.__func__
    else:
        rebuild = getattr(sys.modules.get("pydantic.dataclasses"), "rebuild_dataclass", len)
    try:
        rebuild(kind, raise_errors=False, _parent_namespace_depth=0)
    except Exception as error:
        # The user's own hooks may run, and raise anything; so they do when the model is used.
        _log.debug("%s is not completed: %s", kind.__qualname__, type(error).__qualname__)


def is_compiled(kind: type, name: str) -> bool:
    """Whether something in a class is what pydantic has made of the rest."""
    if _MARK not in vars(kind):
        return False
    return name in _OTHERS or (name.startswith("__pydantic_") and name not in _COUNTING)


def validators(walk: Walk, kind: type) -> list[str]:
    """Which methods of a class validate or write what, in their order."""
    found = []
    for what, decorators in dict(kept(vars(kind).get(_MARK))).items():
        for name, decorator in decorators.items():
            # It has the class by where that lies in memory, too.
            parts = dict(kept(decorator))
            counting = ((it, parts[it]) for it in ("func", "info") if it in parts)
            found.append(f"{what} {name}={pairs(walk, counting)}")
    return found
