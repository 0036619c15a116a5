"""What a card is made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from yogadl.cards._sample import ComponentSample
from yogadl.catalogue import CatalogueEntry
from yogadl.recipes import Item


@dataclass(frozen=True)
class Facts:
    """What is known of a version; see ``Card``."""

    entry: CatalogueEntry
    metadata: Mapping[str, Any] = field(default_factory=dict)
    arguments: str = ""
    recipe: tuple[Item, ...] = ()
    log: tuple[CatalogueEntry, ...] = ()
    file_count: int | None = None
    sample_size: int = 0
    sample: tuple[ComponentSample, ...] = ()
