"""What is said of two recipes is what differs, and nothing else."""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from yogadl.recipes import Recipe, changes, parse, recipe_of
from yogadl.recipes._call import named_call


class Scale:
    def __init__(self, by: float) -> None:
        self.by = by
        self.api_key = "hidden"

    def scaled(self) -> float:
        return self.by * 2


class Base:
    def run(self) -> int:
        return 1


class Derived(Base):
    pass


class Early:
    size = 1


class Stage(enum.Enum):
    RAW = 1


OBJECT: Any = [Scale(0.5)]
LONG = [f"word {number}" for number in range(60)]
KIND: Any = Stage
MANY: Any = {}


def uses_object() -> Any:
    return OBJECT


def uses_long() -> Any:
    return LONG


def uses_kind() -> Any:
    return KIND


def uses_derived() -> Any:
    return Early, Derived().run()


def uses_many() -> Any:
    return MANY


def told(
    function: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, place: Any, name: str, value: Any
) -> list[str]:
    """What is said if something is another; before, the recipe was kept."""
    before = kept(recipe_of(function))
    monkeypatch.setattr(place, name, value, raising=False)
    return [str(change) for change in changes(before, recipe_of(function))]


def kept(recipe: Recipe) -> Recipe:
    found = parse(json.loads(json.dumps(recipe.document())))
    assert found is not None
    return found


def module() -> Any:
    import test_recipe_changes

    return test_recipe_changes


def test_attributes_of_objects_are_named_but_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    said = told(uses_object, monkeypatch, module(), "OBJECT", [Scale(0.25)])
    assert said == [
        f"the global {__name__}.OBJECT is [Scale(by=0.25, api_key=…)], "
        "and was [Scale(by=0.5, api_key=…)]"
    ]


def test_what_a_method_is_of_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    scale = Scale(0.5)
    said = told(scale.scaled, monkeypatch, scale, "by", 0.25)
    assert said == [
        "the object: what is called is Scale(by=0.25, api_key=…), and was Scale(by=0.5, api_key=…)"
    ]


def test_long_values_are_shown_from_where_they_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    said = told(uses_long, monkeypatch, module(), "LONG", [*LONG[:-1], "another"])
    assert len(said) == 1
    assert "'another']" in said[0]
    assert "'word 59']" in said[0]


def test_members_of_enumerations_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    other = enum.Enum("Stage", {"RAW": 2}, module=__name__)
    said = told(uses_kind, monkeypatch, module(), "KIND", other)
    assert said == [f"the class {__name__}.Stage changed:\n    -    RAW = 1\n    +    RAW = 2"]


def test_others_of_a_name_are_not_blamed(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of one class comes before that of the other, which had been the first."""
    monkeypatch.setattr(Derived, "other", 1, raising=False)
    said = told(uses_derived, monkeypatch, Early, "other", 2)
    assert said == [
        f"the class {__name__}.Early changed, or what its names stand for",
        f"the attribute {__name__}.Early.other counts, and did not: 2",
    ]


def test_something_is_said_if_all_items_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    before = kept(recipe_of(uses_kind))
    same = Recipe("0" * 32, before.items, before.show)
    assert [str(change) for change in changes(before, same)] == [
        f"the code of {__name__}.uses_kind changed, or what its names stand for"
    ]
    assert changes(before, before) == ()


def test_what_was_too_much_to_be_kept_is_not_new(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = {number: type(f"Kind{number}", (), {"size": 1}) for number in range(900)}
    monkeypatch.setattr(module(), "MANY", kinds)
    assert kept(recipe_of(uses_many)).is_cut
    said = told(uses_many, monkeypatch, kinds[899], "size", 2)
    assert said == ["the rest of the recipe, which is too long to be kept, changed"]
    said = told(uses_many, monkeypatch, kinds[1], "size", 3)
    assert said == [f"the attribute {__name__}.Kind1.size changed"]


class Counted(type):
    def __repr__(cls) -> str:
        CALLED.append("class")
        return "class"


class Lazy(metaclass=Counted):
    def __init__(self) -> None:
        self.size = 5

    def __len__(self) -> int:
        CALLED.append("len")
        self.length = self.size
        return self.length

    def __repr__(self) -> str:
        CALLED.append("repr")
        return "lazy"


class Words(list[Any]):
    def __repr__(self) -> str:
        CALLED.append("words")
        return "words"


CALLED: list[str] = []
LAZY: Any = [Lazy(), Words(["a"]), Lazy, functools.partial(print, Lazy()), np.array([Lazy()])]


def uses_lazy() -> Any:
    return LAZY


def test_values_are_shown_without_calling_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    said = told(uses_lazy, monkeypatch, LAZY[0], "size", 6)
    assert "Lazy(size=6), Words(('a',))" in said[0]
    assert CALLED == []
    assert named_call(uses_lazy, tuple(LAZY), {})[1]
    assert CALLED == []
