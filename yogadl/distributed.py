"""Which of how many processes this is, in whatever way the training is distributed::

    stream = dataref.stream(shuffle=True, shuffle_seed=23, **yogadl.distributed.shard())

Imports no framework: one that was not imported does not distribute anything.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypedDict

from yogadl.completion import public_names
from yogadl.errors import RankError


class Place(NamedTuple):
    """The rank of this process, ``0 <= rank < size``, and the number of processes."""

    rank: int
    size: int


class ShardArguments(TypedDict):
    """Arguments for ``DataRef.stream``."""

    shard_rank: int
    num_shards: int


def shard() -> ShardArguments:
    """The arguments of ``DataRef.stream`` that give each process a shard of its own.

    Raises:
        RankError: two ways to distribute are at work and say different things, or one is set up by
            halves.
    """
    place = find()
    return {"shard_rank": place.rank, "num_shards": place.size}


def find() -> Place:
    """The rank and the number of processes; rank 0 of 1 where nothing is distributed.

    Asks what is running: Horovod after ``hvd.init()``; ``torch.distributed`` after
    ``init_process_group()``; JAX after ``jax.distributed.initialize()``; Ray Train in a function
    that its trainer runs; then what the environment says: ``TF_CONFIG`` of ``tf.distribute``, whose
    chief is rank 0, and ``RANK`` and ``WORLD_SIZE`` of ``torchrun``; then what started the process:
    ``srun`` of SLURM, or an ``mpirun`` of Open MPI, MPICH, Intel MPI or MVAPICH. Replicas inside
    one process, such as those of ``MirroredStrategy``, share the process's shard.

    Raises:
        RankError: they contradict each other, or one is set up by halves, such as ``RANK=1``
            without ``WORLD_SIZE`` where nothing else says anything.
    """
    running = _ask(
        {"Horovod": _horovod, "torch.distributed": _torch, "JAX": _jax, "Ray Train": _ray}
    )
    told = (
        running
        or _ask({"TF_CONFIG": _tf_config, "RANK and WORLD_SIZE": _torchrun})
        # These start processes that may start others, of which they know nothing.
        or _ask({"srun": _slurm, **{names[0]: functools.partial(_of, *names) for names in _MPI}})
    )
    if len(set(told.values())) > 1:
        listed = ", ".join(f"{name} says rank {p.rank} of {p.size}" for name, p in told.items())
        raise RankError(f"{listed}; give shard_rank= and num_shards= yourself")
    if not told:
        _check_halves()
    return next(iter(told.values()), Place(0, 1))


def _ask(sources: Mapping[str, Callable[[], Place | None]]) -> dict[str, Place]:
    answers = {name: ask() for name, ask in sources.items()}
    return {name: place for name, place in answers.items() if place is not None}


def _horovod() -> Place | None:
    for name in ("tensorflow", "torch", "keras", "tensorflow.keras", "mxnet"):
        module: Any = sys.modules.get(f"horovod.{name}")
        if module is not None and module.is_initialized():
            return Place(int(module.rank()), int(module.size()))
    return None


def _torch() -> Place | None:
    module: Any = sys.modules.get("torch.distributed")
    if module is None or not module.is_available() or not module.is_initialized():
        return None
    return Place(int(module.get_rank()), int(module.get_world_size()))


def _jax() -> Place | None:
    jax: Any = sys.modules.get("jax")
    if jax is None or not jax.distributed.is_initialized():
        return None
    return Place(int(jax.process_index()), int(jax.process_count()))


def _ray() -> Place | None:
    module: Any = sys.modules.get("ray.train")
    if module is None:
        return None
    try:
        context = module.get_context()
    except (RuntimeError, DeprecationWarning):
        # This is no worker of a trainer; the latter says so in trials of Ray Tune.
        return None
    return Place(int(context.get_world_rank()), int(context.get_world_size()))


# Ranks of evaluators and parameter servers would not be those of who reads shards.
_TRAINERS = ("chief", "master", "worker")


def _tf_config() -> Place | None:
    text = os.environ.get("TF_CONFIG")
    if not text:
        return None
    try:
        config = json.loads(text)
        cluster, task = config["cluster"], config["task"]
        kind, index = task["type"], int(task["index"])
        sizes = {name: len(cluster.get(name, ())) for name in _TRAINERS}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RankError(
            f"TF_CONFIG={text!r:.200} names no cluster and task: {error!r}; correct or unset it"
        ) from error
    if kind not in _TRAINERS:
        raise RankError(f"TF_CONFIG makes this a {kind!r}, which trains on no shard of its own")
    before = sum(sizes[name] for name in _TRAINERS[: _TRAINERS.index(kind)])
    return _checked("TF_CONFIG", before + index, sum(sizes.values()))


# Open MPI; MPICH and Intel MPI; MVAPICH.
_MPI = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE"),
)


def _torchrun() -> Place | None:
    return _of("RANK", "WORLD_SIZE")


def _slurm() -> Place | None:
    place = _of("SLURM_PROCID", "SLURM_STEP_NUM_TASKS") or _of("SLURM_PROCID", "SLURM_NTASKS")
    if place == (0, 1) or "SLURM_STEP_NUM_TASKS" in os.environ:
        return place
    if place is not None and place.rank == 0:
        # Every task of srun knows the number of them; the script of sbatch is no task.
        raise RankError(
            f"SLURM has room for {place.size} tasks, but this process was not started by srun, and "
            "is alone: start it with srun, or give shard_rank=0 and num_shards=1"
        )
    return place


def _check_halves() -> None:
    """Refuses to be alone where one of two variables says that there are others.

    Only where nothing else is known: scripts for ``srun`` set ``WORLD_SIZE``, and no ``RANK``.
    """
    for names in (("RANK", "WORLD_SIZE"), *_MPI):
        for name, alone in zip(names, ("0", "1"), strict=True):
            value = os.environ.get(name, alone)
            (other,) = set(names) - {name}
            if value.strip() != alone and other not in os.environ:
                raise RankError(
                    f"{name}={value!r} is set, and {other} is not, so this process would take "
                    "itself for the only one: set both, unset it, or give shard_rank= and "
                    "num_shards="
                )


def _of(rank_name: str, size_name: str) -> Place | None:
    """What two variables of the environment say, if both are there."""
    rank, size = os.environ.get(rank_name), os.environ.get(size_name)
    if rank is None or size is None:
        return None
    try:
        return _checked(f"{rank_name} and {size_name}", int(rank), int(size))
    except ValueError as error:
        raise RankError(
            f"{rank_name}={rank!r} and {size_name}={size!r} are no numbers; correct or unset them"
        ) from error


def _checked(name: str, rank: int, size: int) -> Place:
    if not 0 <= rank < size:
        raise RankError(f"{name} makes this rank {rank} of {size}; correct or unset it")
    return Place(rank, size)


__dir__ = functools.partial(public_names, globals())
