"""Profiles: parts that add up, reads that are seen, streams that stay as they were."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import json
import mmap
import pathlib
import pickle
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import yogadl
from yogadl import Stream
from yogadl.cache.reader import CacheFile
from yogadl.cache.record_reader import RecordReader
from yogadl.cache.writer import CacheWriter
from yogadl.dataref import IndexedDataRef, IndexedStream, LMDBDataRef
from yogadl.dataref._indexed import UnstoredDataRef
from yogadl.errors import ClosedError, InvalidArgumentError, UnsupportedTypeError
from yogadl.profile import Profile, Report
from yogadl.profile._timed import Loader, TimedReader
from yogadl.spec import TensorSpec

LEGACY = pathlib.Path(__file__).parent / "golden" / "yogadl-0.1.4" / "range.mdb"
PAGE = mmap.PAGESIZE


class Clock:
    """A clock that advances by what it is told."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowDisk(np.ndarray):
    """A file of which every page takes a second, by a clock."""

    clock: Clock
    touched: list[int]

    def take(self, places: Any, *rest: Any, **named: Any) -> Any:
        self.touched += places.tolist()
        self.clock.now += len(places)
        return super().take(places, *rest, **named)


def slow(stream: Any, clock: Clock) -> list[int]:
    """Makes the file of a profiled stream a slow disk; returns the offsets that are touched."""
    reader = stream.epochs.reader()
    file = reader._file = copy.copy(reader._file)
    file.array = file.array.view(SlowDisk)
    file.array.clock, file.array.touched = clock, []
    return file.array.touched


def pages_of(reader: Any, positions: list[int]) -> list[int]:
    found = []
    for offset, length, _ in reader.lookup(np.array(positions)).tolist():
        found += range(offset // PAGE * PAGE, offset + length, PAGE)
    return found


def parts_add_up(report: Report) -> None:
    assert report.wall == pytest.approx(report.model + report.waiting)
    assert report.waiting == pytest.approx(report.disk + report.decoding + report.other)
    assert report.disk + report.decoding + report.hidden == pytest.approx(
        report.disk_busy + report.decoding_busy
    )
    assert min(report.disk, report.decoding, report.other, report.hidden) >= 0


def write(path: pathlib.Path, spec: Any, records: Any) -> LMDBDataRef:
    with CacheWriter(path, spec) as writer:
        for record in records:
            writer.append(record)
        writer.commit()
    return LMDBDataRef(path)


@pytest.fixture
def images(tmp_path: pathlib.Path) -> Iterator[LMDBDataRef]:
    """A hundred records of more than a page, fixed in size."""
    spec = {"image": TensorSpec("uint8", (100, 100)), "label": TensorSpec("int64")}
    records = ({"image": np.full((100, 100), n, "u1"), "label": np.int64(n)} for n in range(100))
    with write(tmp_path / "images.mdb", spec, records) as dataref:
        yield dataref


@pytest.fixture
def texts(tmp_path: pathlib.Path) -> Iterator[LMDBDataRef]:
    """Byte strings from nothing to two pages."""
    values = (b"x" * (n * 100) for n in range(100))
    with write(tmp_path / "texts.mdb", TensorSpec("string"), values) as dataref:
        yield dataref


# Loops


def test_parts_of_a_loop(images: LMDBDataRef) -> None:
    profile = Profile()
    batches = profile.watch(profile.stream(images.stream()).batches(10))
    assert len(batches) == 10
    for _ in batches:
        time.sleep(0.02)
    report = profile.report()
    parts_add_up(report)
    assert report.model >= 0.2
    assert 0 < report.waiting < report.wall
    assert report.decoding_busy > 0
    assert (report.items, report.records, report.streams) == (10, 100, 1)
    assert report.records_per_second == pytest.approx(100 / report.wall)


def test_a_clock_of_its_own() -> None:
    clock = Clock()
    profile = Profile(clock)

    def source() -> Iterator[int]:
        clock.now += 100  # until the first
        for item in range(3):
            yield item
            clock.now += 10  # until the next, and after the last the end

    for _ in profile.watch(source()):
        clock.now += 1
    clock.now += 1000
    report = profile.report()
    assert (report.waiting, report.model, report.wall) == (130, 3, 133)
    assert (report.items, report.records, report.records_per_second) == (3, None, None)
    assert (report.other_name, report.largest) == ("other", "other")
    assert "Profile.stream" in report.advice


def test_iterations_add_up_and_breaks_end_the_measuring() -> None:
    clock = Clock()
    profile = Profile(clock)
    watched = profile.watch([1, 2, 3])
    for _ in range(2):
        for item in watched:
            clock.now += 1
            if item == 2:
                break
        clock.now += 50
    assert profile.report().items == 4
    assert profile.report().wall == 2  # of the first items; the second were left
    iterator = iter(watched)
    next(iterator)
    clock.now += 5
    assert profile.report().items == 5
    assert profile.report().model == 2
    next(iterator)
    assert profile.report().model == 7


def test_an_error_in_the_source_passes_and_ends_the_waiting() -> None:
    clock = Clock()
    profile = Profile(clock)

    def source() -> Iterator[int]:
        clock.now += 3
        raise RuntimeError("no")
        yield

    with pytest.raises(RuntimeError, match="no"):
        list(profile.watch(source()))
    clock.now += 9
    assert profile.report().wall == 3


def test_lengths() -> None:
    profile = Profile()
    assert len(profile.watch([1, 2])) == 2
    with pytest.raises(TypeError):
        len(profile.watch(iter([1])))
    assert list(profile.watch(iter([1]))) == [1]


def test_records_are_counted_where_that_is_certain(images: LMDBDataRef, texts: LMDBDataRef) -> None:
    profile = Profile()
    list(profile.watch(images.stream()))
    assert profile.report().records == 100
    list(profile.watch(texts.stream().batches(32)))
    assert profile.report().records == 200
    list(profile.watch([1]))
    assert profile.report().records is None
    assert profile.report().streams == 0
    # Then what the profiled streams read has to do.
    list(profile.stream(texts.stream()))
    assert profile.report().records == 100


def test_any_stream_can_be_watched() -> None:
    profile = Profile()
    assert list(profile.watch(Stream(lambda: iter("ab"), 2))) == ["a", "b"]
    assert profile.report().records == 2


# Streams


def test_profiled_streams_read_the_same(images: LMDBDataRef, texts: LMDBDataRef) -> None:
    for dataref in (images, texts):
        arguments: Any = {"shuffle": True, "shuffle_seed": 3, "start_offset": 7}
        plain, profiled = dataref.stream(**arguments), Profile().stream(dataref.stream(**arguments))
        assert profiled.spec == plain.spec
        assert len(profiled) == len(plain)
        for _ in range(2):
            np.testing.assert_equal(list(profiled), list(plain))
        np.testing.assert_equal(list(profiled.batches(9)), list(plain.batches(9)))


def test_the_place_is_shared(texts: LMDBDataRef) -> None:
    expected = texts.stream(shuffle=True, shuffle_seed=1)
    stream = texts.stream(shuffle=True, shuffle_seed=1)
    profiled = Profile().stream(stream)
    for each in (stream, profiled, profiled, stream):
        assert list(each) == list(expected)


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("taken", [0, 3, 10])
def test_the_place_is_that_of_the_stream(texts: LMDBDataRef, batched: bool, taken: int) -> None:
    order: dict[str, Any] = {"shuffle": True, "shuffle_seed": 1}
    bare, stream = texts.stream(**order), texts.stream(**order)
    profiled = Profile().stream(stream)
    assert profiled.state_dict() == stream.state_dict() == bare.state_dict()
    for reader in (profiled, stream, profiled):
        items = [iter(each.batches(10) if batched else each) for each in (bare, reader)]
        for _ in range(taken):
            bare_item, item = map(next, items)
            np.testing.assert_equal(item, bare_item)
            assert profiled.state_dict() == stream.state_dict() == bare.state_dict()
        resumed = texts.stream(state=profiled.state_dict())
        left = [*map(list, items)]
        np.testing.assert_equal(left[1], left[0])
        if left[0]:
            np.testing.assert_equal(list(resumed.batches(10) if batched else resumed), left[0])


def test_every_page_is_touched_before_it_is_read(images: LMDBDataRef, texts: LMDBDataRef) -> None:
    for dataref in (images, texts):
        clock = Clock()
        profile = Profile(clock)
        stream = profile.stream(dataref.stream(shuffle=True, shuffle_seed=1))
        touched = slow(stream, clock)
        order = stream.epochs.positions(0, 0, 100).tolist()
        assert len(list(profile.watch(stream.batches(10)))) == 10
        report = profile.report()
        assert touched == pages_of(dataref.reader, order)
        assert report.disk == report.disk_busy == report.wall == len(touched)
        assert report.hidden == 0
        assert report.largest == "disk"
        parts_add_up(report)


def test_work_during_the_model_is_hidden(images: LMDBDataRef) -> None:
    clock = Clock()
    profile = Profile(clock)
    stream = profile.stream(images.stream())
    touched = slow(stream, clock)
    ahead = iter(stream.batches(50))
    for _ in profile.watch(range(1)):
        next(ahead)
    report = profile.report()
    assert report.model == report.hidden == report.disk_busy == len(touched) > 0
    assert report.disk == report.waiting == 0
    assert "of which" in str(report)
    parts_add_up(report)


def test_threads_that_were_waited_for_at_once_share_the_time() -> None:
    clock = Clock()
    profile = Profile(clock)
    loader = profile._loader

    def source() -> Iterator[int]:
        with loader.decoding():
            # Ends while the other is still busy.
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        yield 1

    def work() -> None:
        with loader.decoding():
            clock.now += 8

    list(profile.watch(source()))
    report = profile.report()
    assert (report.decoding_busy, report.decoding, report.hidden) == (16, 8, 8)
    parts_add_up(report)


def test_many_threads() -> None:
    loader = Loader(time.perf_counter, lambda _now: 0.0)
    buffer = np.zeros(1000, "u1")

    def work() -> None:
        for _ in range(500):
            loader.touch(buffer, np.array([0, 10]), np.array([10, 10]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert loader.sums()[2] == 4000


def test_checked_records_and_empty_streams(tmp_path: pathlib.Path, texts: LMDBDataRef) -> None:
    profile = Profile()
    checked = LMDBDataRef(tmp_path / "texts.mdb", check_records=True)
    assert list(profile.stream(checked.stream())) == list(texts.stream())
    nothing = write(tmp_path / "empty.mdb", TensorSpec("int64"), [])
    assert list(profile.watch(profile.stream(nothing.stream()))) == []


def test_caches_of_the_first_release() -> None:
    dataref = LMDBDataRef(LEGACY)
    profile = Profile()
    stream = profile.stream(dataref.stream(shuffle=True, shuffle_seed=1))
    plain = dataref.stream(shuffle=True, shuffle_seed=1)
    assert list(profile.watch(stream)) == list(plain)
    assert next(iter(profile.watch(stream.batches(4)))).tolist() == list(plain)[:4]
    report = profile.report()
    assert report.disk_busy > 0
    assert report.decoding_busy > 0
    dataref.close()
    with pytest.raises(ClosedError):
        list(stream)


def test_closing(images: LMDBDataRef) -> None:
    stream = images.stream()
    profiled = Profile().stream(stream)
    stream.close()
    assert len(list(profiled)) == 100
    with pytest.raises(ClosedError):
        Profile().stream(stream)
    profiled.close()
    with pytest.raises(ClosedError):
        list(profiled)
    other = Profile().stream(images.stream())
    batches = iter(other.batches(10, read_ahead=0))
    images.close()
    with pytest.raises(ClosedError):
        list(other)
    with pytest.raises(ClosedError):
        list(batches)


def test_errors(images: LMDBDataRef) -> None:
    with pytest.raises(InvalidArgumentError, match=r"Profile\.watch"):
        Profile().stream(Stream(lambda: iter([]), 0))
    with pytest.raises(UnsupportedTypeError, match="pickled"):
        pickle.dumps(Profile().stream(images.stream()))


# All that a stream and its reader can do


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


def begun(stream: IndexedStream) -> IndexedStream:
    next(iter(stream))
    return stream


def pickled(stream: IndexedStream) -> str:
    try:
        pickle.dumps(stream)
    except UnsupportedTypeError as error:
        return str(error)
    return "a profiled stream cannot be pickled; pickle the one it is of"


STREAMS: dict[str, Callable[[IndexedStream], Any]] = {
    "batches": lambda stream: list(stream.batches(7)),
    "close": lambda stream: (stream.close(), stream.epochs.closed),
    "epochs": lambda stream: (stream.epochs.order, stream.epochs.place(), stream.epochs.window),
    "iterator_fn": lambda stream: list(stream.iterator_fn()),
    "length": lambda stream: stream.length,
    "map": lambda stream: (
        list(stream.map(repr)),
        next(iter(stream.map(repr))),
        stream.epochs.place(),
    ),
    "output_shapes": lambda stream: stream.output_shapes,
    "output_types": lambda stream: stream.output_types,
    "spec": lambda stream: stream.spec,
    "state_dict": lambda stream: (stream.state_dict(), begun(stream).state_dict()),
    "__iter__": lambda stream: [list(stream), list(stream)],
    "__len__": len,
    "__enter__": lambda stream: stream.__enter__() is stream,
    "__exit__": lambda stream: (stream.__exit__(None, None, None), stream.epochs.closed),
    "__reduce__": pickled,
}
"""What to compare of a stream: all that users have of it."""

DATAREFS: dict[str, Callable[[IndexedDataRef], Any]] = {
    "announcer": lambda dataref: dataref.announcer.before(dataref.reader, np.arange(2)),
    "close": lambda dataref: dataref.close(),
    "read": lambda dataref: dataref.read([2, 0]),
    "reader": lambda dataref: (dataref.reader.identity, dataref.reader.record_bytes),
    "select": lambda dataref: list(dataref.select([1, 0]).stream()),
    "spec": lambda dataref: dataref.spec,
    "split": lambda dataref: list(dataref.split({"a": 0.5, "b": 0.5}, 1)["a"].stream()),
    "stream": lambda dataref: list(dataref.stream(shuffle=True, shuffle_seed=2)),
    "__getitem__": lambda dataref: (dataref[1], list(dataref[:2].stream())),
    "__len__": len,
}
"""The same of a data set, all of which goes through its reader."""


@pytest.fixture(params=["texts", "images", "legacy", "view", "joined", "source"])
def any_dataref(request: pytest.FixtureRequest) -> IndexedDataRef:
    """One for each kind of reader that is profiled in its own way, and for views of such."""
    if request.param == "legacy":
        return LMDBDataRef(LEGACY)
    if request.param == "source":
        return yogadl.from_source({"x": np.arange(20)})
    if request.param in ("view", "joined"):
        texts: LMDBDataRef = request.getfixturevalue("texts")
        return texts[3:20] if request.param == "view" else yogadl.concat([texts, texts])
    dataref: LMDBDataRef = request.getfixturevalue(request.param)
    return dataref


def test_all_that_a_stream_does(any_dataref: IndexedDataRef) -> None:
    order: dict[str, Any] = {"shuffle": True, "shuffle_seed": 3, "start_offset": 2}
    # A method that is new is to be added to the table.
    assert public(any_dataref.stream()) | {"output_types", "output_shapes"} == {
        name for name in STREAMS if not name.startswith("_")
    }
    for name, use in STREAMS.items():
        if name.startswith("output_") and importlib.util.find_spec("tensorflow") is None:
            continue
        bare, profiled = any_dataref.stream(**order), any_dataref.stream(**order)
        np.testing.assert_equal(use(Profile().stream(profiled)), use(bare), err_msg=name)


def test_all_that_a_reader_does(any_dataref: IndexedDataRef) -> None:
    assert public(IndexedDataRef) == {name for name in DATAREFS if not name.startswith("_")}
    for name, use in DATAREFS.items():
        reader = Profile().stream(any_dataref.stream()).epochs.reader()
        found = use(UnstoredDataRef(reader))
        np.testing.assert_equal(found, use(UnstoredDataRef(copy.copy(any_dataref.reader))), name)


def test_readers_of_all_kinds_pass_everything_on() -> None:
    # What the interface has a default for would else be forgotten without an error.
    assert public(RecordReader) <= set(vars(TimedReader)) | {"spec"}


def test_a_profiled_stream_reads_ahead_as_the_bare_one_does(texts: LMDBDataRef) -> None:
    announced: list[list[int]] = []

    class Cold(RecordReader):
        """A reader of what is not in memory."""

        def __init__(self) -> None:
            self._base = copy.copy(texts.reader)
            self.spec = self._base.spec

        def __len__(self) -> int:
            return len(self._base)

        @property
        def identity(self) -> str:
            return self._base.identity

        @property
        def record_bytes(self) -> int:
            return self._base.record_bytes

        def read_columns(self, positions: Any, out: Any = None, spans: bool = False) -> Any:
            return self._base.read_columns(positions, out, spans)

        def read_record(self, position: int) -> Any:
            return self._base.read_record(position)

        def are_cached(self, positions: Any) -> bool:  # nothing is
            return False

        def announce(self, positions: Any) -> None:
            announced.append(positions.tolist())

        def close(self) -> None:
            self._base.close()

    dataref = UnstoredDataRef(Cold())
    order: dict[str, Any] = {"shuffle": True, "shuffle_seed": 1, "num_shards": 3}
    list(dataref.stream(**order))
    bare = announced.copy()
    announced.clear()
    list(Profile().stream(dataref.stream(**order)))
    assert announced == bare
    assert bare


# Reports


def test_reports_as_text_and_json() -> None:
    empty = Profile().report()
    assert "Nothing was watched" in str(empty)
    assert json.loads(empty.to_json())["records_per_second"] is None
    clock = Clock()
    profile = Profile(clock)
    for _ in profile.watch(Stream(lambda: iter(range(2000)), 2000)):
        clock.now += 0.001
    text = str(profile.report())
    assert "wall time                      2.000 s 100.0%\n  model" in text
    assert "2,000 items, 2,000 records, 1,000 records/s\n" in text
    assert text.endswith("The largest part is model: the loader is not the bottleneck.")
    assert "disk" not in text
    found = json.loads(profile.report().to_json())
    assert found["model"] == pytest.approx(2)
    assert (found["largest"], found["records"]) == ("model", 2000)


# TensorFlow


@pytest.mark.parametrize("batch_size", [None, 10])
def test_data_sets(images: LMDBDataRef, texts: LMDBDataRef, batch_size: int | None) -> None:
    pytest.importorskip("tensorflow")
    import yogadl.tensorflow

    for dataref in (images, texts):
        profile = Profile()
        stream = profile.stream(dataref.stream(shuffle=True, shuffle_seed=1))
        plain = dataref.stream(shuffle=True, shuffle_seed=1)
        expected = yogadl.tensorflow.make_tf_dataset(plain, batch_size=batch_size)
        dataset = yogadl.tensorflow.make_tf_dataset(stream, batch_size=batch_size)
        for found, wanted in zip(profile.watch(dataset), expected, strict=True):
            for value, other in zip(np_leaves(found), np_leaves(wanted), strict=True):
                assert value.tolist() == other.tolist()
        report = profile.report()
        parts_add_up(report)
        assert report.disk_busy > 0
        assert report.decoding_busy > 0
        assert report.other > 0
        assert report.other_name == "TensorFlow and other"
        assert report.records == 100


def np_leaves(element: Any) -> list[Any]:
    leaves = element.values() if isinstance(element, dict) else [element]
    return [np.asarray(leaf.numpy()) for leaf in leaves]


def test_tensorflow_reads_the_file_itself_and_the_pages_are_touched(images: LMDBDataRef) -> None:
    pytest.importorskip("tensorflow")
    from yogadl.tensorflow import make_tf_dataset

    clock = Clock()
    profile = Profile(clock)
    stream = profile.stream(images.stream(shuffle=True, shuffle_seed=1))
    touched = slow(stream, clock)
    assert isinstance(stream.epochs.reader(), CacheFile)
    order = stream.epochs.positions(0, 0, 100).tolist()
    assert len(list(profile.watch(make_tf_dataset(stream, batch_size=10)))) == 10
    assert touched == pages_of(images.reader, order)
    assert profile.report().disk_busy == len(touched)


def test_the_data_set_outlives_the_data_ref(texts: LMDBDataRef) -> None:
    pytest.importorskip("tensorflow")
    from yogadl.tensorflow import make_tf_dataset

    for dataref in (texts, LMDBDataRef(LEGACY)):
        dataset = make_tf_dataset(Profile().stream(dataref.stream()))
        dataref.close()
        assert len(list(dataset)) > 0


def test_data_sets_that_measure_themselves(images: LMDBDataRef) -> None:
    tf = pytest.importorskip("tensorflow")
    from yogadl.tensorflow import make_tf_dataset

    profile = Profile()
    with pytest.raises(InvalidArgumentError, match=r"tf\.data\.Dataset"):
        profile.watch_dataset(images.stream())
    dataset = make_tf_dataset(profile.stream(images.stream()), batch_size=10)
    watched = profile.watch_dataset(dataset)
    assert watched.element_spec == dataset.element_spec
    assert watched.cardinality() == 10
    assert profile.watch_dataset(dataset.repeat()).cardinality() == tf.data.INFINITE_CARDINALITY
    for _ in range(2):
        labels = []
        for batch in watched:
            labels += batch["label"].numpy().tolist()
            time.sleep(0.01)
        assert labels == list(range(100))
    report = profile.report()
    parts_add_up(report)
    # The time after the last batch of an iteration ends with the request for another.
    assert report.model >= 0.2
    assert (report.items, report.records) == (20, 200)

    @tf.function
    def count() -> Any:
        return watched.reduce(tf.constant(0), lambda total, _: total + 1)

    assert count() == 10
    assert profile.report().items == 30


def test_the_waiting_of_a_data_set_is_not_the_model() -> None:
    tf = pytest.importorskip("tensorflow")

    def wait(number: Any) -> Any:
        time.sleep(0.02)
        return number

    dataset = tf.data.Dataset.range(10).map(lambda n: tf.numpy_function(wait, [n], tf.int64))
    profile = Profile()
    assert len(list(profile.watch_dataset(dataset))) == 10
    report = profile.report()
    assert report.waiting > report.model
    assert report.largest == "TensorFlow and other"


def test_keras_fit(images: LMDBDataRef) -> None:
    tf = pytest.importorskip("tensorflow")
    keras = pytest.importorskip("keras")
    from yogadl.tensorflow import make_tf_dataset

    class Sleep(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(0.01)

    profile = Profile()
    stream = profile.stream(images.stream(shuffle=True, shuffle_seed=1))
    dataset = make_tf_dataset(stream, batch_size=10)
    dataset = dataset.map(lambda batch: (tf.cast(batch["image"], tf.float32), batch["label"]))
    model = keras.Sequential([keras.layers.Flatten(), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    watched = profile.watch_dataset(dataset)
    model.fit(watched, epochs=2, verbose=0, shuffle=False, callbacks=[Sleep()])
    report = profile.report()
    parts_add_up(report)
    assert report.items == 20
    assert report.model >= 0.18  # between batches
    assert report.waiting > 0


def test_several_watches_on_one_profile() -> None:
    clock = Clock()
    profile = Profile(clock)
    pairs = zip(profile.watch(range(3)), profile.watch(itertools.count()), strict=False)
    for _ in pairs:
        clock.now += 1
    assert profile.report().items == 6
