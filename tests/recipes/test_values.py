"""Values that differ in anything that counts are told apart, and equal ones are not."""

from __future__ import annotations

import array
import collections
import copy
import dataclasses
import datetime
import decimal
import enum
import functools
import pathlib
import random
import struct
import time
import types
import uuid
import zoneinfo
from typing import Any

import numpy as np
import pytest

import yogadl
from yogadl.errors import UndeterminedError
from yogadl.recipes import _classes, recipe_of
from yogadl.storage import LFSStorage


def make(value: Any = None) -> Any:
    return value


def digest(value: Any) -> str:
    return recipe_of(make, (value,)).digest


class Mine:
    def __init__(self, size: int) -> None:
        self.size = size


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x


class Words(list[str]):
    pass


class Color(enum.Flag):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Point:
    x: int = 0
    y: int = 0


NAN = float("nan")
PADDED = np.dtype([("a", "i1"), ("b", [("c", "i1"), ("d", "f8")])], align=True)
OVERLAPPING = np.dtype({"names": ["a", "b"], "formats": ["i4", "i2"], "offsets": [0, 0]})
# All of them differ.
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 2**100, 0.0, -0.0, 1.0, 1j, complex(0.0, -0.0), NAN, -NAN,
    float("inf"), "", "a", "A", "1", "1.0", "None", b"", b"a", bytearray(b"a"), memoryview(b"a"),
    (), (1,), (1, 2), (2, 1), [], [1], [1, 2], [2, 1], [[1], 2], [[1, 2]], ["a", "b"], ["ab"],
    {}, {1: 2}, {2: 1}, {"1": 2}, {1: 2, 3: 4}, {3: 4, 1: 2}, set(), {1}, {1, 2}, frozenset(),
    frozenset([1]), range(3), range(1, 3), slice(3), slice(None), ..., NotImplemented,
    "x" * 1000, "x" * 1001, b"x" * 1000, b"x" * 1001, list(range(100)), [*range(99), 98],
    [*range(99), 99.0], tuple(range(100)), [*map(str, range(100))], [*range(99), True],
    [0.0] * 100, [-0.0] * 100, [0] * 100, [False] * 100,
    int, float, list[int], list[str], int | str, len, str.upper, "".join, "a".join, print,
    functools.partial(make, 1), functools.partial(make, 2), functools.partial(make, value=1),
    Mine(1), Mine(2), Mine, Slotted(1), Slotted(2), Words(["a"]), Words(["b"]), Point(), Point(1),
    Point(y=1), Color.RED, Color.BLUE, Color.RED | Color.BLUE, Mine(1).__init__,
    collections.deque([1]), collections.deque([1], 5), collections.OrderedDict({1: 2}),
    collections.OrderedDict({2: 1}), collections.Counter("a"), collections.defaultdict(int),
    collections.defaultdict(list), types.SimpleNamespace(a=1), types.MappingProxyType({1: 2}),
    array.array("i", [1]), array.array("l", [1]), random.Random(1), random.Random(2),
    datetime.date(2020, 1, 1), datetime.datetime(2020, 1, 1), datetime.timedelta(1),
    datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc),
    datetime.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo("UTC")),
    datetime.datetime(2020, 1, 1, fold=1), datetime.time(1), decimal.Decimal(1),
    decimal.Decimal("1.0"), pathlib.Path("a"), pathlib.Path("b"), ValueError("a"), ValueError("b"),
    KeyError("a"), np.int64(1), np.int32(1), np.float32(1), np.bool_(True), np.str_("a"),
    np.dtype("int64"), np.dtype(">i8"), np.dtype([("a", "i8")]), np.dtype([("b", "i8")]),
    np.zeros(3), np.zeros(4), np.zeros((3, 1)), np.zeros(3, "f4"), -np.zeros(3), np.full(3, NAN),
    np.zeros(3, ">f8"), np.zeros(0), np.zeros((0, 2)), np.zeros(3, [("a", "f8")]),
    np.array(["a", 1], object), np.array([1, "a"], object), np.array(["a"]), np.array(["b"]),
    np.ma.array([1, 2], mask=[0, 1]), np.ma.array([1, 2], mask=[1, 0]), np.arange(3)[::-1],
    np.datetime64("2020"), np.datetime64("2020", "D"), np.add, np.multiply, np.mean,
    np.random.default_rng(1), np.random.default_rng(2), np.random.RandomState(1),
    np.random.SeedSequence(1), np.random.PCG64(3), np.void(b"ab"),
    np.ma.array([1, 2]), np.ma.array([1, 2], mask=[0, 0]),
    np.ma.array([1, 2], mask=[0, 1], hard_mask=True), np.longdouble(1), np.clongdouble(1),
    np.full(3, 1, "g"), np.full(3, 2, "g"), np.zeros(2, OVERLAPPING), np.ones(2, OVERLAPPING),
    np.array([(Mine(1),)], [("a", object)])[0], np.array([(Mine(2),)], [("a", object)])[0],
    np.array([(Mine(1),)], [("a", object)]), np.array([(Mine(2),)], [("a", object)]),
    np.float64, np.random.default_rng, TypeError, Color, object(), uuid.UUID(int=1),
    uuid.UUID(int=2), uuid.UUID(int=1, is_safe=uuid.SafeUUID.safe),
    uuid.UUID(int=1, is_safe=uuid.SafeUUID.unsafe),
]  # fmt: skip


def test_all_are_told_apart() -> None:
    found: dict[str, Any] = {}
    for value in VALUES:
        told = digest(value)
        assert told not in found, (value, found[told])
        found[told] = value


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__}")
def test_equal_ones_are_not(value: Any) -> None:
    if isinstance(value, memoryview):
        other: Any = memoryview(bytes(value))
    elif isinstance(value, type({}.keys) | types.MethodType | types.MappingProxyType):
        other = value
    else:
        other = copy.deepcopy(value)
    assert digest([value, 1]) == digest([other, 1])


def test_values_that_cannot_be_copied() -> None:
    def values(number: int) -> list[Any]:
        found = {number: number}
        views = [found.keys(), found.values(), found.items()]
        return [*views, struct.Struct(f"<{number}I"), time.gmtime(number)]

    told = [*map(digest, values(1)), *map(digest, values(2)), digest(np.ma.masked)]
    assert len(set(told)) == len(told)
    assert [*map(digest, values(1))] == told[: len(values(1))]


def test_what_is_shared_is_told_from_what_is_equal() -> None:
    """A function that changes one changes the other, too."""
    one = [1]
    assert digest([one, one]) != digest([[1], [1]])
    ring: list[Any] = [1]
    ring.append(ring)
    other: list[Any] = [1]
    other.append(other)
    assert digest(ring) == digest(other) != digest([1, [1]])


def test_layouts_of_arrays_do_not_count() -> None:
    array = np.arange(6).reshape(2, 3)
    assert digest(array) == digest(np.asfortranarray(array))
    assert digest(array[:, ::-1]) == digest(array[:, ::-1].copy())


@pytest.mark.skipif(np.finfo("g").nmant != 63, reason="its long doubles have no such bytes")
@pytest.mark.parametrize("kind", ["g", "G", [("a", "g")]])
def test_padding_of_long_doubles_does_not_count(kind: Any) -> None:
    one = np.full(2, 0.5, kind)
    other = one.copy()
    other.view("u1").reshape(-1, np.dtype("g").itemsize)[:, 10:] = 255
    assert (one == other).all()
    assert digest(one) == digest(other)
    assert digest(one[0]) == digest(other[0])
    assert digest(one) != digest(np.full(2, 0.25, kind))


@pytest.mark.parametrize("kind", ["g", "G", ">g", [("a", "g"), ("b", "i1")], PADDED])
def test_bytes_that_mean_nothing_do_not_count(kind: Any) -> None:
    """Long doubles are kept in more bytes than they have, and so are aligned fields."""
    one, other = (np.full(3 * np.dtype(kind).itemsize, byte, "u1").view(kind) for byte in (0, 255))
    names: Any = one.dtype.names or (...,)
    for values in (one, other):
        for name in names:
            values[name] = 0.5
    pairs = [(one, other), (one[1], other[1]), (one[::2], other[::2])]
    assert [digest(it[0]) == digest(it[1]) for it in pairs] == [True] * 3
    changed = one.copy()
    for name in names:
        changed[name] = 1.5
    assert digest(changed) != digest(one)


def test_the_order_of_sets_does_not_count() -> None:
    words = [f"word {number}" for number in range(50)]
    assert digest(set(words)) == digest({*words[::-1]})
    assert digest(frozenset(map(Slot, words))) == digest(frozenset(map(Slot, reversed(words))))


class Slot(str):
    __slots__ = ()


def test_arguments_are_compared_as_the_function_gets_them() -> None:
    def takes(first: int, second: int = 2, *rest: int, third: int = 3, **more: int) -> Any:
        return first

    same = [
        recipe_of(takes, (1,)),
        recipe_of(takes, (1, 2)),
        recipe_of(takes, (1,), {"second": 2}),
        recipe_of(takes, (), {"first": 1, "third": 3}),
    ]
    assert len({recipe.digest for recipe in same}) == 1
    others = [
        recipe_of(takes, (2,)),
        recipe_of(takes, (1, 3)),
        recipe_of(takes, (1, 2, 3)),
        recipe_of(takes, (1,), {"third": 4}),
        recipe_of(takes, (1,), {"a": 1, "b": 2}),
        recipe_of(takes, (1,), {"b": 2, "a": 1}),
    ]
    assert len({recipe.digest for recipe in [*same, *others]}) == 7
    assert recipe_of(takes, (1,), {"third": 4}, ignore=("third",)).digest == (
        recipe_of(takes, (1,), {"third": 5}, ignore=("third",)).digest
    )


def test_data_sets_count_by_what_they_hold(tmp_path: pathlib.Path) -> None:
    storage = LFSStorage(tmp_path)
    for version, data in {"1": [1, 2, 3], "2": [1, 2, 3], "3": [1, 2, 4]}.items():
        storage.submit(data, "a", version)
    refs = {version: storage.fetch("a", version) for version in "123"}
    with refs["1"], refs["2"], refs["3"]:
        assert digest(refs["1"][:2]) == digest(refs["3"][:2])
        assert digest(refs["1"]) != digest(refs["3"])
        by_input = [recipe_of(make, inputs=(ref,)).digest for ref in refs.values()]
        assert by_input[0] != by_input[2]
    assert digest(storage) == digest(LFSStorage(tmp_path))


def test_inputs(tmp_path: pathlib.Path) -> None:
    """By content, wherever they are; or by size and time."""

    def told(*inputs: Any) -> str:
        return recipe_of(make, inputs=inputs).digest

    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        (folder / "below").mkdir(parents=True)
        (folder / "a.txt").write_text("a")
        (folder / "below" / "b.txt").write_text("b")
    assert told(one) == told(other) == told(str(one)) == told(yogadl.FileInput(one))
    assert told(one / "a.txt") == told(other / "a.txt") != told(one / "below" / "b.txt")
    assert told(one / "a.txt", other) != told(other, one / "a.txt")
    by_time = told(yogadl.FileInput(one, by="time"))
    assert by_time != told(one)
    (one / "below" / "b.txt").write_text("c")
    assert told(one) != told(other)
    assert by_time != told(yogadl.FileInput(one, by="time"))
    (one / "below" / "b.txt").write_text("b")
    assert told(one) == told(other)
    (one / "a.txt").rename(one / "c.txt")
    assert told(one) != told(other)
    (one / "c.txt").rename(one / "a.txt")
    (one / "below" / "up").symlink_to(one)
    with pytest.raises(ValueError, match="a link to a folder that it is in"):
        told(one)


def test_sets_of_inputs(tmp_path: pathlib.Path) -> None:
    """They have no order."""
    paths = [tmp_path / name for name in "abcdef"]
    for path in paths:
        path.write_text(path.name)
    told = {
        recipe_of(make, inputs=frozenset(map(str, given))).digest for given in (paths, paths[::-1])
    }
    assert len(told) == 1
    assert recipe_of(make, inputs=frozenset(paths[1:])).digest not in told


def test_arguments_of_wrappers_are_those_that_they_get() -> None:
    def count(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*given: Any, **named: Any) -> Any:
            return len(named)

        return wrapper

    @count
    def takes(n: int = 2) -> Any:
        return n

    told = [recipe_of(takes, (2,)), recipe_of(takes, (), {"n": 2}), recipe_of(takes)]
    assert len({it.digest for it in told}) == 3


def test_names_in_the_text_of_queries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Libraries look for them among the variables of who calls."""

    def one(frame: Any) -> Any:
        return frame.query("x > @LIMIT")

    def other(frame: Any) -> Any:
        return frame.eval(QUERY)

    def neither(frame: Any) -> Any:
        return frame.find("x > @LIMIT")

    def by_another(frame: Any) -> Any:
        return select(frame, "x > @LIMIT")

    def without_text(frame: Any) -> Any:
        return frame.eval(), "x > @LIMIT"

    def of_blocks(frame: Any) -> Any:
        return np.bmat("LIMIT LIMIT")

    def of_rows(frame: Any) -> Any:
        return np.r_["LIMIT LIMIT"]

    def renamed(frame: Any) -> Any:
        return BLOCKS("LIMIT LIMIT")

    def renamed_here(frame: Any) -> Any:
        from numpy import bmat as blocks

        return blocks(TEXT)

    def of_arrays(frame: Any) -> Any:
        return np.r_[frame, frame], np.bmat([[frame]]), "LIMIT"

    def before_lists(frame: Any) -> Any:
        return frame.query("x > @LIMIT").sort_values(["x"])

    def before_texts(frame: Any) -> Any:
        return frame.query(text()).to_dict("records")

    def before_slices(frame: Any) -> Any:
        return frame.query("x > @LIMIT").iloc[0:5, 0]

    def before_nothing(frame: Any) -> Any:
        return frame.eval("x * LIMIT").eval()

    def arrays_of_one(frame: Any) -> Any:
        return frame.reset_index().eval(), frame.shape(2).r_[[1]], "LIMIT"

    by_name = (of_blocks, of_rows, renamed, renamed_here)
    chained = (before_lists, before_texts, before_slices, before_nothing)
    functions = (one, other, neither, by_another, without_text, of_arrays, arrays_of_one)
    functions += by_name + chained
    before = [recipe_of(function, (1,)).digest for function in functions]
    monkeypatch.setitem(globals(), "LIMIT", 4)
    after = [recipe_of(function, (1,)).digest for function in functions]
    same = [old == new for old, new in zip(before, after, strict=True)]
    assert same[:7] == [False, False, True, False, True, True, True]
    assert same[7:] == [False] * len(by_name + chained)


def text() -> str:
    return "x > @LIMIT"


def select(frame: Any, condition: str) -> Any:
    return frame.query(condition)


LIMIT = 3
QUERY = "y = x * LIMIT"
TEXT = "LIMIT"
BLOCKS = np.bmat


def test_a_path_that_is_an_input_counts_by_its_contents(tmp_path: pathlib.Path) -> None:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.write_text("same")
    by_text = {recipe_of(make, (path,)).digest for path in paths}
    by_content = {recipe_of(make, (path,), inputs=(path,)).digest for path in paths}
    as_inputs = {recipe_of(make, (yogadl.FileInput(path),)).digest for path in paths}
    assert (len(by_text), len(by_content), len(as_inputs)) == (2, 1, 1)
    with open(yogadl.FileInput(paths[0])) as file:  # as functions do
        assert file.read() == "same"


class Disguised:
    def __init__(self, x: int) -> None:
        self.x = x

    def __getattribute__(self, name: str) -> Any:
        return 1


def test_objects_that_say_anything_of_themselves() -> None:
    assert digest(Disguised(1)) == digest(Disguised(1)) != digest(Disguised(2))


def test_keys() -> None:
    told = [
        recipe_of(make, key=key).digest
        for key in (None, 1, 1.0, "1", [1], {"a": 1, "b": 2}, {"b": 2, "a": 1}, False)
    ]
    assert told[5] == told[6]
    assert len(set(told)) == 7


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    import os

    def one() -> Any:
        return os.environ.get("YOGADL_TEST_A", ""), os.environ["YOGADL_TEST_B"]

    def other() -> Any:
        return os.getenv("YOGADL_TEST_A")

    for function in (one, other):
        monkeypatch.setenv("YOGADL_TEST_A", "1")
        monkeypatch.setenv("YOGADL_TEST_B", "1")
        before = recipe_of(function)
        monkeypatch.setenv("YOGADL_TEST_A", "secret")
        after = recipe_of(function)
        assert before.digest != after.digest
        assert "secret" not in str(after.document())
        monkeypatch.setenv("YOGADL_TEST_C", "1")
        assert recipe_of(function).digest == after.digest


class _Answering(type):
    """A metaclass of settings, which have whatever is asked for."""

    def __getattr__(cls, name: str) -> Any:
        return 1

    def __eq__(cls, other: object) -> bool:
        return True

    __hash__ = type.__hash__


class _Settings(metaclass=_Answering):
    size = 3


def test_classes_that_have_whatever_is_asked_for() -> None:
    def use() -> int:
        return _Settings.size

    first = recipe_of(use).digest
    _Settings.size = 4
    assert recipe_of(use).digest != first
    _Settings.size = 3
    assert recipe_of(use).digest == first


def test_what_says_that_it_wraps_itself() -> None:
    def use() -> int:
        return 1

    use.__wrapped__ = use  # type: ignore[attr-defined]
    assert recipe_of(use).digest


def test_what_numpy_has_vectorized_is_the_same_once_it_was_called() -> None:
    def vectorized(by: float) -> Any:
        return np.vectorize(lambda x: x + by, otypes=[float])

    made, other = vectorized(1), vectorized(2)
    told = [of_value(made), of_value(other)]
    assert told[0] != told[1]
    assert made([1, 2]).tolist() == [2, 3]
    assert [of_value(made), of_value(vectorized(2))] == told


def of_value(value: Any) -> str:
    return recipe_of(lambda value: value, (value,)).digest


def test_the_order_of_registrations_does_not_matter() -> None:
    def dispatcher(kinds: list[type]) -> Any:
        @functools.singledispatch
        def told(value: Any) -> str:
            return "any"

        def of_int(value: Any) -> str:
            return "int"

        def of_str(value: Any) -> str:
            return "str"

        of_int.__name__ = of_str.__name__ = of_int.__qualname__ = of_str.__qualname__ = "_"
        for kind in kinds:
            told.register(kind, {int: of_int, str: of_str}[kind])
        return told

    assert of_value(dispatcher([int, str])) == of_value(dispatcher([str, int]))
    assert of_value(dispatcher([int, str])) != of_value(dispatcher([int]))


def test_what_is_of_no_module_is_ignored_by_what_has_it() -> None:
    space: dict[str, Any] = {}
    exec("def hidden(): return 1", space)
    space["hidden"].__module__ = None

    class Holder:
        run = staticmethod(space["hidden"])

    with pytest.raises(UndeterminedError, match=r"ignore=\('[^N]") as caught:
        of_value(Holder)
    assert "None" not in str(caught.value)


class Failing:
    """Of which all that is asked for is taken from what it has."""

    def __init__(self, size: int) -> None:
        self.__dict__["had"] = {"size": size}

    def __getattr__(self, name: str) -> Any:
        return self.had[name]

    def __call__(self) -> Any:
        return [self.size]


class Answering:
    """Which has whatever it is asked for."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_given: 3

    def __call__(self) -> Any:
        return [1]


@pytest.mark.parametrize("kind", [functools.partial(Failing, 1), Answering])
def test_objects_that_fail_when_they_are_asked(kind: Any, tmp_path: pathlib.Path) -> None:
    value = kind()
    assert of_value({value, 3}) == of_value({3, value})
    made = LFSStorage(tmp_path).cacheable("made")(value)
    assert len(made()) == 1
    assert of_value({Failing(1), 3}) != of_value({Failing(2), 3})


def test_sets_of_enumerations(monkeypatch: pytest.MonkeyPatch) -> None:
    """An enumeration is told a few times, however many of its members there are."""
    many = enum.Enum("many", [f"M{number}" for number in range(100)])  # type: ignore[misc]
    others = enum.Enum("many", [f"M{number}" for number in range(2)])  # type: ignore[misc]
    told = []
    plain = _classes.describe_class

    def describe(walk: Any, kind: type) -> list[str]:
        told.append(kind)
        return plain(walk, kind)

    monkeypatch.setattr(_classes, "describe_class", describe)
    members: Any = [*many, *others, Color.RED, Color.RED | Color.BLUE, 3, None]
    before = digest(set(members))
    assert len(told) < 15
    assert digest({*members[::-1]}) == before
    assert digest({*members} - {many["M5"]}) != before != digest({*members} - {others["M1"]})
    assert digest({Color.RED, many["M5"]}) != digest({Color.RED, many["M6"]})
