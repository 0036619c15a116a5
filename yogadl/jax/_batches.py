"""Batches of ``jax.Array``, and the place in them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from yogadl import dtypes
from yogadl import spec as specs
from yogadl.arguments import as_flag, as_index
from yogadl.dataref._batches import tell_of_no_batches
from yogadl.dataref._cursor import Cursor
from yogadl.dataref._place import Place
from yogadl.dataref._state import resume, state_of
from yogadl.dataref._stream import IndexedStream
from yogadl.errors import InvalidArgumentError
from yogadl.extras import require
from yogadl.jax._leaves import Array, as_jax_holds, check_dtype, check_leaves, named_leaves
from yogadl.orders import Order
from yogadl.seeding import Transform, check_transform

jax = require("jax", "jax")


class Batches:
    """Batches of a stream as ``jax.Array``: every iteration is the stream's next epoch.

    A batch is a nest as of the spec, with a ``jax.Array`` ``[batch_size, *shape]`` for each leaf.
    Its dtype is the leaf's, bfloat16 and the float8 ones included. Without ``jax_enable_x64``, what
    has 64 bits becomes what JAX makes of it: int32, uint32, float32, complex64. An integer that
    does not fit is an error, where JAX would cut bits off. Batches are never written to once they
    are made.

    With several processes (``jax.distributed.initialize``), each reads its own shard, and a
    sharding over the devices of all makes one global array of their batches, of ``batch_size``
    records of each. Each must come to the same number of batches::

        shard = yogadl.distributed.shard()
        stream = dataref.stream(shuffle=True, shuffle_seed=1, drop_shard_remainder=True, **shard)
        for batch in yogadl.jax.Batches(stream, 32, sharding=NamedSharding(mesh, P("data"))):
            ...

    For one thread at a time.

    Args:
        stream: of ``DataRef.stream``. Give it to one consumer only.
        batch_size: records of this process in a batch.
        sharding: a ``jax.sharding.Sharding`` for all leaves, whose first dimension is the batch;
            ``None`` for the default device.
        drop_remainder: leave out an epoch's last batch if it is smaller. It would have its own
            shape, for which ``jax.jit`` compiles again. Of fewer records than a batch, there are no
            batches, and a warning in the log.
        pad: as for ``IndexedStream.batches``; batches are padded to the largest of each.
        prefetch: batches to put on their devices before they are asked for.
        transform: called with every batch of NumPy arrays before it is put on its devices; what it
            returns takes its place, a nest of arrays ``[n, …]`` that JAX can hold, as many as it
            was given records. May be seeded, ``yogadl.seeded``, with a generator for each record.
            What is read may then be of any kind.

    Raises:
        UnsupportedTypeError: a leaf is nothing that JAX can hold: a string, ``None``, a ragged or
            sparse array, or an array of varying shape without ``pad``; or, while iterating, what
            the transform made.
        InvalidArgumentError: an argument is out of range, the sharding cannot divide the batches,
            or some shard has more records than another where processes must keep step.
        ClosedError: the stream or its DataRef is closed.
    """

    def __init__(
        self,
        stream: IndexedStream,
        batch_size: int,
        *,
        sharding: Any = None,
        drop_remainder: bool = True,
        pad: Any = None,
        prefetch: int = 1,
        transform: Transform | None = None,
    ) -> None:
        if not isinstance(stream, IndexedStream):
            raise InvalidArgumentError(
                f"Batches takes a stream of a data set with random access, not a "
                f"{type(stream).__name__}"
            )
        if sharding is not None and not isinstance(sharding, jax.sharding.Sharding):
            raise InvalidArgumentError(
                f"sharding= takes one jax.sharding.Sharding or None, not {sharding!r:.100}"
            )
        self._stream = stream
        self._size = as_index("batch_size", batch_size, 1)
        self._sharding: Any = sharding
        self._drop_remainder = as_flag("drop_remainder", drop_remainder)
        self._pad = pad
        self._prefetch = as_index("prefetch", prefetch)
        self._spec = stream.spec
        self._transform = check_transform(transform)
        if transform is None:
            check_leaves(self._spec, pad)
        self._names = [name for name, _ in named_leaves(self._spec)]
        self._is_global = sharding is not None and not sharding.is_fully_addressable
        if self._is_global:
            _check_shards(stream.epochs.order)
        elif sharding is not None and transform is None:
            self._check_division()
        # Of the iterator that was begun last.
        self._cursor: Cursor | None = None
        tell_of_no_batches(len(stream), self._size, self._drop_remainder)

    def __len__(self) -> int:
        """Batches per epoch; an offset does not make them fewer."""
        count = len(self._stream)
        return count // self._size if self._drop_remainder else -(-count // self._size)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._stream!r}, batch_size={self._size})"

    def __iter__(self) -> Iterator[Any]:
        """The batches of the next epoch, which begins when its first batch is asked for."""
        epochs = self._stream.epochs
        self._cursor = cursor = Cursor(*epochs.counter.peek())
        stop = epochs.order.stop(cursor.epoch)
        pending: deque[Any] = deque()
        host = self._stream.batches(
            self._size,
            drop_remainder=self._drop_remainder,
            pad=self._pad,
            transform=self._transform,
        )
        for batch in host:
            pending.append(self._put(batch))
            if len(pending) > self._prefetch:
                cursor.move_to(min(cursor.number + self._size, stop))
                yield pending.popleft()
        while pending:
            cursor.move_to(min(cursor.number + self._size, stop))
            yield pending.popleft()

    def state_dict(self) -> dict[str, Any]:
        """The place after the last batch that was handed out, whatever was prefetched.

        Of the iterator that was begun last. With ``shuffle_then_shard``, it is the place of all
        processes together, provided that all have been handed as many batches; save that of one.

        Returns:
            A new dict of numbers, strings and bools, as of ``IndexedStream.state_dict``: for
            :meth:`load_state_dict`, ``DataRef.stream(state=…)``, JSON, or Orbax's ``JsonSave``.

        Raises:
            ClosedError: the stream or its DataRef is closed.
        """
        cursor = self._cursor
        if cursor is None:
            return self._stream.state_dict()
        epochs = self._stream.epochs
        place = Place(epochs.order, cursor.epoch, cursor.number)
        # Fewer records than a batch are no more batch.
        is_over = place.left < (self._size if self._drop_remainder else 1)
        comes = (place.epoch + 1, 0) if is_over else (place.epoch, place.offset)
        return state_of(epochs.reader(), epochs.order, *comes)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where a state says, with the next iteration.

        Iterators that are under way are not moved, nor is the stream that was given.

        Args:
            state: of :meth:`state_dict` of batches of the same data set and order; with
                ``shuffle_then_shard``, of any number of shards.

        Raises:
            StateMismatchError: the state is of another data set, order or shard.
            InvalidArgumentError: it is no state.
            ClosedError: the stream or its DataRef is closed.
        """
        given = self._stream.epochs
        order, epoch, offset = resume(state, given.reader(), given.order, given.order)
        moved = IndexedStream(given.moved_to(order, epoch, offset))
        if self._is_global:
            _check_shards(moved.epochs.order)
        self._stream = moved
        self._cursor = None

    # Onto the devices

    def _put(self, batch: Any) -> Any:
        if self._transform is not None:
            return self._put_transformed(batch)
        arrays = [
            as_jax_holds(name, array)
            for name, array in zip(self._names, specs.flatten(self._spec, batch), strict=True)
        ]
        return specs.unflatten(self._spec, self._on_devices(self._names, arrays))

    def _put_transformed(self, batch: Any) -> Any:
        paths, structure = jax.tree_util.tree_flatten_with_path(batch)
        names = [f"batch{jax.tree_util.keystr(path)}" for path, _ in paths]
        arrays = []
        for name, (_, value) in zip(names, paths, strict=True):
            array = np.asarray(value)
            check_dtype(name, array.dtype)
            arrays.append(as_jax_holds(name, array))
        return jax.tree_util.tree_unflatten(structure, self._on_devices(names, arrays))

    def _on_devices(self, names: Sequence[str], arrays: Sequence[Array]) -> Sequence[Any]:
        if not self._is_global:
            put: Sequence[Any] = jax.device_put(list(arrays), self._sharding)
            return put
        made = [jax.make_array_from_process_local_data(self._sharding, part) for part in arrays]
        self._check_groups(names, arrays, made)
        return made

    def _check_groups(
        self, names: Sequence[str], local: Sequence[Array], made: Sequence[Any]
    ) -> None:
        """Checks that what the sharding takes for another part of the batch is another shard."""
        shards = self._stream.epochs.order.num_shards
        for name, part, whole in zip(names, local, made, strict=True):
            parts = whole.shape[0] // max(1, part.shape[0])
            if part.shape[0] and (parts != shards or part.shape[1:] != whole.shape[1:]):
                raise InvalidArgumentError(
                    f"the sharding makes {whole.shape} of {name}, {part.shape} in each process, "
                    f"and the stream has {shards} shard(s); processes must share the first "
                    "dimension only, each with a shard of its own: dataref.stream(…, "
                    "**yogadl.distributed.shard())"
                )

    def _check_division(self) -> None:
        """Checks that the sharding can divide the batches, as far as their shapes are known."""
        left = 0 if self._drop_remainder else len(self._stream) % self._size
        for name, leaf in named_leaves(self._spec):
            assert isinstance(leaf, specs.TensorSpec)
            if leaf.static_shape is None:
                continue
            for count in {self._size, left or self._size}:
                shape = (count, *leaf.static_shape)
                try:
                    self._sharding.shard_shape(shape)
                    self._sharding.check_compatible_aval(shape)
                except ValueError as error:
                    raise InvalidArgumentError(
                        f"the sharding cannot divide {name}, {dtypes.to_numpy(leaf.dtype)}"
                        f"{list(shape)}: {error}; choose another batch_size, or "
                        "drop_remainder=True"
                    ) from error


def _check_shards(order: Order) -> None:
    """Checks that all shards have as many records: a process without a batch stops the others."""
    begun = {0, order.first_place}
    if order.drop_remainder or all(
        (order.record_count - place) % order.num_shards == 0 for place in begun
    ):
        return
    raise InvalidArgumentError(
        f"{order.record_count:,} records are not the same number for each of {order.num_shards} "
        "shards, and processes would wait for each other; give the stream "
        "drop_shard_remainder=True"
    )
