"""The Yoga Data Layer: true shuffling, sharding and mid-epoch starts for any data loader::

    import yogadl
    import yogadl.storage
    import yogadl.tensorflow

    storage = yogadl.storage.LFSStorage("/data/yogadl")

    @storage.cacheable("mnist", "1.0")
    def make_records():
        ...  # return a data set of TensorFlow, Keras, PyTorch, …, arrays, or any iterable

    stream = make_records().stream(shuffle=True, shuffle_seed=23)
    dataset = yogadl.tensorflow.make_tf_dataset(stream, batch_size=32)

Importing this package imports no framework and no cloud SDK.
"""

import importlib
from typing import TYPE_CHECKING, Any

from yogadl._version import __version__
from yogadl.completion import is_asked_by_jedi
from yogadl.core import DataRef, Storage, Stream, Submittable
from yogadl.dataref import concat, mix, zip  # noqa: A004 # named as in tf.data
from yogadl.legacy.keys import (
    GeneratorFromKeys,
    non_sequential_shard,
    sequential_shard,
    shard_keys,
    shuffle_keys,
)
from yogadl.legacy.lmdb_access import LmdbAccess, serialize_generator_to_lmdb
from yogadl.seeding import seeded
from yogadl.shuffles import BlockShuffle, KeyedShuffle

if TYPE_CHECKING:
    from yogadl.adapters import Pieces
    from yogadl.dataref._sources import (
        from_arrays,
        from_arrow,
        from_grain,
        from_huggingface,
        from_keras,
        from_pandas,
        from_source,
        from_torch,
    )
    from yogadl.recipes import FileInput
    from yogadl.storage import from_url, open_storage

# 0.1.4 had all of its own once one was imported, and scripts rely on it.
_SUBMODULES = frozenset(
    (
        "adapters",
        "constants",
        "dataref",
        "distributed",
        "errors",
        "jax",
        "keras",
        "profile",
        "ray",
        "rw_coordinator",
        "seeding",
        "spec",
        "storage",
        "tensorflow",
        "tensorpack",
        "torch",
    )
)


def __getattr__(name: str) -> Any:
    """Imports a submodule, or what takes long to import, when it is first used."""
    if name in __all__:
        return getattr(importlib.import_module(_home(name)), name)
    if name not in _SUBMODULES or is_asked_by_jedi():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")


def _home(name: str) -> str:
    """Where that is which is imported when it is first used."""
    homes = {"FileInput": "recipes", "Pieces": "adapters"}
    homes |= dict.fromkeys(("from_url", "open_storage"), "storage")
    return f"yogadl.{homes.get(name, 'dataref')}"


def __dir__() -> list[str]:
    """What is meant to be used, for completion."""
    return sorted({*__all__, *_SUBMODULES})


__all__ = [
    "BlockShuffle",
    "DataRef",
    "FileInput",
    "GeneratorFromKeys",
    "KeyedShuffle",
    "LmdbAccess",
    "Pieces",
    "Storage",
    "Stream",
    "Submittable",
    "__version__",
    "concat",
    "from_arrays",
    "from_arrow",
    "from_grain",
    "from_huggingface",
    "from_keras",
    "from_pandas",
    "from_source",
    "from_torch",
    "from_url",
    "mix",
    "non_sequential_shard",
    "open_storage",
    "seeded",
    "sequential_shard",
    "serialize_generator_to_lmdb",
    "shard_keys",
    "shuffle_keys",
    "zip",
]
