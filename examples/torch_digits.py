"""Train a small model on handwritten digits with PyTorch, and go on exactly after a kill.

Start it again with the same directory after it was killed: it goes on from the last checkpoint, and
sees exactly the batches that it would have seen, with any number of workers. The digits are the
1,797 of scikit-learn, which need no download.
"""

from __future__ import annotations

import argparse
import os
import pathlib
from typing import Any

import torch
import xxhash
from digits import digits
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

import yogadl.torch

BATCH_SIZE = 128
STEPS_PER_CHECKPOINT = 5
ORDER = {"shuffle": True, "shuffle_seed": 23}


def new_model() -> Any:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))


# INCLUDE-START checkpoint
class Checkpoint:
    """The model, the optimizer, and how far training has got, saved together.

    Workers read ahead of the training, so the records that were trained on are counted here.
    """

    def __init__(self, path: pathlib.Path, dataref: Any, model: Any, optimizer: Any) -> None:
        self.path = path
        self.dataref = dataref
        self.parts = {"model": model, "optimizer": optimizer}
        self.step = 0
        self.records = 0

    def save(self) -> None:
        place = self.dataref.stream(**ORDER, start_offset=self.records).state_dict()
        saved = {name: part.state_dict() for name, part in self.parts.items()}
        saved |= {"step": self.step, "records": self.records, "place": place}
        # Renamed when it is whole, so that a kill leaves the old checkpoint or the new one.
        unfinished = self.path.with_name("unfinished.pt")
        torch.save(saved, unfinished)
        os.replace(unfinished, self.path)

    def restore(self) -> Any:
        """The stream to go on with; without a checkpoint, from the beginning."""
        if not self.path.exists():
            return self.dataref.stream(**ORDER)
        saved = torch.load(self.path, weights_only=True)
        for name, part in self.parts.items():
            part.load_state_dict(saved[name])
        self.step, self.records = saved["step"], saved["records"]
        print(f"Going on after step {self.step}.", flush=True)
        return self.dataref.stream(**ORDER, state=saved["place"])


# INCLUDE-END checkpoint


# INCLUDE-START train
def train(directory: pathlib.Path, steps: int, workers: int, print_batches: bool) -> None:
    (directory / "storage").mkdir(parents=True, exist_ok=True)
    dataref = digits(str(directory / "storage"))
    model = new_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    checkpoint = Checkpoint(directory / "checkpoint.pt", dataref, model, optimizer)
    dataset = yogadl.torch.IterableDataset(checkpoint.restore(), BATCH_SIZE)
    loader = DataLoader(dataset, batch_size=None, num_workers=workers)
    while checkpoint.step < steps:
        for batch in loader:  # one epoch, or what is left of it
            optimizer.zero_grad()
            cross_entropy(model(batch["image"]), batch["label"]).backward()
            optimizer.step()
            checkpoint.step += 1
            checkpoint.records += len(batch["label"])
            if print_batches:
                print(f"Step {checkpoint.step}: batch {fingerprint(batch)}", flush=True)
            if checkpoint.step % STEPS_PER_CHECKPOINT == 0:
                checkpoint.save()
            if checkpoint.step == steps:
                break
    # INCLUDE-END train
    everything = yogadl.torch.MapDataset(dataref)[list(range(len(dataref)))]
    found = model(everything["image"]).argmax(1)
    accuracy = (found == everything["label"]).float().mean().item()
    print(f"Accuracy on the {len(dataref):,} digits: {accuracy:.3f}")


def fingerprint(batch: Any) -> str:
    return xxhash.xxh3_64_hexdigest(b"".join(x.numpy().tobytes() for x in batch.values()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path, help="for the digits and the checkpoint")
    parser.add_argument("steps", type=int, nargs="?", default=150)
    parser.add_argument("--workers", type=int, default=0, help="processes that read")
    parser.add_argument("--print-batches", action="store_true", help="print a checksum of each")
    arguments = parser.parse_args()
    train(arguments.directory, arguments.steps, arguments.workers, arguments.print_batches)


if __name__ == "__main__":
    main()
