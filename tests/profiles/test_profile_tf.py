"""Profiles of data sets of TensorFlow, and of training with Keras."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow", reason="needs TensorFlow")

import tensorflow as tf
from profile_rig import LEGACY, Clock, pages_of, parts_add_up, slow

from yogadl.cache.reader import CacheFile
from yogadl.dataref import LMDBDataRef
from yogadl.errors import InvalidArgumentError
from yogadl.profile import Profile
from yogadl.tensorflow import make_tf_dataset


@pytest.mark.parametrize("batch_size", [None, 10])
def test_data_sets(images: LMDBDataRef, texts: LMDBDataRef, batch_size: int | None) -> None:
    for dataref in (images, texts):
        profile = Profile()
        stream = profile.stream(dataref.stream(shuffle=True, shuffle_seed=1))
        plain = dataref.stream(shuffle=True, shuffle_seed=1)
        expected = make_tf_dataset(plain, batch_size=batch_size)
        dataset = make_tf_dataset(stream, batch_size=batch_size)
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
    for dataref in (texts, LMDBDataRef(LEGACY)):
        dataset = make_tf_dataset(Profile().stream(dataref.stream()))
        dataref.close()
        assert len(list(dataset)) > 0


def test_data_sets_that_measure_themselves(images: LMDBDataRef) -> None:
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
            time.sleep(0.01)  # the model
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
    def wait(number: Any) -> Any:
        time.sleep(0.02)  # what is waited for
        return number

    dataset = tf.data.Dataset.range(10).map(lambda n: tf.numpy_function(wait, [n], tf.int64))
    profile = Profile()
    assert len(list(profile.watch_dataset(dataset))) == 10
    report = profile.report()
    assert report.waiting > report.model
    assert report.largest == "TensorFlow and other"


def test_keras_fit(images: LMDBDataRef) -> None:
    keras = pytest.importorskip("keras")

    class Sleep(keras.callbacks.Callback):  # type: ignore[name-defined,misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            time.sleep(0.01)  # the model

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
