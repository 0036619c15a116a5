"""Train a small model on handwritten digits with plain JAX, and go on exactly after a kill.

Usage: python examples/jax_digits.py CHECKPOINT_DIR [STEPS]

Start it again with the same directory after it was killed: it goes on from the last checkpoint, and
sees exactly the batches that it would have seen. The digits are the 1,797 of scikit-learn, which
need no download.
"""

from __future__ import annotations

import json
import os
import pathlib
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import sklearn.datasets
import xxhash

import yogadl.jax
import yogadl.storage

BATCH_SIZE = 64
STEPS_PER_CHECKPOINT = 5
LEARNING_RATE = 0.2


# INCLUDE-START cache
def digits(directory: pathlib.Path) -> Any:
    storage = yogadl.storage.LFSStorage(directory / "storage")

    @storage.cacheable("digits", "1.0")
    def make_records() -> Any:
        data = sklearn.datasets.load_digits()
        images = (data.data / 16).astype("float32")
        return [
            {"image": image, "label": label}
            for image, label in zip(images, data.target.astype("int32"), strict=True)
        ]

    return make_records()


# INCLUDE-END cache


def new_weights() -> Any:
    keys = jax.random.split(jax.random.key(1))
    return {
        "hidden": jax.random.normal(keys[0], (64, 32)) * 0.1,
        "hidden_bias": jnp.zeros(32),
        "output": jax.random.normal(keys[1], (32, 10)) * 0.1,
        "output_bias": jnp.zeros(10),
    }


def scores(weights: Any, images: Any) -> Any:
    hidden = jax.nn.relu(images @ weights["hidden"] + weights["hidden_bias"])
    return hidden @ weights["output"] + weights["output_bias"]


def loss_of(weights: Any, batch: Any) -> Any:
    logs = jax.nn.log_softmax(scores(weights, batch["image"]))
    return -jnp.mean(jnp.take_along_axis(logs, batch["label"][:, None], axis=1))


@jax.jit
def update(weights: Any, batch: Any) -> Any:
    gradients = jax.grad(loss_of)(weights, batch)
    return jax.tree.map(lambda w, g: w - LEARNING_RATE * g, weights, gradients)


# INCLUDE-START checkpoint
def save(path: pathlib.Path, step: int, weights: Any, batches: Any) -> None:
    place = json.dumps({"step": step, "state": batches.state_dict()})
    # Renamed when it is whole, so that a kill leaves the old checkpoint or the new one.
    unfinished = path.with_name("unfinished.npz")
    np.savez(unfinished, place=place, **weights)
    os.replace(unfinished, path)


def restore(path: pathlib.Path, batches: Any) -> tuple[int, Any]:
    if not path.exists():
        return 0, new_weights()
    with np.load(path) as checkpoint:
        weights = {name: checkpoint[name] for name in checkpoint.files if name != "place"}
        place = json.loads(str(checkpoint["place"]))
    batches.load_state_dict(place["state"])
    print(f"Going on after step {place['step']}.", flush=True)
    return place["step"], weights


# INCLUDE-END checkpoint


# INCLUDE-START train
def train(directory: pathlib.Path, steps: int) -> None:
    dataref = digits(directory)
    stream = dataref.stream(shuffle=True, shuffle_seed=23)
    batches = yogadl.jax.Batches(stream, BATCH_SIZE)
    path = directory / "checkpoint.npz"
    step, weights = restore(path, batches)
    while step < steps:
        for batch in batches:  # one epoch, or what is left of it
            weights = update(weights, batch)
            step += 1
            print(f"Step {step}: batch {fingerprint(batch)}", flush=True)
            if step % STEPS_PER_CHECKPOINT == 0:
                save(path, step, weights, batches)
            if step == steps:
                break
    # INCLUDE-END train
    everything = dataref.read(range(len(dataref)))
    found = jnp.argmax(scores(weights, everything["image"]), axis=1)
    accuracy = float(jnp.mean(found == everything["label"]))
    print(f"Accuracy on the {len(dataref):,} digits: {accuracy:.3f}")


def fingerprint(batch: Any) -> str:
    return xxhash.xxh3_64_hexdigest(b"".join(np.asarray(x).tobytes() for x in batch.values()))


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    train(directory, int(sys.argv[2]) if len(sys.argv) > 2 else 120)


if __name__ == "__main__":
    main()
