"""Files and tables of parts that are damaged in every way, and opened and read; see ``hostile``."""

from __future__ import annotations

import shutil

import hostile
import hostile_damage
import hostile_originals
import hostile_parts
from soak_job import Job


class DamagedFiles(Job):
    """Files of both formats and tables of parts, each damaged in some way and then read in all."""

    def prepare(self) -> None:
        """See ``Job.prepare``."""
        self._originals = hostile_originals.originals()

    def round(self) -> None:
        """See ``Job.round``."""
        # At least one of each, however slow the machine is.
        self._damage_file()
        if self.chance.random() < 0.3 or not self.counts["damaged tables"]:
            self._damage_table()

    def _damage_file(self) -> None:
        original = self.chance.choice(self._originals)
        path = self.folder / "cache.mdb"
        # A new file, since changing one that is mapped would end this process.
        path.unlink(missing_ok=True)
        path.write_bytes(hostile_damage.damage(self.chance, original))
        hostile.check_damaged(path, original)
        self.counts["damaged files"] += 1

    def _damage_table(self) -> None:
        intact = self.chance.choice(hostile_parts.originals())
        changed = hostile_parts.damage(self.chance, intact)
        folder = self.folder / "in parts"
        shutil.rmtree(folder, ignore_errors=True)
        hostile_parts.check_damaged(changed.write(folder), changed, intact)
        self.counts["damaged tables"] += 1
