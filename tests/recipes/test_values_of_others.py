"""Values of other libraries, where these are there."""

from __future__ import annotations

import copy
import functools
import importlib
import pathlib
import sys
import types
from typing import Any

import numpy as np
import pytest

from yogadl.errors import UndeterminedError
from yogadl.recipes import recipe_of


def make(value: Any = None) -> Any:
    return value


def digest(value: Any) -> str:
    return recipe_of(make, (value,)).digest


def check(values: list[Any]) -> None:
    """All of them differ, and their copies do not."""
    told = [digest(value) for value in values]
    same = [
        (values[told.index(one)], values[at]) for at, one in enumerate(told) if one in told[:at]
    ]
    assert same == []
    assert told == [digest(copy.deepcopy(value)) for value in values]


def test_torch() -> None:
    torch = pytest.importorskip("torch")
    linear = torch.nn.Linear(2, 1)
    other = copy.deepcopy(linear)
    with torch.no_grad():
        other.bias += 1
    values = [torch.zeros(3), torch.zeros(4), torch.zeros(3, 1), -torch.zeros(3), torch.ones(3)]
    values += [torch.zeros(3, dtype=torch.bfloat16), torch.zeros(3, dtype=torch.int64)]
    values += [torch.zeros(0), torch.tensor(1), torch.tensor([1]), torch.float32, torch.float16]
    values += [torch.device("cpu"), torch.Size([1]), torch.nn.Parameter(torch.zeros(3))]
    values += [linear, other, torch.nn.ReLU(), torch.Generator().manual_seed(1)]
    values = [it for it in values if not isinstance(it, torch.Generator)]
    check(values)
    one, two = (torch.Generator().manual_seed(seed) for seed in (1, 2))
    assert digest(one) != digest(two)
    assert digest(one) == digest(torch.Generator().manual_seed(1))
    assert digest(torch.arange(6).reshape(2, 3).T) == digest(torch.tensor([[0, 3], [1, 4], [2, 5]]))
    with pytest.raises(UndeterminedError, match="sparse"):
        digest(torch.zeros(3).to_sparse())


def test_hooks_of_torch() -> None:
    """It numbers them by how many there were in the process."""
    torch = pytest.importorskip("torch")

    def hooked(*hooks: Any) -> Any:
        made = torch.nn.ReLU()
        for hook in hooks:
            made.register_forward_hook(hook, always_call=True)
        return made

    def one(_module: Any, _given: Any, made: Any) -> Any:
        return made * 2

    def other(_module: Any, _given: Any, made: Any) -> Any:
        return made * 3

    told = [digest(it) for it in (hooked(), hooked(one), hooked(other), hooked(one, other))]
    assert len(set(told)) == len(told)
    assert [digest(hooked(one)), digest(hooked(one, other))] == [told[1], told[3]]
    assert digest(hooked(other, one)) != told[3]


def test_gradients_of_torch() -> None:
    torch = pytest.importorskip("torch")

    def leaf(grad: float = 0, hook: Any = None, later: Any = None) -> Any:
        made = torch.zeros(1, requires_grad=True)
        if grad:
            made.grad = torch.full((1,), float(grad))
        if hook is not None:
            made.register_hook(hook)
        if later is not None:
            made.register_post_accumulate_grad_hook(later)
        return made

    def one(grad: Any) -> Any:
        return grad * 2

    def other(grad: Any) -> Any:
        return grad * 3

    values = [leaf(), leaf(1), leaf(2), leaf(hook=one), leaf(hook=other), leaf(later=one)]
    told = [digest(value) for value in values]
    assert len(set(told)) == len(told)
    assert digest(leaf(hook=one)) == told[3]
    with pytest.raises(UndeterminedError, match=r"detach\(\)"):
        digest(leaf() * 2)


def test_views_of_torch() -> None:
    torch = pytest.importorskip("torch")
    whole = torch.zeros(4)
    views = [whole[::2], whole[:2], whole[1:3], whole[:2].clone(), whole.view(torch.int32)[:2]]
    told = [digest([view, whole]) for view in views] + [digest([whole, view]) for view in views]
    assert len(set(told)) == len(told)
    array = np.zeros(4, "f4")
    tensors = [torch.from_numpy(array), torch.from_numpy(array.copy())]
    assert len({digest([array, tensor]) for tensor in tensors}) == 2
    assert len({digest([tensors[0], it]) for it in (tensors[0].numpy(), array.copy())}) == 2


def test_pandas() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    values = [frame, frame[["b", "a"]], frame.rename(columns={"a": "c"}), frame.iloc[::-1]]
    values += [frame.astype({"a": "float64"}), frame["a"], frame["b"], frame["a"].rename("z")]
    values += [frame.astype({"b": "category"}), frame["a"].astype("Int64"), frame.index]
    values += [frame.replace("y", "z"), pandas.Index([1, 2]), pandas.Timestamp("2020")]
    values += [pandas.Timestamp("2020", tz="UTC"), pandas.Timedelta(1), pandas.NaT, pandas.NA]
    values += [pandas.Series(["x", "y"], dtype=pandas.CategoricalDtype(["y", "x"]))]
    values += [frame.set_index("a"), pandas.MultiIndex.from_tuples([(1, 2)])]
    for length in (pandas.Timestamp("2020"), pandas.Timedelta(days=1)):
        values += [length.as_unit("s"), length.as_unit("ms")]
    check(values)


def test_arrow() -> None:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.table({"a": [1, 2, 3], "b": ["x", "y", None]})
    values = [table, table.select(["a"]), table[1:], table.replace_schema_metadata({"k": "v"})]
    values += [table["a"], arrow.array([1, 2]), arrow.array([1, None]), arrow.int64()]
    values += [arrow.array([1, 2], "int32"), table.schema, arrow.scalar(1), arrow.scalar("1")]
    for more in ("a", "b"):
        field = arrow.field("a", arrow.int64(), metadata={"k": more})
        long = arrow.schema([field], metadata={"k": "x" * 500 + more})
        values += [field, arrow.struct([field]), long, arrow.list_(field)]
    told = [digest(value) for value in values]
    assert len(set(told)) == len(told)
    assert digest(table[1:2]) == digest(arrow.table({"a": [2], "b": ["y"]}))
    assert digest(arrow.concat_tables([table[:1], table[1:]])) == digest(table)


def test_polars() -> None:
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": [1, 2], "b": ["x", "y"]})
    check([frame, frame[:1], frame["a"], frame["a"].cast(polars.Float64), frame.select("b", "a")])


def test_jax() -> None:
    jax = pytest.importorskip("jax")

    @jax.jit
    def one(x: Any) -> Any:
        return x + 1

    @jax.jit
    def other(x: Any) -> Any:
        return x + 2

    values = [jax.numpy.zeros(3), jax.numpy.ones(3), jax.numpy.zeros(3, "int32"), np.zeros(3)]
    told = [*map(digest, values), digest(one), digest(other)]
    assert len(set(told)) == len(told)
    assert digest(jax.numpy.zeros(3)) == told[0]


def test_derivatives_and_keys_of_jax() -> None:
    jax = pytest.importorskip("jax")

    def with_rules(by: float) -> list[Any]:
        @jax.custom_vjp
        def backwards(x: Any) -> Any:
            return x

        backwards.defvjp(lambda x: (x, None), lambda _kept, grad: (grad * by,))

        @jax.custom_jvp
        def forwards(x: Any) -> Any:
            return x

        forwards.defjvp(lambda given, tangents: (given[0], tangents[0] * by))
        return [backwards, forwards]

    keys = [jax.random.key(0), jax.random.key(1), jax.random.key(0, impl="rbg")]
    values = [*with_rules(1), *with_rules(2), *keys, jax.random.key_data(keys[0])]
    told = [*map(digest, values)]
    assert len(set(told)) == len(told)
    assert [*map(digest, with_rules(1))] == told[:2]


def test_what_jax_compiles_and_how() -> None:
    jax = pytest.importorskip("jax")

    def scaled(x: Any, by: Any) -> Any:
        return x * (by if isinstance(by, int) else 100)

    options: list[dict[str, Any]] = [{}, {"static_argnames": ("by",)}, {"static_argnums": (0,)}]
    told = [digest(jax.jit(scaled, **it)) for it in options]
    assert len(set(told)) == 3
    assert told == [digest(jax.jit(scaled, **it)) for it in options]


def test_tensorflow() -> None:
    tensorflow = pytest.importorskip("tensorflow")

    @tensorflow.function
    def one(x: Any) -> Any:
        return x + 1

    @tensorflow.function
    def other(x: Any) -> Any:
        return x + 2

    values = [tensorflow.zeros(3), tensorflow.ones(3), tensorflow.zeros(3, "int32")]
    values += [tensorflow.constant("a"), tensorflow.constant("b"), tensorflow.float32]
    values += [tensorflow.ragged.constant([[1], []]), tensorflow.ragged.constant([[], [1]])]
    values += [tensorflow.TensorSpec((1,), "int32"), tensorflow.TensorSpec((2,), "int32")]
    told = [*map(digest, values), digest(one), digest(other)]
    assert len(set(told)) == len(told)
    assert digest(tensorflow.zeros(3)) == told[0]
    two = [tensorflow.Variable(1.0), tensorflow.Variable(1.0)]
    fixed = tensorflow.Variable(1.0, trainable=False)
    assert digest(two[0]) == digest(two[1])
    assert len({digest(it) for it in ([two[0]] * 2, two, [two[0], fixed], two[0])}) == 4
    with pytest.raises(UndeterminedError, match=r"tf\.data\.Dataset"):
        digest(tensorflow.data.Dataset.range(3))
    table = tensorflow.lookup.KeyValueTensorInitializer(["a"], [1])
    with pytest.raises(UndeterminedError, match="stands for something"):
        digest(tensorflow.lookup.StaticHashTable(table, -1))


def test_what_tensorflow_leaves_on_functions_does_not_count() -> None:
    tensorflow = pytest.importorskip("tensorflow")

    def plain(x: Any) -> Any:
        return x.numpy() * 3

    def untouched(x: Any) -> Any:
        return x + 1

    made = tensorflow.function(untouched)

    def use() -> Any:
        counted = tensorflow.data.Dataset.range(2)
        called = counted.map(lambda x: tensorflow.py_function(plain, [x], "int64"))
        given = counted.map(lambda x: tensorflow.numpy_function(untouched, [x], "int64"))
        return [list(it.as_numpy_iterator()) for it in (called, given, counted.map(made))]

    before = recipe_of(use).digest
    assert use() == [[0, 3], [1, 2], [1, 2]]
    assert recipe_of(use).digest == before
    plain.mine = 1  # type: ignore[attr-defined]
    assert recipe_of(use).digest != before


def test_keras() -> None:
    """What a layer tracks, it also knows by where that lies in memory."""
    keras = pytest.importorskip("keras")

    def layers(by: float) -> Any:
        made = keras.Sequential([keras.layers.Rescaling(by)])
        made.name = made.layers[0].name = "same"
        return made

    assert digest(layers(2.0)) == digest(layers(2.0)) != digest(layers(3.0))


def test_attrs() -> None:
    """It writes methods with numbers that are of the process."""
    attrs = pytest.importorskip("attrs")

    @attrs.frozen
    class Options:
        size: int = 1
        name: str = attrs.field(default="a", converter=str)

    @attrs.frozen
    class Others:
        size: int = 2
        name: str = attrs.field(default="a", converter=str)

    Others.__name__, Others.__qualname__ = Options.__name__, Options.__qualname__
    assert len({digest(it) for it in (Options(), Options(3), Options(), Options, Others)}) == 4
    assert not [it for it in recipe_of(make, (Options(),)).items if "__hash__" in it.name]


def told_twice(folder: pathlib.Path, name: str, text: str) -> str:
    """The recipe of what a module makes, which its use does not change."""
    (folder / f"{name}.py").write_text(text)
    importlib.invalidate_caches()
    made = importlib.import_module(name).make
    before = recipe_of(made).digest
    made()
    assert recipe_of(made).digest == before
    return before


RESOLVED = """
from __future__ import annotations

import attrs
from typing import List, Literal, Optional

@attrs.define
class Base:
    first: Optional[Item] = None
    more: List[Item] = attrs.field(factory=list)
    state: Literal["on", "off"] = "on"

@attrs.define
class Order(Base):
    items: list[Item] = attrs.field(factory=list)
    above: Order | None = None
    size: int = attrs.field(default=3, converter=int)

@attrs.define
class Item:
    x: int = 1

def nested(other, Kind):
    Choice = Literal[Kind.__name__]

    @attrs.define
    class Inner:
        x: int = other

    @attrs.define
    class Outer:
        inner: Inner
        others: Choice | None = None
        kind: list[Kind] | None = None

    return attrs.resolve_types(Outer, globals(), locals())

Outer = nested(1, int)

def make():
    attrs.resolve_types(Order)
    return str((Order(), Outer))
"""


def test_attrs_finds_out_types(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it was asked for them is no change; those of which only it knows what they are count."""
    pytest.importorskip("attrs")
    monkeypatch.syspath_prepend(tmp_path)
    told = functools.partial(told_twice, tmp_path)
    edits = (("x: int = 1", "x: int = 2"), ("list[Item]", "set[Item]"), ("(1, int)", "(2, int)"))
    edits += (("(1, int)", "(1, float)"), ("[Kind.__name__]", "['a']"), ('"off"]', '"no"]'))
    texts = [RESOLVED, *(RESOLVED.replace(*it) for it in edits)]
    found = [told(f"attrs_{number}", text) for number, text in enumerate(texts)]
    assert len(set(found)) == len(texts)
    assert told("attrs_again", RESOLVED) == found[0]


def test_attrs_says_that_its_own_functions_are_of_the_last_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From Python 3.13 on, where it also puts them into each class."""
    attrs = pytest.importorskip("attrs")
    evolve = attrs.evolve

    @attrs.define
    class Item:
        size: int = 1

    def make() -> Any:
        return evolve(Item(), size=2), attrs.evolve(Item(), size=3)

    monkeypatch.setattr(evolve, "__module__", "attr._make")
    monkeypatch.setattr(evolve, "__qualname__", "evolve")
    before = recipe_of(make).digest
    monkeypatch.setattr(evolve, "__module__", __name__)
    monkeypatch.setattr(evolve, "__qualname__", "others.<locals>.Other.evolve")
    assert recipe_of(make).digest == before
    if "__replace__" in vars(Item):
        del Item.__replace__
    else:
        Item.__replace__ = evolve
    assert recipe_of(make).digest == before
    Item.__replace__ = lambda item: item
    assert recipe_of(make).digest != before


def test_intervals_and_periods_of_pandas() -> None:
    """By themselves, and in what has many."""
    pandas: Any = pytest.importorskip("pandas")
    given = (
        pandas.Interval(0, 1),
        pandas.Interval(0, 2),
        pandas.Interval(0, 1, "left"),
        pandas.Interval(0.0, 1.0),
        pandas.Interval(pandas.Timestamp("2020"), pandas.Timestamp("2021")),
        pandas.Period("2020-01", "M"),
        pandas.Period("2020-02", "M"),
        pandas.Period("2020-01", "D"),
        pandas.Period("2020", "Y-MAR"),
        pandas.Period("2020", "Y-APR"),
        pandas.interval_range(0, 2),
        pandas.interval_range(0, 3),
        pandas.interval_range(0, 2, closed="left"),
        pandas.period_range("2020", periods=2, freq="M"),
        pandas.period_range("2020", periods=2, freq="D"),
        pandas.cut([1, 2, 3], 2),
        pandas.cut([1, 2, 3], 2, right=False),
    )
    digests = [digest(value) for value in given]
    assert len(set(digests)) == len(given)
    again = digest(pandas.cut([1, 2, 3], 2))
    assert again == digests[-2]


def test_pydantic() -> None:
    pydantic: Any = pytest.importorskip("pydantic")

    class Inner(pydantic.BaseModel):
        flip: bool = True

    def model(default: int, more: int, is_validated: bool = True) -> Any:
        class Options(pydantic.BaseModel):
            size: int = pydantic.Field(default, ge=0)
            inner: Inner = Inner()

            def added(cls: Any, value: int) -> int:  # noqa: N805 # as pydantic has it
                return value + more

            if is_validated:
                added = pydantic.field_validator("size")(classmethod(added))

        return Options

    models = [model(1, 2), model(2, 2), model(1, 3), model(1, 2, False)]
    told = [digest(it) for it in (*models, models[0](size=5), models[0](size=6))]
    assert len(set(told)) == len(told)
    assert digest(model(1, 2)) == told[0]
    assert digest(models[0](inner={"flip": False})) != digest(models[0]())

    def dataclass(**config: Any) -> Any:
        @pydantic.dataclasses.dataclass(config=pydantic.ConfigDict(**config))
        class Row:
            name: str

        return Row

    classes = [dataclass(), dataclass(str_to_lower=True), dataclass(str_to_upper=True)]
    assert len({digest(it) for it in classes}) == 3
    assert digest(dataclass(str_to_upper=True)) == digest(classes[2])


FORWARD = """
from __future__ import annotations

import dataclasses
from typing import Annotated, Generic, Optional, TypeVar

import pydantic

T = TypeVar("T")

class Base(pydantic.BaseModel):
    first: Optional[Item] = pydantic.Field(None, description="first")
    above: Optional[Base] = None

class Model(Base):
    items: Annotated[list[Item], pydantic.Field(min_length=1)]

@pydantic.dataclasses.dataclass
class Row:
    items: list[Item]

class Of(pydantic.BaseModel, Generic[T]):
    item: Item
    more: T

class Item(pydantic.BaseModel):
    x: int = 1

def make():
    rows = Model(items=[{}]), Row(items=[{}]), Of(item={}, more=3), Of[int](item={}, more=3)
    return str(rows)
"""


def test_pydantic_names_what_is_not_there_yet(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What pydantic adds to models when they are used first is not told as a change."""
    pytest.importorskip("pydantic")
    monkeypatch.syspath_prepend(tmp_path)
    told = functools.partial(told_twice, tmp_path)
    assert told("models_one", FORWARD) == told("models_two", FORWARD)
    others = [FORWARD.replace("x: int = 1", "x: int = 2"), FORWARD.replace('="first"', "='1st'")]
    assert len({told(f"models_{n}", it) for n, it in enumerate((FORWARD, *others))}) == 3


def test_pillow() -> None:
    image = pytest.importorskip("PIL.Image")
    clear = image.new("L", (2, 2))
    clear.info["transparency"] = 0
    values = [image.new("RGB", (2, 2)), image.new("L", (2, 2)), image.new("RGB", (2, 2), "red")]
    check([*values, clear])
    named, taken, others = (image.new("L", (2, 2)) for _ in range(3))
    named.label = 3
    taken.getexif()[271] = "one"
    others.getexif()[271] = "other"
    told = [digest(it) for it in (image.new("L", (2, 2)), named, taken, others)]
    assert len(set(told)) == len(told)


def test_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    special = pytest.importorskip("scipy.special")
    check([np.exp2, special.exp2, special.expit])
    before = digest(special.expit)
    # That others have imported it, too, says nothing.
    for name, place in (("A_users", __file__), ("A_librarys", np.__file__)):
        other: Any = types.ModuleType(name)
        other.__file__, other.expit = place, special.expit
        monkeypatch.setitem(sys.modules, name, other)
    assert digest(special.expit) == before


def test_wrapt() -> None:
    """What it makes says that it is the function that it wraps."""
    wrapt = pytest.importorskip("wrapt")

    @wrapt.decorator
    def plus(wrapped: Any, _instance: Any, given: Any, named: Any) -> Any:
        return wrapped(*given, **named) + 1

    with pytest.raises(UndeterminedError, match="says that it is something else"):
        digest(plus(make))


def test_functions_of_classes_that_cython_made() -> None:
    h5py = pytest.importorskip("h5py")

    def read(path: str) -> Any:
        with h5py.File(path) as file:
            return file["x"][...]

    assert recipe_of(read, ("a",)).digest == recipe_of(read, ("a",)).digest
