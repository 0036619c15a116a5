"""Train on handwritten digits with Horovod and TensorFlow, each process on a shard of its own.

Usage: horovodrun --gloo -np 2 python examples/horovod_tensorflow.py STORAGE_DIR

Keras 3 and Horovod do not work together: Horovod's optimizer leaves gradients as they are, and does
not say so. So the gradients are averaged by hand here.
"""

from __future__ import annotations

import sys

import horovod.tensorflow as hvd
import tensorflow as tf
from digits import digits

import yogadl.distributed
import yogadl.tensorflow

BATCH_SIZE = 32
EPOCHS = 3
LEARNING_RATE = 0.5


def main() -> None:
    hvd.init()
    # INCLUDE-START stream
    stream = digits(sys.argv[1]).stream(
        shuffle=True, shuffle_seed=23, drop_shard_remainder=True, **yogadl.distributed.shard()
    )
    dataset = yogadl.tensorflow.make_tf_dataset(stream, batch_size=BATCH_SIZE, drop_remainder=True)
    # INCLUDE-END stream

    weights = tf.Variable(tf.zeros([64, 10]))
    bias = tf.Variable(tf.zeros([10]))
    for variable in (weights, bias):
        variable.assign(hvd.broadcast(variable.value(), 0))

    # INCLUDE-START step
    @tf.function
    def step(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = batch["image"] @ weights + bias
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], logits)
            loss = tf.reduce_mean(losses)
        for variable, gradient in zip(
            (weights, bias), tape.gradient(loss, (weights, bias)), strict=True
        ):
            variable.assign_sub(LEARNING_RATE * hvd.allreduce(gradient, op=hvd.Average))
        return loss

    # INCLUDE-END step

    steps = 0
    numbers: set[int] = set()
    for _ in range(EPOCHS):
        for batch in dataset:
            loss = step(batch)
            steps += 1
            numbers.update(batch["number"].numpy().tolist())
    print(
        f"rank {hvd.rank()} of {hvd.size()}: {steps} steps, loss {float(loss):.3f}, "
        f"{len(numbers)} records, sum {sum(numbers)}, weights {float(tf.norm(weights)):.6f}"
    )


if __name__ == "__main__":
    main()
