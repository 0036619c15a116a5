"""How much memory there is: what a container has, if that is less than the machine."""

from __future__ import annotations

import os
import pathlib

import pytest

from yogadl.cache import machine

MACHINE = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
GIB = 1 << 30

# Lines of /proc/self/cgroup, files below /sys/fs/cgroup, and the limits that hold.
CASES = {
    "version 2, a container": ("0::/\n", {"memory.max": f"{GIB}\n"}, [GIB]),
    "version 2, no limit": ("0::/a/b\n", {"a/b/memory.max": "max\n", "a/memory.max": "max\n"}, []),
    "version 2, of the group above": (
        "0::/a:x/b\n",
        {"a:x/b/memory.max": f"{3 * GIB}\n", "a:x/memory.max": f"{2 * GIB}\n"},
        [3 * GIB, 2 * GIB],
    ),
    "version 2, of a group beside": ("0::/a\n", {"b/memory.max": f"{GIB}\n"}, []),
    "version 1": (
        "5:cpu,cpuacct:/x\n4:memory:/a\n0::/\n",
        {"memory/a/memory.limit_in_bytes": f"{GIB}\n", "cpu/x/memory.limit_in_bytes": "1\n"},
        [GIB],
    ),
    "version 1, in a container that sees the machine's path": (
        "4:hugetlb,memory:/docker/1234\n",
        {"memory/memory.limit_in_bytes": f"{GIB}\n"},
        [GIB],
    ),
    "outside of what is seen": ("0::/../../a\n", {"memory.max": f"{GIB}\n"}, [GIB]),
    "none": ("", {"memory.max": "1\n"}, []),
}


@pytest.mark.parametrize("name", CASES)
def test_limits_of_control_groups_are_found(tmp_path: pathlib.Path, name: str) -> None:
    lines, files, expected = CASES[name]
    groups_of_self, mounted = tmp_path / "cgroup", tmp_path / "mounted"
    groups_of_self.write_text(lines)
    for path, text in files.items():
        (mounted / path).parent.mkdir(parents=True, exist_ok=True)
        (mounted / path).write_text(text)
    assert list(machine._limits(groups_of_self, mounted)) == expected


def test_without_control_groups_there_is_no_limit(tmp_path: pathlib.Path) -> None:
    assert list(machine._limits(tmp_path / "cgroup", tmp_path)) == []


def test_this_machine() -> None:
    assert 0 < machine.machine_bytes() <= MACHINE
