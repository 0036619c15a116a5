"""Every Python block in README.md and docs/*.md runs, those of a file in one namespace.

What they print is what the file's ``text`` blocks say.
"""

from __future__ import annotations

import contextlib
import io
import pathlib
import re
import tempfile
from collections.abc import Iterator

import pytest

ROOT = pathlib.Path(__file__).parents[2]
PAGES = [path for part in (".", "howto") for path in (ROOT / "docs" / part).glob("*.md")]
FILES = [ROOT / "README.md", *sorted(PAGES)]
FRAMEWORKS = (
    "tensorflow",
    "keras",
    "torch",
    "jax",
    "grain",
    "datasets",
    "PIL",
    "dask",
    "ray",
    "fsspec",
)
ON_S3 = ("cloud.md", "far.md", "team-on-s3.md")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

NAMES = re.compile(r'(cacheable\()?"([a-z/-]+)", "([\d.-]+)"')


def blocks(path: pathlib.Path, language: str) -> list[tuple[int, str]]:
    """Line number and contents of the blocks of a language."""
    text = path.read_text(encoding="utf-8")
    return [
        (text.count("\n", 0, match.start(2)) + 1, match[2])
        for match in BLOCK.finditer(text)
        if match[1] == language
    ]


def run(path: pathlib.Path) -> str:
    """Runs the Python blocks of a file; returns what they print."""
    namespace = {"__name__": "__main__"}
    printed = io.StringIO()
    for line, code in blocks(path, "python"):
        # Blank lines, so that a traceback names the line of the document.
        compiled = compile("\n" * (line - 1) + code, str(path), "exec")
        with contextlib.redirect_stdout(printed):
            exec(compiled, namespace)
    return printed.getvalue()


# Keras makes arrays of its variables in a way that NumPy 2 deprecates.
@pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy keyword")
# Ray Data warns of its own defaults.
@pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\.data\.context")
@pytest.mark.parametrize("path", [p for p in FILES if blocks(p, "python")], ids=lambda p: p.name)
def test_blocks_run(
    path: pathlib.Path, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for framework in FRAMEWORKS:
        imports = re.compile(rf"(import|from) (yogadl\.)?{framework}\b")
        if any(imports.search(code) for _, code in blocks(path, "python")):
            pytest.importorskip(framework)
    monkeypatch.chdir(tmp_path)
    with contextlib.ExitStack() as stack:
        if path.name in ON_S3:
            stack.enter_context(_store(monkeypatch))
        if path.name == "ray.md":
            stack.enter_context(_nodes(monkeypatch))
        assert run(path) == "".join(text for _, text in blocks(path, "text"))


@contextlib.contextmanager
def _store(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Has boto3 take a server on this machine for S3; with the bucket of the page."""
    boto3 = pytest.importorskip("boto3")
    pytest.importorskip("moto")
    monkeypatch.syspath_prepend(ROOT / "tests" / "cloud")
    from rig import environment
    from servers import s3_server

    with s3_server() as server:
        for name, value in environment("s3", server.url).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        client = boto3.session.Session().client("s3")
        client.create_bucket(Bucket="my-bucket")
        client.close()
        yield


@contextlib.contextmanager
def _nodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ends the nodes of Ray that the page has started."""
    import ray

    # Ray's names of sockets have to be short, which pytest's folders are not.
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp") as folder:
        monkeypatch.setenv("RAY_TMPDIR", folder)
        monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        monkeypatch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        try:
            yield
        finally:
            ray.shutdown()


def test_no_block_is_missed() -> None:
    fence = re.compile(
        r"^[ \t>]*(?:```+|~~~+|:::+)[ \t]*(?:\{code-block\}[ \t]*)?(?:py|python3?)\b", re.MULTILINE
    )
    for path in FILES:
        found = fence.findall(path.read_text(encoding="utf-8"))
        assert len(found) == len(blocks(path, "python")), path.name


def test_blocks_are_found() -> None:
    assert len([path for path in FILES if blocks(path, "python")]) >= 6


def test_who_can_run_a_page_once_is_told() -> None:
    """A change makes no version twice."""
    once = re.compile(r"\.change\([^)]*\bversion=")
    found = [path for path in FILES if any(once.search(code) for _, code in blocks(path, "python"))]
    assert len(found) >= 5
    for path in found:
        text = " ".join(path.read_text(encoding="utf-8").split())
        assert re.search(r"[Tt]o run (it|this|this page) again, delete ", text), path.name


def test_no_page_reads_what_another_has_stored() -> None:
    """Who works through several in one folder is told of no stale cache."""
    used: dict[tuple[str, str], set[str]] = {}
    cached = set()
    for path in FILES:
        for _, code in blocks(path, "python"):
            for call, name, version in NAMES.findall(code):
                used.setdefault((name, version), set()).add(path.name)
                if call:
                    cached.add((name, version))
    assert len(cached) >= 10
    assert [(key, used[key]) for key in cached if len(used[key]) > 1] == []
