"""Sphinx configuration. Builds with and without the frameworks installed."""

import importlib.util
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))

from yogadl import __version__

project = "yogadl"
author = "The yogadl authors"
copyright = author
version = release = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = f"yogadl {version}"

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
# `pip install '.[docs]'` brings no framework; what is there for each is documented all the same.
frameworks = ["tensorflow", "torch", "keras", "jax", "grain", "tensorpack", "ray", "pyarrow"]
frameworks += ["pytest", "fsspec"]
autodoc_mock_imports = [name for name in frameworks if not importlib.util.find_spec(name)]
napoleon_google_docstring = True
napoleon_numpy_docstring = False
# Attribute lists ("shuffle, reshuffle: …") describe several at once, which :ivar: can.
napoleon_use_ivar = True
