"""The saved place of a stream: a dict of numbers, strings and bools, which JSON can hold.

Its keys, of format 1: ``format``; ``dataset`` and ``records``, the content id and the length of the
data set; ``shuffle``, ``reshuffle``, ``seed``, ``drop_shard_remainder``, ``shuffle_then_shard``,
``shard_rank`` and ``num_shards``, the order, with ``shuffle_how`` if that is not the full shuffle;
``epoch`` and ``offset``, the place in it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from yogadl.arguments import as_index, check_seed, check_shard
from yogadl.cache.record_reader import RecordReader
from yogadl.errors import InvalidArgumentError, StateMismatchError
from yogadl.orders import Order
from yogadl.shuffles import FULL, shuffle_of

FORMAT = 1

_FLAGS = {
    "shuffle": "shuffle",
    "reshuffle": "reshuffle",
    "drop_shard_remainder": "drop_remainder",
    "shuffle_then_shard": "shuffle_then_shard",
}
_ORDER = {**_FLAGS, "seed": "seed"}
"""What a state has of an order, besides shard and kind of shuffle, and by what attributes."""


def state_of(reader: RecordReader, order: Order, epoch: int, offset: int) -> dict[str, Any]:
    """The state of a stream at an offset of an epoch."""
    return {
        "format": FORMAT,
        "dataset": reader.content_id,
        "records": len(reader),
        **{name: getattr(order, attribute) for name, attribute in _ORDER.items()},
        **({} if order.how == FULL else {"shuffle_how": order.how.name}),
        "shard_rank": order.shard_rank,
        "num_shards": order.num_shards,
        "epoch": epoch,
        "offset": offset,
    }


def resume(
    state: Any, reader: RecordReader, wanted: Order | None, shard: Order, seed: int | None = None
) -> tuple[Order, int, int]:
    """The order, epoch and offset of a saved state.

    Args:
        state: of ``state_of``, perhaps by way of JSON.
        reader: of the data set that is to be read on.
        wanted: the order that was asked for, with the seed of the state if it had none; ``None``
            for the order of the state.
        shard: whose shard is to be read on.
        seed: that was asked for, whatever else was; of no meaning if the state has no shuffle.

    Raises:
        InvalidArgumentError: it is no state.
        StateMismatchError: it is of another data set or order.
    """
    if not isinstance(state, Mapping) or state.get("format") != FORMAT:
        raise InvalidArgumentError(
            f"state= takes what state_dict() of a stream returned, of format {FORMAT}; not "
            f"{state!r:.100}"
        )
    try:
        rank, shards = check_shard(state["shard_rank"], state["num_shards"], "shard_rank")
        saved = Order(
            record_count=as_index("records", state["records"]),
            shard_rank=rank,
            num_shards=shards,
            seed=check_seed(state["seed"], "seed"),
            how=shuffle_of(state.get("shuffle_how", FULL.name)),
            **{attribute: _flag(state, name) for name, attribute in _FLAGS.items()},
        )
        dataset = state["dataset"]
        epoch, offset = as_index("epoch", state["epoch"]), as_index("offset", state["offset"])
    except KeyError as error:
        raise InvalidArgumentError(f"the state lacks {error}: {dict(state)!r:.200}") from error
    if dataset != reader.content_id or saved.record_count != len(reader):
        raise StateMismatchError(
            f"the state is of another data set ({saved.record_count:,} records, {dataset}) than "
            f"this one ({len(reader):,} records, {reader.content_id}); fetch the version that the "
            "run was begun with, or begin anew without state="
        )
    if wanted is not None:
        _check_order(saved, wanted)
    elif seed is not None and saved.shuffle:
        _check_order(saved, dataclasses.replace(saved, seed=seed))
    if not saved.shuffle_then_shard and _shard(saved) != _shard(shard):
        raise StateMismatchError(
            f"the state is of shard {saved.shard_rank} of {saved.num_shards}, not of shard "
            f"{shard.shard_rank} of {shard.num_shards}; give that shard's own state, with "
            f"shard_rank={saved.shard_rank} and num_shards={saved.num_shards}, or use "
            "shuffle_then_shard=True, whose states hold for any number of shards"
        )
    order = dataclasses.replace(saved, shard_rank=shard.shard_rank, num_shards=shard.num_shards)
    if offset > (order.record_count if order.shuffle_then_shard else len(order)):
        raise InvalidArgumentError(f"the state has an offset beyond its data set: {offset:,}")
    # With other shards, an epoch may end a little earlier or later.
    is_over = offset and offset >= order.epoch_length
    return (order, epoch + 1, 0) if is_over else (order, epoch, offset)


def _flag(state: Mapping[str, Any], name: str) -> bool:
    value = state[name]
    if not isinstance(value, bool):
        raise InvalidArgumentError(f"{name} of a state must be a bool, not {value!r:.100}")
    return value


def _shard(order: Order) -> tuple[int, int]:
    return order.shard_rank, order.num_shards


def _check_order(saved: Order, wanted: Order) -> None:
    before, now = _arguments(saved), _arguments(wanted)
    other = [name for name in before if before[name] != now[name]]
    if other:
        those = ", ".join(f"{name}={before[name]!r} is now {now[name]!r}" for name in other)
        raise StateMismatchError(
            f"the state is of another order: {those}; give none of these arguments, for the state "
            "has them all, or begin anew without it"
        )


def _arguments(order: Order) -> dict[str, Any]:
    """What of an order two streams must share to be the same, by the arguments of ``stream``."""
    return {
        "shuffle": order.how if order.shuffle and order.how != FULL else order.shuffle,
        "skip_shuffle_at_epoch_end": order.shuffle and not order.reshuffle,
        "shuffle_seed": order.seed if order.shuffle else None,
        "drop_shard_remainder": order.drop_remainder,
        "shuffle_then_shard": order.shuffle_then_shard,
    }
