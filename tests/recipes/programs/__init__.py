"""Small programs, each with edits that change the data that it makes, and edits that do not."""

from __future__ import annotations

from programs import (
    classes,
    code,
    code_asked_for,
    hidden,
    hints,
    idioms,
    imports,
    libraries,
    patches,
    scripts,
    state,
    syntax,
    values,
)
from programs._program import Edit, Program

PROGRAMS: dict[str, Program] = {}
for _table in (
    classes,
    code,
    code_asked_for,
    hidden,
    hints,
    idioms,
    imports,
    libraries,
    patches,
    scripts,
    state,
    syntax,
    values,
):
    PROGRAMS.update(_table.PROGRAMS)

__all__ = ["PROGRAMS", "Edit", "Program"]
