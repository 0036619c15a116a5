"""Train on handwritten digits with Horovod and PyTorch, each process on a shard of its own.

Usage: horovodrun --gloo -np 2 python examples/horovod_torch.py STORAGE_DIR
"""

from __future__ import annotations

import sys

import horovod.torch as hvd
import torch
from digits import digits
from torch.nn.functional import cross_entropy

import yogadl.distributed

BATCH_SIZE = 32
EPOCHS = 3


def main() -> None:
    hvd.init()
    stream = digits(sys.argv[1]).stream(
        shuffle=True, shuffle_seed=23, drop_shard_remainder=True, **yogadl.distributed.shard()
    )
    batches = stream.batches(BATCH_SIZE, drop_remainder=True)

    model = torch.nn.Linear(64, 10)
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.5), named_parameters=model.named_parameters()
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)

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
    weights = model.weight.detach().norm().item()
    print(
        f"rank {hvd.rank()} of {hvd.size()}: {steps} steps, loss {loss.item():.3f}, "
        f"{len(numbers)} records, sum {sum(numbers)}, weights {weights:.6f}"
    )


if __name__ == "__main__":
    main()
