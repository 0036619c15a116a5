"""Recipes: what determines the data that a function makes.

It knows nothing of storages. ``docs/recipes.md`` says what counts.
"""

from yogadl.recipes._call import (
    checked_inputs,
    checked_names,
    named_call,
    recipe_of,
    recipe_or_nonce,
)
from yogadl.recipes._call_text import call_text
from yogadl.recipes._compare import RecipeChange, changes
from yogadl.recipes._document import Item, Recipe, parse
from yogadl.recipes._inputs import FileInput
from yogadl.recipes._special import CACHED

__all__ = [
    "CACHED",
    "FileInput",
    "Item",
    "Recipe",
    "RecipeChange",
    "call_text",
    "changes",
    "checked_inputs",
    "checked_names",
    "named_call",
    "parse",
    "recipe_of",
    "recipe_or_nonce",
]
