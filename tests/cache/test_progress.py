"""What users see of long work: on a terminal (see test_lfs), in a notebook, and in a log file."""

from __future__ import annotations

import pathlib
import subprocess
import sys
import textwrap
from typing import Any

import pytest

# A program's lines come every twentieth of a second, instead of every half minute, and bars after
# as long.
HEAD = """
import logging, sys, threading, time
import yogadl.cache.progress, yogadl.cache.writer
yogadl.cache.progress._LINE_SECONDS = 0.05
yogadl.cache.progress._BAR_SECONDS = 0.05
yogadl.cache.writer._FLUSH_SECONDS = 0.05
from yogadl.storage import LFSStorage
storage = LFSStorage(sys.argv[1])

def slow():
    for number in range(40):
        time.sleep(0.01)  # in all, the time of eight lines
        yield number
"""


def said_by(program: str, folder: pathlib.Path) -> str:
    arguments = [sys.executable, "-c", HEAD + textwrap.dedent(program), str(folder / "store")]
    return subprocess.run(arguments, capture_output=True, text=True, check=True).stderr


def test_a_slow_generator_is_seen_to_get_on(tmp_path: pathlib.Path) -> None:
    """Though all its records would fit into one write."""
    lines = said_by("storage.submit(slow(), 'a', '1')", tmp_path).splitlines()
    assert all(line.startswith("yogadl: Writing a:1: ") for line in lines)
    counts = [int(line.split("a:1: ")[1].split(" ")[0]) for line in lines]
    assert len(counts) >= 2
    assert counts == sorted(set(counts))
    assert 0 < counts[0] < counts[-1] <= 40


def test_a_change_names_the_version_that_it_makes(tmp_path: pathlib.Path) -> None:
    program = """
        storage.submit([{"x": x} for x in range(40)], "a", "1")
        with storage.change("a", "1", version="2") as change:
            change.add("y", slow())
        with storage.change("a", "2", version="3") as change:
            change.update(lambda record: time.sleep(0.01) or record)
    """
    lines = said_by(program, tmp_path).splitlines()
    for doing in ("Writing a:2", "Updating a:3"):
        assert [line for line in lines if line.startswith(f"yogadl: {doing}: ")]
    assert "scratch" not in "".join(lines)


def test_who_has_set_up_a_log_reads_it_there(tmp_path: pathlib.Path) -> None:
    program = """
        logging.basicConfig(level=logging.INFO)

        @storage.cacheable("a", "1")
        def make():
            return slow()
        make()
    """
    lines = said_by(program, tmp_path).splitlines()
    assert not [line for line in lines if line.startswith("yogadl:")]
    assert "Building a:1 by __main__.make, since it is not stored." in lines[0]
    assert "Stored a:1" in lines[-1]
    assert len([line for line in lines if "records/s" in line]) >= 2


def test_who_wants_to_read_warnings_only_does(tmp_path: pathlib.Path) -> None:
    program = "logging.basicConfig(level=logging.WARNING)\nstorage.submit(slow(), 'a', '1')"
    assert said_by(program, tmp_path) == ""


def test_a_wait_is_told(tmp_path: pathlib.Path) -> None:
    program = """
        began, told_twice, told = threading.Event(), threading.Event(), []
        plain = yogadl.cache.progress.tell

        def tell(line):
            plain(line)
            told.append(line)
            if len(told) == 2:
                told_twice.set()
        yogadl.cache.progress.tell = tell

        @storage.cacheable("a", "1")
        def make():
            began.set()
            assert told_twice.wait(60)
            return [1]
        builder = threading.Thread(target=make)
        builder.start()
        began.wait()
        make()
        builder.join()
    """
    # On a busy machine, writing one record may take long enough to be told, too.
    lines = [line for line in said_by(program, tmp_path).splitlines() if "Writing" not in line]
    assert len(lines) >= 2
    for line in lines:
        assert line.startswith("yogadl: Waiting for another builder of a:1 since ")


def test_quick_work_is_silent(tmp_path: pathlib.Path) -> None:
    program = "yogadl.cache.progress._LINE_SECONDS = 30\nstorage.submit(slow(), 'a', '1')"
    assert said_by(program, tmp_path) == ""


@pytest.fixture
def kernel() -> Any:
    """A client of a Jupyter kernel of its own."""
    pytest.importorskip("ipykernel", reason="needs Jupyter's kernel")
    from jupyter_client.manager import start_new_kernel

    manager, client = start_new_kernel(startup_timeout=60)
    yield client
    client.stop_channels()
    manager.shutdown_kernel(now=True)


def test_a_notebook_gets_a_bar(kernel: Any, tmp_path: pathlib.Path) -> None:
    program = HEAD.replace("sys.argv[1]", repr(str(tmp_path / "store")))
    # Without widgets, it is one of text.
    program += "sys.modules['ipywidgets'] = None\n"
    shown: list[str] = []

    def keep(message: Any) -> None:
        if message["msg_type"] == "stream":
            shown.append(message["content"]["text"])

    reply = kernel.execute_interactive(
        program + "storage.submit(slow(), 'a', '1')", timeout=60, output_hook=keep
    )
    assert reply["content"]["status"] == "ok"
    text = "".join(shown)
    assert "Writing" in text
    assert "Writing a:1" in text
    assert " 40 records" in text


def widgets_shown(kernel: Any, program: str) -> int:
    """How many bars a program shows below a cell, as widgets."""
    found = 0

    def count(message: Any) -> None:
        nonlocal found
        if message["msg_type"] == "display_data":
            found += "application/vnd.jupyter.widget-view+json" in message["content"]["data"]

    reply = kernel.execute_interactive(program, timeout=60, output_hook=count)
    assert reply["content"]["status"] == "ok"
    return found


def test_a_widget_is_shown_for_slow_work_only(kernel: Any, tmp_path: pathlib.Path) -> None:
    pytest.importorskip("ipywidgets")
    head = HEAD.replace("sys.argv[1]", repr(str(tmp_path / "store")))
    assert widgets_shown(kernel, head + "storage.submit(slow(), 'a', '1')") == 1
    quick = "yogadl.cache.progress._BAR_SECONDS = 60\nstorage.submit(slow(), 'a', '2')"
    assert widgets_shown(kernel, quick) == 0
