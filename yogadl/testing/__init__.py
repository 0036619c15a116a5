"""Tests for storages, and ways into frameworks, of one's own, to be run by pytest::

    import pytest
    from yogadl.testing import StorageConformance

    class TestMyStorage(StorageConformance):
        @pytest.fixture
        def storage(self, tmp_path):
            return MyStorage(tmp_path)

Needs pytest, which no extra but ``test`` brings.
"""

from yogadl.testing._loader import Loader, LoaderConformance
from yogadl.testing._storage import StorageConformance

__all__ = ["Loader", "LoaderConformance", "StorageConformance"]
