"""A script as people train with."""

# ruff: noqa: E501 # edits are easier to compare on one line

from __future__ import annotations

from programs._program import Program

PROGRAMS: dict[str, Program] = {}

PROGRAMS["a training script"] = Program(
    """
=== main.py
'''Makes the training set.'''
from __future__ import annotations
import dataclasses
import enum
import functools
import logging
import os
import random
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple, Optional

from .config import DEFAULTS, Config, Split, Stage
from .pipeline import Compose, Normalize, Pad, build, registered
from . import vocab as V
if TYPE_CHECKING:
    from .never import Nothing

logger = logging.getLogger(__name__)
SEED: Final = 17
BATCH = 4
SIZES = [2 ** n for n in range(3)]
LIMITS = dict(low=0.1, high=0.9)
CLASSES = ("cat", "dog", "bird")
TO_INDEX = {name: n for n, name in enumerate(CLASSES)}
cfg = Config(batch=BATCH, split=Split.TRAIN)
steps = Compose([Normalize(mean=0.5), Pad(2, value=-1)])

class Sample(NamedTuple):
    name: str
    label: int = 0

def rng_for(seed: int = SEED) -> random.Random:
    return random.Random(seed)

def label_of(name: str, table=TO_INDEX) -> int:
    return table.get(name, -1)

def samples(config: Config, *, shuffle: bool = True):
    rng = rng_for()
    names = list(CLASSES) * config.repeat
    if shuffle:
        rng.shuffle(names)
    for name in names:
        yield Sample(name, label_of(name))

def log_count(rows):
    logger.info("rows: %d", len(rows))

def make():
    rows = []
    for sample in samples(cfg):
        values = steps([0.5 * n for n in SIZES])
        rows.append((sample, V.encode(sample.name), values, cfg.total))
    log_count(rows)
    rows.append(build("scale", 3)(2))
    rows.append(Stage.current().describe())
    rows.append([LIMITS["low"], DEFAULTS.lr, V.special["pad"], registered()])
    return rows

def main() -> None:
    for row in make():
        print(row)

if __name__ == "__main__":
    main()
=== config.py
import dataclasses
import enum
from typing import ClassVar, Optional

class Split(str, enum.Enum):
    TRAIN = "train"
    TEST = "test"

    @property
    def is_train(self):
        return self is Split.TRAIN

class Stage(enum.IntEnum):
    RAW = 1
    DONE = 2

    @classmethod
    def current(cls):
        return max(cls)

    def describe(self):
        return f"{self.name}={int(self)}"

@dataclasses.dataclass(frozen=True)
class Base:
    repeat: int = 2

@dataclasses.dataclass(frozen=True)
class Config(Base):
    '''The options.'''
    batch: int = 1
    split: Split = Split.TEST
    scale: ClassVar[float] = 2.0

    @property
    def total(self) -> float:
        return self.batch * self.repeat * self.scale

@dataclasses.dataclass
class Defaults:
    lr: float = 1e-3
    wd: float = 0.0

DEFAULTS = Defaults()
=== pipeline/__init__.py
from .compose import Compose
from .steps import Normalize, Pad
from .registry import build, registered
=== pipeline/compose.py
class Compose:
    def __init__(self, steps):
        self.steps = steps

    def __call__(self, values):
        for step in self.steps:
            values = step(values)
        return values
=== pipeline/steps.py
from abc import ABC, abstractmethod

class Step(ABC):
    bias = 0.0

    @abstractmethod
    def apply(self, values): ...

    def __call__(self, values):
        return [value + self.bias for value in self.apply(values)]

class Normalize(Step):
    def __init__(self, mean, std=2.0):
        self.mean, self.std = mean, std

    def apply(self, values):
        return [(value - self.mean) / self.std for value in values]

class Pad(Step):
    def __init__(self, count, value=0):
        self.count = count
        self.value = value

    def apply(self, values):
        return values + [self.value] * self.count
=== pipeline/registry.py
_REGISTRY = {}

def register(name):
    def inner(cls):
        _REGISTRY[name] = cls
        return cls
    return inner

@register("scale")
class Scale:
    def __init__(self, by):
        self.by = by
    def __call__(self, value):
        return value * self.by

@register("shift")
class Shift:
    def __init__(self, by):
        self.by = by
    def __call__(self, value):
        return value + self.by

def build(name, *args):
    return _REGISTRY[name](*args)

def registered():
    return sorted(_REGISTRY)
=== vocab.py
import string
LETTERS = string.ascii_lowercase
special = {"pad": 0, "unk": 1}
_table = {letter: n + len(special) for n, letter in enumerate(LETTERS)}

def encode(word):
    '''Letters to numbers.'''
    return [_table.get(letter, special["unk"]) for letter in word]
""",
    (
        ("SEED: Final = 17", "SEED: Final = 18"),
        ("BATCH = 4", "BATCH = 5"),
        ("2 ** n", "3 ** n"),
        ("low=0.1", "low=0.2"),
        ('"cat", "dog", "bird"', '"dog", "cat", "bird"'),
        ('"cat", "dog", "bird"', '"cat", "dog", "bird", "cow"'),
        ("name: n for n,", "name: n + 1 for n,"),
        ("enumerate(CLASSES)", "enumerate(CLASSES, 1)"),
        ("split=Split.TRAIN)", "split=Split.TRAIN, repeat=1)"),
        ("Normalize(mean=0.5)", "Normalize(0.25)"),
        ("Pad(2, value=-1)", "Pad(2)"),
        ("[Normalize(mean=0.5), Pad(2, value=-1)]", "[Pad(2, value=-1), Normalize(mean=0.5)]"),
        ("table.get(name, -1)", "table.get(name, -1) + 1"),
        ("shuffle: bool = True", "shuffle: bool = False"),
        ("random.Random(seed)", "random.Random(seed + 1)"),
        ("0.5 * n for n", "0.25 * n for n"),
        ('build("scale", 3)', 'build("shift", 3)'),
        ("DONE = 2", "DONE = 3"),
        ("return max(cls)", "return min(cls)"),
        ("{self.name}={int(self)}", "{self.name}:{int(self)}"),
        ("repeat: int = 2", "repeat: int = 3"),
        ("scale: ClassVar[float] = 2.0", "scale: ClassVar[float] = 3.0"),
        ("self.batch * self.repeat", "self.batch + self.repeat"),
        ("lr: float = 1e-3", "lr: float = 1e-4"),
        ("DEFAULTS = Defaults()", "DEFAULTS = Defaults(lr=5)"),
        ("DEFAULTS = Defaults()", "DEFAULTS = Defaults()\nDEFAULTS.lr *= 10"),
        ("for step in self.steps", "for step in self.steps[::-1]"),
        ("bias = 0.0", "bias = 0.5"),
        ("value + self.bias", "value - 1 + self.bias"),
        ("std=2.0", "std=4.0"),
        ("[self.value] * self.count", "[self.value] * (self.count + 1)"),
        ('@register("shift")\n', ""),
        ('@register("shift")', '@register("move")'),
        ("return value * self.by", "return value ** self.by"),
        ("string.ascii_lowercase", "string.ascii_lowercase[::-1]"),
        ('"unk": 1', '"unk": 1, "bos": 2'),
        ('"pad": 0', '"pad": 9'),
        ("n + len(special)", "n + 2 * len(special)"),
        (
            "from .compose import Compose",
            "from .compose import Compose as _C\nclass Compose(_C):\n    def __call__(self, v): return _C.__call__(self, v) * 2",
        ),
        ("class Normalize(Step):", "class Normalize(Step):\n    bias = 7"),
        ("label: int = 0", "tag: int = 0"),
        (
            "_REGISTRY[name] = cls\n",
            "_REGISTRY[name] = cls\n        cls.__call__ = lambda self, v: v\n",
        ),
    ),
    (
        ("'''Makes the training set.'''\n", ""),
        ("from .never import Nothing", "from .never import Nothing, More"),
        ("if TYPE_CHECKING:\n    from .never import Nothing\n", ""),
        ("logger = logging.getLogger(__name__)", 'logger = logging.getLogger("train")'),
        ("SEED: Final = 17", "SEED = 17"),
        ("SEED: Final = 17", "SEED = 0x11"),
        ("SEED: Final = 17", "SEED = 10 + 7"),
        ("SIZES = [2 ** n for n in range(3)]", "SIZES = [1, 2, 4]"),
        ("LIMITS = dict(low=0.1, high=0.9)", 'LIMITS = {"low": .1, "high": 9e-1}'),
        ('CLASSES = ("cat", "dog", "bird")', 'CLASSES = "cat", "dog", "bird"'),
        (
            "TO_INDEX = {name: n for n, name in enumerate(CLASSES)}",
            "TO_INDEX = dict(zip(CLASSES, range(3)))",
        ),
        ("Pad(2, value=-1)", "Pad(count=2, value=-1)"),
        (
            "cfg = Config(batch=BATCH, split=Split.TRAIN)",
            "cfg = dataclasses.replace(Config(), batch=BATCH, split=Split('train'))",
        ),
        (
            "def main() -> None:\n    for row in make():\n        print(row)",
            "def main() -> None:\n    for row in make()[:2]:\n        print(row)\n    return None",
        ),
        (
            'if __name__ == "__main__":\n    main()',
            'if __name__ == "__main__":\n    import sys\n    sys.exit(main())',
        ),
        (
            "    '''The options.'''\n",
            "    '''All options.\n\n    Attributes:\n        batch: of records.\n    '''\n\n",
        ),
        (
            "import dataclasses\nimport enum\nfrom typing import ClassVar, Optional\n",
            "from typing import ClassVar, Optional\nimport enum, dataclasses\n",
        ),
        (
            "from .steps import Normalize, Pad\n",
            "from .steps import Pad\nfrom .steps import Normalize\n",
        ),
        (
            "from .steps import Normalize, Pad\n",
            "from shop.pipeline.steps import (\n    Normalize,\n    Pad,\n)\n__all__ = ['Normalize']\n",
        ),
        ("DEFAULTS = Defaults()", "DEFAULTS = Defaults(1e-3)"),
        ("special = {", "special: dict[str, int] = {"),
        ("    '''Letters to numbers.'''\n", ""),
        ("@dataclasses.dataclass\nclass Defaults", "@dataclasses.dataclass()\nclass Defaults"),
        (
            "_table = {letter: n + len(special) for n, letter in enumerate(LETTERS)}",
            "_table = {}\nfor _n, _letter in enumerate(LETTERS):\n    _table[_letter] = _n + 2\n",
        ),
        ("random.Random(seed)\n", "random.Random(\n        seed,\n    )\n"),
        (
            "    names = list(CLASSES) * config.repeat\n",
            "    names = list(CLASSES) \\\n        * config.repeat\n",
        ),
        ("from . import vocab as V\n", "import shop.vocab as V\n"),
        ("from . import vocab as V\n", "from shop import vocab as V\n"),
        ("import os\nimport random\n", "import random\n"),
        (
            "        self.count = count\n        self.value = value\n",
            "        self.count = count  # how many\n\n        self.value = value  # noqa\n",
        ),
        ("    RAW = 1\n    DONE = 2\n", "    RAW = 0b1\n    DONE = 1 + 1\n"),
        ("class Split(str, enum.Enum):", "@enum.unique\nclass Split(str, enum.Enum):"),
        ("BATCH = 4\n", "BATCH = 4\nUNUSED = 5\nassert BATCH\n"),
    ),
)
