"""Files that are damaged in every way, and opened and read; see ``hostile``."""

from __future__ import annotations

import hostile
import hostile_damage
import hostile_originals
from soak_job import Job


class DamagedFiles(Job):
    """Files of both formats, each damaged in some way and then read in all."""

    def prepare(self) -> None:
        """See ``Job.prepare``."""
        self._originals = hostile_originals.originals()

    def round(self) -> None:
        """See ``Job.round``."""
        original = self.chance.choice(self._originals)
        path = self.folder / "cache.mdb"
        # A new file, since changing one that is mapped would end this process.
        path.unlink(missing_ok=True)
        path.write_bytes(hostile_damage.damage(self.chance, original))
        hostile.check_damaged(path, original)
        self.counts["damaged files"] += 1
