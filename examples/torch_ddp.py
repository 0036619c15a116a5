"""Train on handwritten digits with DistributedDataParallel, each process on a shard of its own.

Usage: torchrun --nproc-per-node 2 examples/torch_ddp.py STORAGE_DIR
"""

from __future__ import annotations

import sys
import time

import torch
import torch.distributed as dist
from digits import digits
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import yogadl.distributed

BATCH_SIZE = 32
EPOCHS = 3


def main() -> None:
    dist.init_process_group("gloo")
    stream = digits(sys.argv[1]).stream(
        shuffle=True, shuffle_seed=23, drop_shard_remainder=True, **yogadl.distributed.shard()
    )
    batches = stream.batches(BATCH_SIZE, drop_remainder=True)

    torch.manual_seed(dist.get_rank())
    linear = torch.nn.Linear(64, 10)
    model = DistributedDataParallel(linear)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)

    steps = 0
    numbers: set[int] = set()
    for _ in range(EPOCHS):
        for batch in batches:
            optimizer.zero_grad()
            logits = model(torch.from_numpy(batch["image"]))
            loss = cross_entropy(logits, torch.from_numpy(batch["label"]))
            loss.backward()
            optimizer.step()
            steps += 1
            numbers.update(batch["number"].tolist())
    place = yogadl.distributed.find()
    weights = linear.weight.detach().norm().item()
    print(
        f"rank {place.rank} of {place.size}: {steps} steps, loss {loss.item():.3f}, "
        f"{len(numbers)} records, sum {sum(numbers)}, weights {weights:.6f}"
    )
    dist.destroy_process_group()
    # PyTorch does not wait for its threads, of which one may still drop a Python object of the last
    # backward(). One that comes to it when Python has ended aborts the process.
    time.sleep(1)


if __name__ == "__main__":
    main()
