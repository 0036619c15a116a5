"""Where data sets are kept."""

from yogadl.storage._lfs import LFSConfigurations, LFSStorage

__all__ = ["LFSConfigurations", "LFSStorage"]
