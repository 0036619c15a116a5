"""Data cards: what is known of a version, on a page for people.

It knows nothing of storages. All texts may come from files that others wrote.
"""

from yogadl.cards._card import Card
from yogadl.cards._sample import ComponentSample, sample_of

__all__ = ["Card", "ComponentSample", "sample_of"]
