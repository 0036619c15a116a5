"""Clusters of Ray on this machine, each with several nodes of their own processes."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import pathlib
import sys
import tempfile
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

collect_ignore_glob = [] if importlib.util.find_spec("ray") else ["test_*.py"]
_CLOUD = pathlib.Path(__file__).parents[1] / "cloud"
sys.path.append(str(_CLOUD))
_QUIET = {
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
}
_NODE = {"num_cpus": 1, "object_store_memory": 80 << 20}
# Ray Data warns of its own defaults.
_DEFAULTS = r"ignore::DeprecationWarning:ray\.data\.context"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", _DEFAULTS)


@pytest.fixture(scope="session")
def environment() -> Iterator[None]:
    """What nodes that are started find in their environment."""
    from rig import environment

    paths = os.pathsep.join(filter(None, sys.path))
    # Names of sockets are short.
    folder = tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True)
    with folder as place, pytest.MonkeyPatch.context() as patch:
        # Of a cluster that has nodes, Ray notes the address in a folder that it does not make.
        pathlib.Path(place, "ray").mkdir()
        given = {"PYTHONPATH": paths, "RAY_TMPDIR": place}
        for name, value in {**_QUIET, **environment("s3", ""), **given}.items():
            patch.setenv(name, value)
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL"):
            patch.delenv(name, raising=False)
        yield


@pytest.fixture(scope="session", params=[4])
def cluster(request: pytest.FixtureRequest, environment: None) -> Iterator[Any]:
    """A cluster of some nodes with one processor each, to which this process is connected."""
    with _started(request.param) as found:
        yield found


@contextlib.contextmanager
def _started(nodes: int) -> Iterator[Any]:
    import ray
    from ray.cluster_utils import Cluster

    with contextlib.ExitStack() as stack:
        head = {**_NODE, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=head)
        stack.callback(cluster.shutdown)
        for _ in range(nodes - 1):
            cluster.add_node(**_NODE)
        stack.callback(ray.shutdown)
        ray.init(address=cluster.address, log_to_driver=False, logging_level="error")
        ray.data.DataContext.get_current().enable_progress_bars = False
        yield cluster


@pytest.fixture(scope="session")
def moto() -> Iterator[Any]:
    """A server of S3."""
    pytest.importorskip("boto3")
    pytest.importorskip("moto")
    from servers import s3_server

    with s3_server() as server:
        yield server


@pytest.fixture
def s3(moto: Any, environment: None) -> Iterator[Any]:
    """A fresh bucket of S3; see ``Rig``."""
    from rig import Rig

    rig = Rig("s3", moto, f"bucket-{uuid.uuid4().hex}")
    try:
        yield rig
    finally:
        rig.close()


@pytest.fixture
def local(tmp_path: pathlib.Path) -> pathlib.Path:
    """A local cache directory."""
    directory = tmp_path / "local"
    directory.mkdir()
    return directory


@pytest.fixture
def made(tmp_path: pathlib.Path) -> pathlib.Path:
    """Where tasks note what they make."""
    directory = tmp_path / "made"
    directory.mkdir()
    return directory
