"""What seems to be given to objects of the user's own, or to be a library's, and is not: it counts
like all that users put into libraries.

Rules that took objects of classes that a text defines for its own were tried, and each of these
programs deceived one of them: what such a class has when an object gets an attribute, nobody can
tell later.
"""

from __future__ import annotations

import pytest
from overlooked import CONFX, TO_B, Cases, Told, check, told_of

TEXT = """
import confx, functools
def text(value): return "A"
def make(): return confx.encode(1)
"""
# They give ``text`` to the library, where it seems to be given to something else.
PROGRAMS = """
### made by __new__
class Node:
    def __new__(cls): return confx.config
node = Node()
node.encoder = text
### made by an assigned __new__
class Node: __new__ = confx.keeper
node = Node()
node.encoder = text
### made by __new__ of later
class Node: pass
Node.__new__ = confx.keeper
node = Node()
node.encoder = text
### made by a metaclass
class Meta(type):
    def __call__(cls): return confx.config
class Node(metaclass=Meta): pass
class More(Node): pass
node = More()
node.encoder = text
### a class that is decorated
@confx.keeper
class Node: pass
Node.encoder = text
### a class with two meanings
class Node: pass
Node = confx.keeper
node = Node()
node.encoder = text
### a class of either
if 1: Node = confx.keeper
else:
    class Node: pass
node = Node()
node.encoder = text
### a class of a library
class Node(confx.Keeper): pass
node = Node()
node.kept = text
### a class of one of a library
class Base(confx.Keeper): pass
class Node(Base): pass
node = Node()
node.kept = text
### a base with two meanings
class Base: pass
Base = confx.Keeper
class Node(Base): pass
node = Node()
node.kept = text
### other bases
class Base: pass
class Node(Base): pass
Node.__bases__ = (confx.Keeper,)
node = Node()
node.kept = text
### a property of a library
class Node: kept = confx.Keeper.kept
node = Node()
node.kept = text
### a property that is imported
class Node: from confx import kept
node = Node()
node.kept = text
### a property that is made
class Node:
    @confx.Keeper.kept.getter
    def kept(self): return 1
node = Node()
node.kept = text
### a property that comes later
class Node: pass
Node.kept = confx.Keeper.kept
node = Node()
node.kept = text
### a property that is set by its name
class Node: pass
setattr(Node, "kept", confx.Keeper.kept)
node = Node()
node.kept = text
### a property that a class method sets
class Node:
    @classmethod
    def change(cls): cls.kept = confx.Keeper.kept
Node.change()
node = Node()
node.kept = text
### a property of all classes below
class Base:
    def __init_subclass__(cls): cls.kept = confx.Keeper.kept
class Node(Base): pass
node = Node()
node.kept = text
### a property that another module sets
class Node: pass
def put():
    node = Node()
    node.kept = text
from . import other
other.change()
put()
=== other.py
import confx
def change():
    from . import main
    main.Node.kept = confx.Keeper.kept
### a property that is a value of its own
class Node: pass
class Kept:
    def __set__(self, node, value): confx.config.encoder = value
Node.kept = Kept()
node = Node()
node.kept = text
### a property that a loop sets
class Node: pass
for Node.kept in [confx.kept]: pass
node = Node()
node.kept = text
### a property of a base
class Base: pass
class Node(Base): pass
Base.kept = confx.kept
node = Node()
node.kept = text
### a property that a library sets
class Node: pass
confx.instrument(Node)
node = Node()
node.kept = text
### a property that a library sets by its name
class Node: x = confx.Setting()
node = Node()
node.kept = text
### a property that a field sets
import dataclasses
@dataclasses.dataclass
class Node:
    x: object = confx.Setting()
node = Node()
node.kept = text
### a property in a list
class Node: kept, x = [confx.kept, 1]
node = Node()
node.kept = text
### a property in a list of one
class Node: [kept] = [confx.kept]
node = Node()
node.kept = text
### __new__ in a list
class Node: __new__, x = [confx.keeper, 1]
node = Node()
node.encoder = text
### a property in an expression
class Node: a = [(kept := confx.kept)]
node = Node()
node.kept = text
### a property in an annotation
class Node: a: (kept := confx.kept)
node = Node()
node.kept = text
### __new__ in an annotation
class Node: a: (__new__ := confx.keeper) = 1
node = Node()
node.encoder = text
### a property in a default
class Node:
    def f(this, x=(kept := confx.kept)): pass
node = Node()
node.kept = text
### __new__ in a hint
class Node:
    def f(this) -> (__new__ := confx.keeper): pass
node = Node()
node.encoder = text
### a property in a decorator
class Node:
    @(kept := confx.kept).getter
    def g(this): pass
node = Node()
node.kept = text
### another class of its own
class Node:
    def __init__(self): self.__class__ = confx.Keeper
node = Node()
node.kept = text
### another class by its name
class Node:
    def __init__(self): setattr(self, '__class__', confx.Keeper)
node = Node()
node.kept = text
### other bases by a method
class Base: pass
class Node(Base): pass
class Helper:
    def put(self): self.__bases__ = (confx.Keeper,)
Helper.put(Node)
node = Node()
node.kept = text
### self by another name
class Node(confx.Keeper):
    def put(self):
        node = self
        node.kept = text
Node().put()
### cls with a metaclass of a library
class Node(metaclass=confx.KeepMeta):
    @classmethod
    def put(cls): cls.kept = text
Node.put()
### cls with a base that has one
class Node(confx.OfKeepMeta):
    @classmethod
    def put(cls): cls.kept = text
Node.put()
### cls of a class below
class Node:
    def __init_subclass__(cls): cls.kept = text
class More(Node, confx.OfKeepMeta): pass
### a class with a metaclass of a library
class Node(metaclass=confx.KeepMeta): pass
Node.kept = text
### no class method
classmethod = staticmethod
class Node:
    @classmethod
    def put(cls): cls.one = text
Node.put(confx.config)
def make(): return confx.one(1)
### globals by another name
class Node: pass
from .other import fetch
fetch()['Node'] = confx.keeper
node = Node()
node.encoder = text
=== other.py
fetch = globals
### a name that is private to a class
class Node: pass
__node = Node()
_C__node = confx.config
class C:
    def put(self): __node.encoder = text
C().put()
### a value that is private to a class
__value = 1
_C__value = text
class C:
    def put(this): confx.config.encoder = __value
C().put()
### an argument that is private to a class
class Node: pass
__n = Node()
class C:
    def put(this, _C__n): __n.encoder = text
C().put(confx.config)
### a module with the name of a library's
from . import put
=== put/__init__.py
import json, confx
from .json import other
def put(): confx.config.encoder = json.text
put()
=== put/json.py
def other(): pass
def text(value): return 'C'
### a module with the name of functools
from .put import text as never
=== put/__init__.py
import functools, confx
from .functools import other
def text(value): return 'C'
@functools.wraps(text)
def node(): pass
node.encoder = text
=== put/functools.py
import confx
def other(): pass
def wraps(f): return lambda g: confx.config
### what a library was given
import threading
threading.settrace(text)
confx.config.encoder = threading._trace_hook
threading.settrace(None)
### what a library of it was given
import logging
logging.setLogRecordFactory(text)
confx.config.encoder = logging._logRecordFactory
logging.setLogRecordFactory(logging.LogRecord)
### what a library has taken
confx.keep(text)
confx.config.one = confx.config.taken
def make(): return confx.one(1)
### what of it a library has taken
class Node: pass
confx.keep(Node)
Node.fn2 = text
confx.space.fn = confx.config.taken.fn2
def make(): return confx.called(1)
### what a library calls something else
confx.checked._encoder = text
confx.space.fn = confx.checked.wrapped
confx.checked._encoder = str
def make(): return confx.called(1)
### what a library has put among Python's
import gettext
class T(gettext.NullTranslations):
    def gettext(self, message): return 'C'
T().install()
confx.config.encoder = _
### a property that is deleted
class Node: kept = confx.kept
node = Node()
node.kept = text
del Node.kept
### a property that is deleted by its name
class Node: kept = confx.kept
node = Node()
node.kept = text
delattr(Node, "kept")
### a property that is replaced
class Node: kept = confx.kept
node = Node()
node.kept = text
Node.kept = 1
### a property of a library's that is replaced
class Node: pass
confx.instrument(Node)
node = Node()
node.kept = text
Node.kept = 1
### a class that is defined twice
for base in (confx.Keeper, object):
    class Node(base): pass
    Node().kept = text
### a class that is decorated once
for way in (confx.keeper, confx.same):
    @way
    class Node: pass
    Node.encoder = text
### a module that is loaded twice
try: Base
except NameError: Base, again = confx.Keeper, False
else: Base, again = object, True
class Node(Base): pass
Node().kept = text
if not again:
    import importlib, sys
    importlib.reload(sys.modules[__name__])
### a function that is replaced for a while
import contextlib, json
@contextlib.contextmanager
def swapped():
    old, json.dumps = json.dumps, text
    yield
    json.dumps = old
with swapped(): confx.config.encoder = json.dumps
### a name that a library gives
class Node: pass
node = Node()
confx.inject('node', confx.config)
node.encoder = text
### what converts by a library
confx.inject('str', confx.same)
confx.config.encoder = str(text)
### an object that a library changes
class Node: pass
node = Node()
confx.promote(node)
node.kept = text
### a class that is called otherwise
import abc
abc.ABCMeta.__call__ = lambda cls, *a: confx.config
class Node(abc.ABC): pass
node = Node()
node.encoder = text
del abc.ABCMeta.__call__
### a name of another scope
import gettext
class T(gettext.NullTranslations):
    def gettext(self, message): return 'C'
T().install()
class Form: _ = 'label'
confx.config.encoder = _
### its own module as self
class Node: pass
node = Node()
def put(): node.encoder = text
from . import other
other.change()
put()
=== other.py
import confx
from . import main
class Helper:
    def go(self): self.node = confx.config
def change(): Helper.go(main)
### globals
class Node: pass
node = Node()
globals()['node'] = confx.config
node.encoder = text
### locals
class Node: pass
node = Node()
locals()['node'] = confx.config
node.encoder = text
### a loop
class Node: pass
node = Node()
for node in [confx.config]: node.encoder = text
### a comprehension
class Node: pass
node = Node()
[setattr(node, 'encoder', text) for node in [confx.config]]
### a context
import contextlib
class Node: pass
node = Node()
with contextlib.nullcontext(confx.config) as node: node.encoder = text
### a pattern
class Node: pass
node = Node()
match confx.config:
    case node: node.encoder = text
### a pattern of many
class Node: pass
node = Node()
match [confx]:
    case [*node]: node = node[0]
node.config.encoder = text
### an assignment in an expression
class Node: pass
node = Node()
if node := confx.config: node.encoder = text
### another assignment in an expression
class Node: pass
node = Node()
def put():
    if (node := confx.config): node.encoder = text
put()
### an argument
class Node: pass
node = Node()
def put(node): node.encoder = text
put(confx.config)
### an argument of a lambda
class Node: pass
node = Node()
(lambda node: setattr(node, 'encoder', text))(confx.config)
### a tuple
class Node: pass
node, one = Node(), 1
node, one = [confx.config, 2]
node.encoder = text
### a tuple that is told
class Node: pass
node, one = Node(), 1
(node, one) = [*[confx.config], 2]
node.encoder = text
### a starred one
class Node: pass
*node, one = Node(), 1
node, *one = confx.config, 2
node.encoder = text
### a chain
class Node: pass
node = Node()
other = node
other = confx.config
node = other
node.encoder = text
### an attribute
class Node: pass
node = Node()
node.of = confx.config
node.of.encoder = text
### an import
class Node: pass
node = Node()
from confx import config as node
node.encoder = text
### an import of all
class Node: pass
from .other import *
node = Node()
node.encoder = text
=== other.py
import confx
Node = confx.keeper
### another module's
class Node: pass
def put():
    node = Node()
    node.encoder = text
from . import other
other.change()
put()
=== other.py
import confx
def change():
    from . import main
    main.Node = confx.keeper
### another module's by setattr
class Node: pass
def put():
    node = Node()
    node.encoder = text
from . import other
other.change()
put()
=== other.py
import confx
import sys
def change(): setattr(sys.modules['shop.main'], 'Node', confx.keeper)
### another module's class of it
class Base: pass
def put():
    class Node(Base): pass
    node = Node()
    node.kept = text
from . import other
other.change()
put()
=== other.py
import confx
def change():
    from . import main
    main.Base = confx.Keeper
### what is no method of a class
class Node:
    @staticmethod
    def put(cls): cls.encoder = text
Node.put(confx.config)
### what gets a class as cls
class Node:
    def put(cls): cls.encoder = text
Node.put(confx.config)
### a method that is a function
class Node:
    def put(self):
        node = self
        node.encoder = text
    @staticmethod
    def of(self): return self.put(confx.config)
def put(self): self.encoder = text
put(confx.config)
### a function that is replaced
@confx.keeper
def node(): pass
node.encoder = text
### a function that is not wrapped
from confx import keeper as wraps
def replacing(value): return confx.config
wraps = lambda value: replacing
@wraps(make)
def node(): pass
node.encoder = text
### an own value
node = confx.config
value = text
node.encoder = value
### an own value of a module
from . import other
confx.config.encoder = other.text
=== other.py
def text(value): return 'C'
### either value
node = confx.config
node.encoder = str if 0 else text
### one or the other
node = confx.config
node.encoder = 0 or text
### what was a library's
import json
json.encode = text
confx.config.encoder = json.encode
del json.encode
### what was imported of a library
import json
json.encode = text
from json import encode as found
confx.config.encoder = found
del json.encode
### what has another meaning
import json
class json: encode = text
confx.config.encoder = json.encode
### what is not converted
def str(value): return value
confx.config.encoder = str(text)
### what another module converts
def put(): confx.config.encoder = str(text)
from . import other
other.change()
put()
=== other.py
import confx
def change():
    from . import main
    main.str = confx.same
### what Python converts otherwise
import builtins
old = builtins.float
builtins.float = confx.same
confx.config.encoder = float(text)
builtins.float = old
### a default
def put(value=text): confx.config.encoder = value
value = 1
put()
"""
SEEMING = dict(it.split("\n", 1) for it in PROGRAMS.split("### ")[1:])
CASES: Cases = {
    name: (f"{TEXT}{program}{CONFX}", ("return 'C'", "return 'D'") if "'C'" in program else TO_B)
    for name, program in SEEMING.items()
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    return told_of(CASES, tmp_path_factory, "own")


@pytest.mark.parametrize("case", CASES)
def test_edits_that_matter_are_noticed(found: dict[str, Told], case: str) -> None:
    check(found[case])
