"""Train on handwritten digits with tf.distribute.

Usage: python examples/tf_distribute.py STORAGE_DIR
       TF_CONFIG='{"cluster": …, "task": …}' python examples/tf_distribute.py STORAGE_DIR

With TF_CONFIG, which lists the machines, it is one worker of a MultiWorkerMirroredStrategy, and
reads a shard of its own. Without, a MirroredStrategy trains on all devices of this process, which
take turns with the batches; here these are two that the processor is divided into.
"""

from __future__ import annotations

import os
import sys

import tensorflow as tf
from digits import digits

import yogadl.distributed
import yogadl.tensorflow

BATCH_SIZE = 32
EPOCHS = 3
LEARNING_RATE = 0.5


def choose_strategy() -> tf.distribute.Strategy:
    if "TF_CONFIG" in os.environ:
        return tf.distribute.MultiWorkerMirroredStrategy()
    (processor,) = tf.config.list_physical_devices("CPU")
    halves = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(processor, halves)
    return tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])


def main() -> None:
    strategy = choose_strategy()
    place = yogadl.distributed.find()
    devices = strategy.num_replicas_in_sync // place.size

    # INCLUDE-START stream
    stream = digits(sys.argv[1]).stream(
        shuffle=True, shuffle_seed=23, drop_shard_remainder=True, **yogadl.distributed.shard()
    )
    dataset = yogadl.tensorflow.make_tf_dataset(stream, batch_size=BATCH_SIZE, drop_remainder=True)
    distributed = strategy.distribute_datasets_from_function(lambda _context: dataset)
    # INCLUDE-END stream

    with strategy.scope():
        weights = tf.Variable(tf.zeros([64, 10]))
        bias = tf.Variable(tf.zeros([10]))

    def replica_step(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        with tf.GradientTape() as tape:
            logits = batch["image"] @ weights + bias
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(batch["label"], logits)
            loss = tf.reduce_mean(losses)
        context = tf.distribute.get_replica_context()
        gradients = context.all_reduce("mean", tape.gradient(loss, [weights, bias]))
        weights.assign_sub(LEARNING_RATE * gradients[0])
        bias.assign_sub(LEARNING_RATE * gradients[1])
        return loss

    @tf.function
    def step(batch: dict[str, tf.Tensor]) -> tf.Tensor:
        return strategy.reduce("MEAN", strategy.run(replica_step, args=(batch,)), axis=None)

    # Steps are counted, for all workers have to make the same number of them.
    steps = len(stream) // BATCH_SIZE // devices
    numbers: set[int] = set()
    for _ in range(EPOCHS):
        batches = iter(distributed)
        for _ in range(steps):
            batch = next(batches)
            loss = step(batch)
            for part in strategy.experimental_local_results(batch["number"]):
                numbers.update(part.numpy().tolist())
    print(
        f"rank {place.rank} of {place.size}: {steps * EPOCHS} steps, loss {float(loss):.3f}, "
        f"{len(numbers)} records, sum {sum(numbers)}, weights {float(tf.norm(weights)):.6f}"
    )


if __name__ == "__main__":
    main()
