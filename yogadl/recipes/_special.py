"""What has a meaning of its own when code uses it: what is refused, and what has more count."""

from __future__ import annotations

import os
import re
import sys
import types
from collections.abc import Collection
from typing import Any

from yogadl.recipes._owners import is_library

CACHED = "__yogadl_cached__"
"""The attribute of what ``cacheable`` returns that says what it caches."""

# What says where code is, and how it is written there.
_TRACEBACKS = frozenset(
    [
        "FrameSummary",
        "StackSummary",
        "TracebackException",
        "extract_stack",
        "extract_tb",
        "format_exc",
        "format_exception",
        "format_last",
        "format_stack",
        "format_tb",
        "getframeinfo",
        "getinnerframes",
        "getouterframes",
        "walk_stack",
        "walk_tb",
    ]
)
# What says in which line something was, or will be: the text of a function tells where its own are.
_LINES = frozenset(
    [
        "co_lines",
        "co_linetable",
        "co_lnotab",
        "co_positions",
        "end_lineno",
        "f_lineno",
        "findCaller",
        "formatwarning",
        "getlineno",
        "lineno",
        "linecache",
        "showwarning",
        "tb_lineno",
    ]
)
FLAGS: dict[str, frozenset[str]] = {
    "order": frozenset(("vars", "__dict__", "getmembers", "get_annotations", "get_type_hints")),
    "module": frozenset(("__module__",)),
    "doc": frozenset(("__doc__", "getdoc", "cleandoc")),
    "source": _TRACEBACKS.union(
        _LINES, ("getsource", "getsourcelines", "getcomments", "findsource", "__code__")
    ),
    "lines": _TRACEBACKS.union(_LINES, ("getsourcelines", "findsource", "co_firstlineno")),
    "marks": frozenset(("__final__", "__override__")),
    "annotations": frozenset(
        [
            "__annotations__",
            "get_type_hints",
            "get_annotations",
            "signature",
            "getfullargspec",
            "getargspec",
            # Of pydantic, typeguard and beartype.
            "beartype",
            "typechecked",
            "validate_arguments",
            "validate_call",
        ]
    ),
}
"""What counts only if code uses one of some names."""

HINTS = "hints"
"""What else counts if nothing asks for annotations: those of functions that are handed to what may
go by them without saying so, as libraries do."""

PRINTED = {
    "print_exc": 1,
    "print_exception": 4,
    "print_last": 1,
    "print_stack": 2,
    "print_tb": 2,
}
"""What prints such, in no record unless it is given a file: after so many other arguments, or by
name."""

MARKS = FLAGS["marks"]
"""What decorators such as ``typing.final`` leave, on some versions of Python, for who asks."""

LEFT = frozenset(("ag_dnc_wrapper__", "autograph_info__"))
"""What TensorFlow leaves on the functions that it has called."""

LOOKING_UP = frozenset(
    (
        "bmat",
        "c_",
        "dmatrices",
        "dmatrix",
        "eval",
        "evaluate",
        "exec",
        "execute",
        "executemany",
        "from_formula",
        "from_query",
        "glm",
        "ols",
        "query",
        "r_",
        "re_evaluate",
        "register_globals",
        "sql",
    )
)
"""What of libraries looks for names in text among the variables of who calls it."""

WHOLE_ENVIRONMENT = "the whole environment, of which it cannot be told what is used"
RUNS_TEXT = "runs code that is not there to be read"
BY_NAME = "finds what it uses by a name that is not known before"

_FUNCTIONS = {
    "IPython.core.getipython.get_ipython": RUNS_TEXT,
    "builtins.eval": RUNS_TEXT,
    "builtins.exec": RUNS_TEXT,
    "builtins.__import__": BY_NAME,
    "builtins.globals": BY_NAME,
    "cProfile.run": RUNS_TEXT,
    "cProfile.runctx": RUNS_TEXT,
    "django.utils.module_loading.import_string": BY_NAME,
    "importlib.__import__": BY_NAME,
    "importlib.import_module": BY_NAME,
    "importlib.reload": BY_NAME,
    "importlib.find_loader": BY_NAME,
    "importlib.util.find_spec": BY_NAME,
    "importlib.util.spec_from_file_location": BY_NAME,
    "importlib.util.spec_from_loader": BY_NAME,
    "importlib.util.module_from_spec": BY_NAME,
    "numpy.testing._private.utils.measure": RUNS_TEXT,
    "numpy.testing._private.utils.rundocs": RUNS_TEXT,
    "numpy.testing._private.utils.runstring": RUNS_TEXT,
    "pkg_resources.get_distribution": BY_NAME,
    "pkg_resources.iter_entry_points": BY_NAME,
    "pkg_resources.require": BY_NAME,
    "pkgutil.find_loader": BY_NAME,
    "pkgutil.get_importer": BY_NAME,
    "pkgutil.get_loader": BY_NAME,
    "pkgutil.iter_modules": BY_NAME,
    "pkgutil.resolve_name": BY_NAME,
    "pkgutil.walk_packages": BY_NAME,
    "profile.run": RUNS_TEXT,
    "profile.runctx": RUNS_TEXT,
    "sys._current_exceptions": BY_NAME,
    "sys._current_frames": BY_NAME,
    "sys._getframe": BY_NAME,
    "timeit.Timer": RUNS_TEXT,
    "timeit.repeat": RUNS_TEXT,
    "timeit.timeit": RUNS_TEXT,
    "torch.hub.load": BY_NAME,
    "unittest.loader.TestLoader": BY_NAME,
    "werkzeug.utils.import_string": BY_NAME,
    "inspect.currentframe": BY_NAME,
    "inspect.getmodule": BY_NAME,
    "inspect.stack": BY_NAME,
    "inspect.trace": BY_NAME,
    "gc.get_objects": BY_NAME,
    "gc.get_referents": BY_NAME,
    "gc.get_referrers": BY_NAME,
    "os.getenvb": BY_NAME,
    "os.path.expandvars": BY_NAME,
    "posixpath.expandvars": BY_NAME,
    "ntpath.expandvars": BY_NAME,
}
# What says what is installed, in either library that has them.
_OF_METADATA = (
    "Distribution",
    "EntryPoint",
    "MetadataPathFinder",
    "PathDistribution",
    "distribution",
    "distributions",
    "entry_points",
    "files",
    "metadata",
    "packages_distributions",
    "requires",
    "version",
)
_FUNCTIONS.update(
    (f"{module}.{name}", BY_NAME)
    for module in ("importlib.metadata", "importlib_metadata")
    for name in _OF_METADATA
)
_MODULES = {
    "_frozen_importlib": BY_NAME,
    "_frozen_importlib_external": BY_NAME,
    "bdb": RUNS_TEXT,
    "code": RUNS_TEXT,
    "doctest": RUNS_TEXT,
    "hydra._internal.instantiate._instantiate2": BY_NAME,
    "hydra.utils": BY_NAME,
    "imp": BY_NAME,
    "importlib._bootstrap": BY_NAME,
    "importlib._bootstrap_external": BY_NAME,
    "importlib.machinery": BY_NAME,
    "pdb": RUNS_TEXT,
    "pydoc": BY_NAME,
    "rlcompleter": RUNS_TEXT,
    "runpy": RUNS_TEXT,
    "trace": RUNS_TEXT,
    "zipimport": BY_NAME,
}
_NAMES = (
    "__builtins__",
    "__globals__",
    "__subclasses__",
    "exec_module",
    "f_builtins",
    "f_globals",
    "f_locals",
    "load_module",
)
MEANT = frozenset(_NAMES).union(*FLAGS.values())
"""Names that mean something, which code may have as strings."""

_IN_FORMAT = re.compile(r"[.\[](\w+)")


def meant_by(value: str) -> Collection[str]:
    """The names that mean something of those that a string gets attributes by, if it is used for
    that, or if it is what ``str.format`` is called of."""
    if value in MEANT:
        return (value,)
    if "lineno" in value:
        # As in formats of logging.
        return ("lineno", *_in_format(value))
    return _in_format(value)


def _in_format(value: str) -> Collection[str]:
    return MEANT.intersection(_IN_FORMAT.findall(value)) if "{" in value else ()


_HOLDING = frozenset(
    [
        "builtins",
        "gc",
        "importlib",
        "importlib.metadata",
        "importlib.util",
        "importlib_metadata",
        "inspect",
        "os",
        "pkg_resources",
        "pkgutil",
        "posix",
        "sys",
    ]
)
_PUBLIC = {
    "_frozen_importlib": "importlib.machinery.",
    "_frozen_importlib_external": "importlib.machinery.",
    "builtins": "",
    "importlib._bootstrap": "importlib.machinery.",
    "importlib._bootstrap_external": "importlib.machinery.",
    "ntpath": "os.path.",
    "posixpath": "os.path.",
}
# Methods that are known by no more than their names, and classes that have them.
_METHODS = ("run", "runctx")
_HAVING = frozenset(("cProfile.Profile", "profile.Profile"))
_CODE = (types.FunctionType, types.BuiltinFunctionType, type)


def forbidden(value: Any) -> tuple[str, str] | None:
    """What code may not use: its name, and why; ``None`` for anything else."""
    if value is sys.modules:
        return "sys.modules", BY_NAME
    if value is getattr(os, "environb", os):
        return "os.environb", BY_NAME
    if not issubclass(type(value), _CODE):
        return None
    module = getattr(value, "__module__", None)
    return forbidden_name(module, value.__qualname__) if isinstance(module, str) else None


def forbidden_name(module: str, name: str) -> tuple[str, str] | None:
    """The same of what may not be there yet, by its name."""
    full = f"{module}.{name}"
    why = _FUNCTIONS.get(full) or _MODULES.get(module)
    if why is None or (module in sys.modules and not is_library(module)):
        # A module of the user's may have the name of one of Python's.
        return None
    public = _PUBLIC.get(module, f"{module}.")
    return f"{public}{name}", why


def forbidden_mention(names: Collection[str]) -> list[tuple[str, str]]:
    """The same of names and attributes that code uses, whatever they are of."""
    return [(name, BY_NAME) for name in _NAMES if name in names]


def forbidden_together(names: Collection[str]) -> list[tuple[str, str]]:
    """The same of names of methods and of the classes that have them, of all of a recipe."""
    if _HAVING.isdisjoint(names):
        return []
    return [(f"Profile.{name}", RUNS_TEXT) for name in _METHODS if name in names]


def holds_forbidden(module: str) -> bool:
    """Whether a module has what may not be used, so that it must be known what is used of it."""
    return module in _HOLDING or module in _MODULES
