"""An environment of its own for every loader that is compared."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys
import venv

from loaders import requirements

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
INSTALL_SECONDS = 1200

OWN = ("this_yogadl", "floors")
"""What runs in the environment that the benchmark itself runs in."""

OLD_YOGADL = {"yogadl_014": ["yogadl==0.1.4", "tensorflow", "lmdb<2", "websockets<14"]}


class UnavailableError(Exception):
    """An environment cannot be made here, in words for the report."""


def required() -> dict[str, list[str]]:
    """What pip is to install, by loader."""
    return {**OLD_YOGADL, **requirements.REQUIREMENTS}


def names() -> list[str]:
    """All loaders, this tree's yogadl first."""
    return ["this_yogadl", *required()]


def interpreter(name: str, existing: dict[str, str]) -> str:
    """The Python interpreter for a loader, in an environment that is made if need be.

    Args:
        name: of a loader, or of ``requirements.FRAMEWORKS`` or ``requirements.FAR``.
        existing: interpreters to be used as they are, by loader.

    Raises:
        UnavailableError: something is missing on this machine, or cannot be installed.
    """
    if name in existing:
        if shutil.which(existing[name]) is None:
            raise UnavailableError("the interpreter that was named is not there")
        return existing[name]
    if name in OWN:
        return sys.executable
    _check_system(name)
    known = {**required(), **requirements.FRAMEWORKS, **requirements.FAR}
    wanted = known[name]
    # Loaders with the same requirements share the first one's environment.
    first = next(other for other, listed in known.items() if listed == wanted)
    directory = REPOSITORY / f".venv-bench-{first}"
    python = directory / "bin" / "python"
    stamp = directory / "requirements.txt"
    text = "\n".join(wanted) + "\n"
    if not stamp.exists() or stamp.read_text() != text:
        print(f"Making {directory.name} …", file=sys.stderr)
        shutil.rmtree(directory, ignore_errors=True)
        _install(directory, python, wanted)
        stamp.write_text(text)
    return str(python)


def _install(directory: pathlib.Path, python: pathlib.Path, wanted: list[str]) -> None:
    try:
        venv.create(directory, with_pip=True)
        command = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run(
            [*command, *wanted],
            check=True,
            stdout=sys.stderr,
            stderr=subprocess.PIPE,
            text=True,
            timeout=INSTALL_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        sys.stderr.write(error.stderr or "")
        raise UnavailableError(f"cannot be installed: {_last_error(error.stderr)}") from error
    except subprocess.TimeoutExpired as error:
        raise UnavailableError(f"not installed after {INSTALL_SECONDS} s") from error
    except OSError as error:
        raise UnavailableError(f"cannot be installed: {error.strerror}") from error


def _last_error(output: str | None) -> str:
    """The last line in which pip tells what went wrong."""
    lines = [line for line in (output or "").splitlines() if line.lower().startswith("error")]
    return lines[-1][:200] if lines else "see the messages of pip"


def _check_system(name: str) -> None:
    """Looks for the system's libraries that a loader is built with.

    Raises:
        UnavailableError: some are not there.
    """
    missing = [library for library in requirements.SYSTEM.get(name, ()) if not _has(library)]
    if missing:
        raise UnavailableError(f"pkg-config does not find {', '.join(missing)}")


def _has(library: str) -> bool:
    if shutil.which("pkg-config") is None:
        return False
    command = ["pkg-config", "--exists", library]
    return subprocess.run(command, check=False).returncode == 0
