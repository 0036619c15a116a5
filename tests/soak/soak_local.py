"""Builders on the local file system that are killed, beside readers that compare every record."""

from __future__ import annotations

from typing import Any

from soak_builders import REPLACED, KilledBuilders

from yogadl.storage import LFSConfigurations, LFSStorage


class LocalKills(KilledBuilders):
    """Versions in one folder, which all processes share."""

    def storage(self, machine: str) -> Any:
        """See ``KilledBuilders.storage``."""
        del machine
        return LFSStorage(LFSConfigurations(self.folder))

    def round(self) -> None:
        """See ``Job.round``."""
        self.chance.choice((self.replace, self.build))()

    def check_left(self, machine: str, was_finished: bool) -> None:
        """See ``KilledBuilders.check_left``."""
        del machine
        names = {path.name for path in self.folder.joinpath(*REPLACED).iterdir()}
        assert "cache.mdb" in names
        left = names - {"cache.mdb"}
        # Who was killed just after it was stored leaves what kept its folder there: it goes when
        # somebody writes there next, so there is never more of it.
        may_be_left = not was_finished and all(name.endswith(".partial") for name in left)
        assert len(left) <= may_be_left, f"left behind: {names}"

    def prepare_build(self, version: str) -> None:
        """Puts there what somebody else's crash may have left."""
        if self.chance.random() >= 0.3:
            return
        folder = self.folder / "built" / version
        folder.mkdir(parents=True)
        data = self.chance.choice((b"", b"not a cache", self.chance.randbytes(20_000)))
        for name in ("cache.mdb", "cache.mdb.0123.partial"):
            (folder / name).write_bytes(data)

    def check_builds(self, builds: int, killed: int) -> None:
        """See ``KilledBuilders.check_builds``."""
        assert 1 <= builds <= 1 + killed, f"built {builds} times with {killed} killed"
