"""What is stored and nobody needs, after all was collected."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kill_place import HERE, THERE, Place

from yogadl.cache.parts import PARTS_FOLDER
from yogadl.catalogue._catalogue import CLOCK
from yogadl.catalogue._root import ROOT
from yogadl.catalogue._segments import SEGMENT_ENDING
from yogadl.storage._buckets.part_control import CONTROL_OBJECT
from yogadl.storage._disk.tables import BUILDING_FILE, TABLE_ENDING
from yogadl.storage._paths import CACHE_FILE, CATALOGUE_FOLDER, LEASE_OBJECT, LOCK_FILE

# Of which there is one of each id, or of each version that ``cacheable`` was asked for.
_STAYING = (LOCK_FILE, BUILDING_FILE, CONTROL_OBJECT, LEASE_OBJECT)
# Of a catalogue. Segments that were replaced, or left by who was killed, stay for a day.
_CATALOGUE = (ROOT, CLOCK, LOCK_FILE)


def faults(place: Place) -> Iterator[str]:
    """Files and objects that are left over, or missing, and what processes had begun."""
    files = set(place.files())
    for name in (HERE, THERE):
        needed, tables = _needed(place, name)
        for missing in sorted(needed - files):
            yield f"missing: {missing}"
        others = {file for file in files if file.startswith(f"{name}/")} - needed
        links = {file for file in others if file.endswith(TABLE_ENDING)}
        if len(links) > tables:
            yield f"{name}: {len(links)} other names of {tables} tables"
        for file in sorted(others - links):
            if not _may_stay(file, name):
                yield f"left over: {file}"
    for file in place.begun_files():
        yield f"left over on this machine: {file}"


def counts(place: Place) -> Counter[str]:
    """How many files and objects there are of each kind."""
    return Counter(_kind(file) for file in place.files())


def _needed(place: Place, name: str) -> tuple[set[str], int]:
    """The files of all versions, and how many are tables that refer to parts."""
    storage = place.storage(name)
    needed, tables = set(), 0
    for entry in storage.list():
        folder = f"{name}/{entry.dataset_id}"
        needed.add(f"{folder}/{entry.dataset_version}/{CACHE_FILE}")
        with storage.fetch(entry.dataset_id, entry.dataset_version) as ref:
            digests = ref.reader.parts_by_digest()
        needed |= {f"{folder}/{PARTS_FOLDER}/{digest.hex()}.mdb" for digest in digests}
        tables += bool(digests)
    return needed, tables


def _may_stay(file: str, name: str) -> bool:
    folder, _, base = file.rpartition("/")
    if folder == f"{name}/{CATALOGUE_FOLDER}":
        return base in _CATALOGUE or base.endswith(SEGMENT_ENDING)
    return base in _STAYING


def _kind(file: str) -> str:
    base = file.rpartition("/")[2]
    if f"/{PARTS_FOLDER}/" in file and base.endswith(".mdb"):
        return "parts"
    if base == CACHE_FILE:
        return "versions"
    if base.endswith(SEGMENT_ENDING):
        return "segments of catalogues"
    return "other names of tables" if base.endswith(TABLE_ENDING) else "locks and notes"
