"""What importing yogadl imports, and that the names of 0.1.4 are where its scripts look."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import os
import subprocess
import sys
from typing import Any

import pytest

import yogadl
from yogadl.errors import MissingExtraError

HEAVY = ["tensorflow", "boto3", "botocore", "google.cloud", "torch", "keras", "ml_dtypes"]
HEAVY += ["websockets", "jax", "grain", "tensorpack", "orbax", "ray", "fsspec"]
REQUIRED = inspect.Parameter.empty

# Names and defaults of positional parameters, as scripts written for 0.1.4 give them.
SIGNATURES: dict[tuple[str, str], list[tuple[str, Any]]] = {
    ("yogadl", "Storage.submit"): [
        ("data", REQUIRED),
        ("dataset_id", REQUIRED),
        ("dataset_version", REQUIRED),
    ],
    ("yogadl", "Storage.fetch"): [("dataset_id", REQUIRED), ("dataset_version", REQUIRED)],
    ("yogadl", "Storage.cacheable"): [("dataset_id", REQUIRED), ("dataset_version", REQUIRED)],
    ("yogadl", "DataRef.stream"): [
        ("start_offset", 0),
        ("shuffle", False),
        ("skip_shuffle_at_epoch_end", False),
        ("shuffle_seed", None),
        ("shard_rank", 0),
        ("num_shards", 1),
        ("drop_shard_remainder", False),
    ],
    ("yogadl", "DataRef.__len__"): [],
    ("yogadl", "Stream"): [
        ("iterator_fn", REQUIRED),
        ("length", REQUIRED),
        ("output_types", None),
        ("output_shapes", None),
    ],
    ("yogadl", "Stream.__iter__"): [],
    ("yogadl", "Stream.__len__"): [],
    ("yogadl", "LmdbAccess"): [("lmdb_path", REQUIRED)],
    ("yogadl", "LmdbAccess.get_keys"): [],
    ("yogadl", "LmdbAccess.get_shapes"): [],
    ("yogadl", "LmdbAccess.get_types"): [],
    ("yogadl", "LmdbAccess.read_value_by_key"): [("key", REQUIRED)],
    ("yogadl", "serialize_generator_to_lmdb"): [
        ("dataset_generator", REQUIRED),
        ("data_shapes", REQUIRED),
        ("data_types", REQUIRED),
        ("lmdb_path", REQUIRED),
        ("write_frequency", 5000),
    ],
    ("yogadl", "sequential_shard"): [
        ("keys", REQUIRED),
        ("shard_index", REQUIRED),
        ("num_shards", REQUIRED),
    ],
    ("yogadl", "non_sequential_shard"): [
        ("keys", REQUIRED),
        ("shard_index", REQUIRED),
        ("num_shards", REQUIRED),
    ],
    ("yogadl", "shard_keys"): [
        ("keys", REQUIRED),
        ("shard_index", REQUIRED),
        ("num_shards", REQUIRED),
        ("sequential", False),
        ("drop_shard_remainder", False),
    ],
    ("yogadl", "shuffle_keys"): [("keys", REQUIRED), ("seed", None)],
    ("yogadl", "GeneratorFromKeys"): [
        ("keys", REQUIRED),
        ("initial_offset", REQUIRED),
        ("read_val_from_key_fn", REQUIRED),
        ("shuffle_at_start", REQUIRED),
        ("shuffle_after_epoch", REQUIRED),
        ("shuffle_seed", REQUIRED),
    ],
    ("yogadl", "GeneratorFromKeys.instantiate_generator"): [],
    ("yogadl.storage", "LFSConfigurations"): [("storage_dir_path", REQUIRED)],
    ("yogadl.storage", "LFSStorage"): [("configurations", REQUIRED), ("tensorflow_config", None)],
    ("yogadl.storage", "LFSStorage.submit"): [
        ("data", REQUIRED),
        ("dataset_id", REQUIRED),
        ("dataset_version", REQUIRED),
    ],
    ("yogadl.storage", "LFSStorage.fetch"): [
        ("dataset_id", REQUIRED),
        ("dataset_version", None),
    ],
    ("yogadl.storage", "LFSStorage.cacheable"): [
        ("dataset_id", REQUIRED),
        # Without it, it follows from what determines the data.
        ("dataset_version", None),
    ],
    ("yogadl.storage", "S3Configurations"): [
        ("bucket", REQUIRED),
        ("bucket_directory_path", REQUIRED),
        ("url", None),
        ("access_key", None),
        ("secret_key", None),
        ("endpoint_url", None),
        ("local_cache_dir", "/tmp/"),
        ("skip_verify", False),
        ("coordinator_cert_file", None),
        ("coordinator_cert_name", None),
    ],
    ("yogadl.storage", "GCSConfigurations"): [
        ("bucket", REQUIRED),
        ("bucket_directory_path", REQUIRED),
        ("url", None),
        ("local_cache_dir", "/tmp/"),
        ("skip_verify", False),
        ("coordinator_cert_file", None),
        ("coordinator_cert_name", None),
    ],
    ("yogadl.storage", "S3Storage"): [("configurations", REQUIRED), ("tensorflow_config", None)],
    ("yogadl.storage", "GCSStorage"): [("configurations", REQUIRED), ("tensorflow_config", None)],
    ("yogadl.rw_coordinator", "RwCoordinatorServer"): [
        ("hostname", None),
        ("port", None),
        ("ssl_context", None),
    ],
    ("yogadl.rw_coordinator", "RwCoordinatorServer.run_server"): [],
    ("yogadl.rw_coordinator", "RwCoordinatorServer.stop_server"): [],
    ("yogadl.rw_coordinator", "RwCoordinatorClient"): [
        ("url", REQUIRED),
        ("skip_verify", False),
        ("coordinator_cert_file", None),
        ("coordinator_cert_name", None),
    ],
    ("yogadl.rw_coordinator", "RwCoordinatorClient.read_lock"): [
        ("storage_type", REQUIRED),
        ("bucket", REQUIRED),
        ("cache_path", REQUIRED),
    ],
    ("yogadl.rw_coordinator", "RwCoordinatorClient.write_lock"): [
        ("storage_type", REQUIRED),
        ("bucket", REQUIRED),
        ("cache_path", REQUIRED),
    ],
    ("yogadl.dataref", "LMDBDataRef"): [("cache_filepath", REQUIRED)],
    ("yogadl.dataref", "LMDBDataRef.stream"): [
        ("start_offset", 0),
        ("shuffle", False),
        ("skip_shuffle_at_epoch_end", False),
        ("shuffle_seed", None),
        ("shard_rank", 0),
        ("num_shards", 1),
        ("drop_shard_remainder", False),
    ],
}
# Importing this module imports TensorFlow, so it has a process of its own.
TENSORFLOW_SIGNATURES = {
    "make_tf_dataset": [("stream", REQUIRED)],
    "read_tf_dataset": [("dataset", REQUIRED), ("tf_config", REQUIRED)],
    "serialize_tf_dataset_to_lmdb": [
        ("dataset", REQUIRED),
        ("checkpoint_path", REQUIRED),
        ("tf_config", REQUIRED),
        ("write_frequency", 5000),
    ],
}


def _python(code: str) -> str:
    """The output of a Python process of its own, in which warnings are errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def _attribute(module: str, name: str) -> Any:
    found: Any = importlib.import_module(module)
    for part in name.split("."):
        found = getattr(found, part)
    return found


def _positional(function: Any) -> list[tuple[str, Any]]:
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    found = [(p.name, p.default) for p in parameters if p.kind in kinds and p.name != "self"]
    # All else must be optional, and not positional.
    for parameter in parameters:
        optional = parameter.kind is parameter.VAR_KEYWORD or parameter.default is not REQUIRED
        assert parameter.kind in kinds or optional
    return found


@pytest.mark.parametrize(("module", "name"), SIGNATURES)
def test_signatures(module: str, name: str) -> None:
    assert _positional(_attribute(module, name)) == SIGNATURES[module, name]


def test_signatures_of_the_tensorflow_module() -> None:
    pytest.importorskip("tensorflow")
    names = list(TENSORFLOW_SIGNATURES)
    code = f"""
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import yogadl.tensorflow
import inspect
for name in {names}:
    parameters = inspect.signature(getattr(yogadl.tensorflow, name)).parameters.values()
    positional = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    print([(p.name, None if p.default is p.empty else p.default) for p in positional])
"""
    expected = [
        str([(name, None if default is REQUIRED else default) for name, default in signature])
        for signature in TENSORFLOW_SIGNATURES.values()
    ]
    assert _python(code).splitlines() == expected


def test_names_that_are_no_functions() -> None:
    import yogadl
    import yogadl.constants

    assert hasattr(yogadl, "Submittable")
    assert inspect.isabstract(yogadl.Storage)
    assert inspect.isabstract(yogadl.DataRef)
    assert yogadl.constants.AWS_STORAGE == "aws_storage"
    assert yogadl.constants.GCS_STORAGE == "gcs_storage"


def test_stream_keeps_its_arguments_as_attributes() -> None:
    import yogadl

    stream = yogadl.Stream(lambda: iter([1, 2]), 2, "types", "shapes")
    assert list(stream.iterator_fn()) == list(stream) == [1, 2]
    assert (stream.length, len(stream)) == (2, 2)
    assert (stream.output_types, stream.output_shapes) == ("types", "shapes")
    bare = yogadl.Stream(iterator_fn=lambda: iter([]), length=0)
    assert (bare.output_types, bare.output_shapes) == (None, None)


def test_every_exported_name_exists() -> None:
    for name in ("yogadl", "yogadl.storage", "yogadl.dataref", "yogadl.profile"):
        module = importlib.import_module(name)
        for exported in module.__all__:
            assert hasattr(module, exported)


@pytest.mark.parametrize(
    "modules", ["yogadl", "yogadl, yogadl.storage, yogadl.dataref, yogadl.profile"]
)
def test_importing_is_light(modules: str) -> None:
    code = f"import sys, {modules}; print([name for name in {HEAVY} if name in sys.modules])"
    assert _python(code).strip() == "[]"


def test_using_numpy_data_imports_nothing_heavy_either(tmp_path: Any) -> None:
    code = f"""
import sys, numpy as np, yogadl, yogadl.storage
storage = yogadl.storage.LFSStorage(yogadl.storage.LFSConfigurations({str(tmp_path)!r}))
storage.submit([{{"x": np.zeros(3), "y": b"a"}}] * 4, "a", "1")
stream = storage.fetch("a", "1").stream(shuffle=True, shuffle_seed=1)
assert len(list(stream)) == 4
print([name for name in {HEAVY} if name in sys.modules])
"""
    assert _python(code).strip() == "[]"


BLOCKED = """
import importlib.abc, sys

class Blocker(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname, path=None, target=None):
        if fullname.partition(".")[0] == "tensorflow":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)

sys.meta_path.insert(0, Blocker())
"""


@pytest.mark.parametrize(
    "use",
    [
        "import yogadl.tensorflow",
        "from yogadl.tensorflow import make_tf_dataset",
        "access.get_shapes()",
        "access.get_types()",
        "stream.output_types",
        "stream.output_shapes",
    ],
)
def test_without_tensorflow_the_error_names_the_extra(use: str, tmp_path: Any) -> None:
    code = f"""{BLOCKED}
import pathlib, yogadl, yogadl.dataref, yogadl.errors
path = pathlib.Path({str(tmp_path / "cache.mdb")!r})
assert yogadl.serialize_generator_to_lmdb(iter(range(3)), (), "int64", path) == 3
access = yogadl.LmdbAccess(path)
stream = yogadl.dataref.LMDBDataRef(path).stream()
try:
    {use}
except yogadl.errors.MissingExtraError as error:
    print(error)
"""
    assert "yogadl[tensorflow]" in _python(code)


@pytest.mark.skipif(importlib.util.find_spec("ray") is not None, reason="Ray is here")
@pytest.mark.parametrize("name", ["build", "read", "write", "Datasink", "DataRefDatasource"])
def test_without_ray_the_error_names_the_extra(name: str) -> None:
    with pytest.raises(MissingExtraError, match=r"yogadl\[ray\]"):
        getattr(yogadl.ray, name)


def test_submodules_come_when_they_are_used() -> None:
    """After ``import yogadl.storage``, scripts of 0.1.4 could use ``yogadl.tensorflow``."""
    pytest.importorskip("tensorflow")
    program = (
        "import sys, yogadl, yogadl.storage\n"
        "assert 'tensorflow' not in sys.modules\n"
        "assert yogadl.dataref.LMDBDataRef and yogadl.constants.AWS_STORAGE\n"
        "assert callable(yogadl.tensorflow.make_tf_dataset)\n"
        "assert not hasattr(yogadl, 'nonsense')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr


COMPLETING = """
import sys, yogadl
namespace = {"__name__": "jedi.inference.compiled.access", "yogadl": yogadl}
exec("found = {name: getattr(yogadl, name, None) for name in dir(yogadl)}", namespace)
assert {"tensorflow", "torch", "keras", "jax", "concat"} <= set(namespace["found"])
assert namespace["found"]["concat"] is yogadl.concat
import yogadl.errors
exec("found = yogadl.errors", namespace)
print([name for name in ("tensorflow", "torch", "keras", "jax") if f"yogadl.{name}" in sys.modules])
"""


def test_completing_a_name_imports_no_framework() -> None:
    """IPython has jedi complete names, which takes the value of each."""
    done = subprocess.run(
        [sys.executable, "-c", COMPLETING], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")
