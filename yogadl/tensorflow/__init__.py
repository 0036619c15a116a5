"""Streams as ``tf.data.Dataset``, and back. Importing this package imports TensorFlow.

TensorFlow is the sequential layer only: a stream has decided the order before the first record is
read, and the pipelines made here follow it.
"""

from yogadl.tensorflow._dataset import make_tf_dataset
from yogadl.tensorflow._submit import read_tf_dataset, serialize_tf_dataset_to_lmdb

__all__ = ["make_tf_dataset", "read_tf_dataset", "serialize_tf_dataset_to_lmdb"]
