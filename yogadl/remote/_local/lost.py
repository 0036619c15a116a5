"""What is taken back when a file does not have what was written.

One record may be damaged. Where several are, much may be lost, as to a crash of the machine; then
what is around each is taken back as well, so that it need not be found out record by record.
"""

from __future__ import annotations

from yogadl.remote._local.sparse_file import SparseFile

# So many of a file are taken for what happens to single ones.
_FEW_WRONG = 4
# Pieces of a file that are taken back.
_LOST_BYTES = 8 << 20


def discard_wrong(file: SparseFile, start: int, stop: int) -> tuple[int, int] | None:
    """Says that bytes are not in a file which are not what was written, nor, if that has happened
    several times, those around them, unless this process has brought them.

    Args:
        file: the file.
        start, stop: the range; it may begin and end anywhere.

    Returns:
        The range around it of which more was taken back, if most of that was there.

    Raises:
        FileSystemError: see ``SparseFile.discard``.
    """
    file.look_again()
    was_found = bool(file.found(start, stop))
    file.discard(start, stop)
    if not was_found:
        return None
    file.wrong += 1
    if file.wrong <= _FEW_WRONG:
        return None
    start = start // _LOST_BYTES * _LOST_BYTES
    stop = min(-(-stop // _LOST_BYTES) * _LOST_BYTES, file.size)
    lost = file.found(start, stop)
    for begin, end in lost:
        file.discard(begin, end)
    was_most = 2 * sum(end - begin for begin, end in lost) > stop - start
    return (start, stop) if was_most else None
