"""Train a small model on handwritten digits with Keras, and go on exactly after a kill.

Start it again with the same directory after it was killed: it goes on from the last backup, and
sees exactly the batches that it would have seen. Keras may have any back end; with JAX or PyTorch,
no TensorFlow is needed. The digits are the 1,797 of scikit-learn, which need no download.
"""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

import keras
import xxhash
from digits import digits

import yogadl.keras

BATCH_SIZE = 128
BATCHES_PER_BACKUP = 5


def new_model() -> Any:
    keras.utils.set_random_seed(1)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(32, activation="relu"),
            # Without a seed, it would use PyTorch's own, which Keras does not save.
            layers.Dropout(0.1, seed=2),
            layers.Dense(10, activation="softmax"),
        ]
    )
    optimizer = keras.optimizers.Adam(0.01)
    model.compile(optimizer, loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model


# INCLUDE-START train
def image_and_label(batch: Any) -> Any:
    return batch["image"], batch["label"]


def train(directory: pathlib.Path, epochs: int, print_batches: bool) -> None:
    (directory / "storage").mkdir(parents=True, exist_ok=True)
    dataref = digits(str(directory / "storage"))
    dataset = yogadl.keras.PyDataset(
        dataref, BATCH_SIZE, shuffle=True, shuffle_seed=23, transform=image_and_label
    )
    backup = yogadl.keras.BackupAndRestore(
        directory / "backup", dataset, save_freq=BATCHES_PER_BACKUP, delete_checkpoint=False
    )
    callbacks = [backup, BatchPrinter(dataset)] if print_batches else [backup]
    model = new_model()
    # Whatever was saved is restored here.
    model.fit(dataset, epochs=epochs, shuffle=False, callbacks=callbacks, verbose=2)
    model.save(directory / "model.keras")
    # INCLUDE-END train
    everything = image_and_label(dataref.read(range(len(dataref))))
    _, accuracy = model.evaluate(*everything, batch_size=BATCH_SIZE, verbose=0)
    print(f"Accuracy on the {len(dataref):,} digits: {accuracy:.3f}")


class BatchPrinter(keras.callbacks.Callback):  # type: ignore[misc] # Keras is untyped
    """Prints which batches the model was trained on."""

    def __init__(self, dataset: yogadl.keras.PyDataset) -> None:
        super().__init__()
        self.dataset = dataset

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:  # noqa: ARG002
        # Keras counts from where the epoch was resumed; the place is that in the whole epoch.
        place = self.dataset.state_dict(batch)
        fingerprint = xxhash.xxh3_64_hexdigest(b"".join(x.tobytes() for x in self.dataset[batch]))
        number = place["offset"] // BATCH_SIZE
        print(f"Epoch {place['epoch'] + 1}, batch {number + 1}: {fingerprint}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path, help="for the digits and the backup")
    parser.add_argument("epochs", type=int, nargs="?", default=10)
    parser.add_argument("--print-batches", action="store_true", help="print a checksum of each")
    arguments = parser.parse_args()
    train(arguments.directory, arguments.epochs, arguments.print_batches)


if __name__ == "__main__":
    main()
