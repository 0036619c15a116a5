"""The bytes of a cache file, format version 1, as docs/format.md specifies them.

``dtypes``, ``components``, ``layout`` and ``codec`` are the bytes of a record; ``record_keys``,
``pages`` and ``tree`` those of LMDB; ``header``, ``index`` and ``spec_json`` what makes a file
describe itself; ``legacy`` what 0.1.4 wrote. Nothing here opens a file.
"""
