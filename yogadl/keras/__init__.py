"""Data sets for Keras 3, under any of its back ends. Importing this package imports Keras.

Keras is the sequential layer only: which batch comes when is decided here, and a run that was
interrupted goes on with the batch that would have been next.
"""

from yogadl.keras._backup import BackupAndRestore
from yogadl.keras._py_dataset import PyDataset

__all__ = ["BackupAndRestore", "PyDataset"]
