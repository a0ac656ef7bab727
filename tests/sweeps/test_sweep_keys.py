# SPDX-License-Identifier: MIT
"""A trial's key changes with what decides its result, and with nothing else."""

from __future__ import annotations

import functools
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sampleblk_lab as lab
from sampleblk_lab.kernels import Kernel
from sampleblk_lab.sweeps import host, identity, trial
from sampleblk_lab.sweeps.claim import Claim
from sampleblk_lab.sweeps.work import Outcome, Work


def of_source(source: str, name: str = "f") -> str:
    namespace: dict[str, Any] = {"__name__": "experiment"}
    exec(compile(source, "experiment.py", "exec"), namespace)
    return identity.of_function(namespace[name]).digest


BASE = "LIMIT = 3\ndef helper(x):\n    return x + 1\ndef f(a, b=2):\n    return helper(a) * b + LIMIT\n"


def test_comments_and_places_do_not_count() -> None:
    moved = "# a comment\n\n" + BASE.replace(
        "def f(a, b=2):\n", "def f(a, b=2):\n    '''What it does.'''\n\n    # why\n"
    )
    documented = BASE.replace("def f(a, b=2):\n", "def f(a, b=2):\n    '''What it does.'''\n")
    assert of_source(documented) == of_source(moved)
    assert of_source("\n\n" + BASE) == of_source(BASE)
    assert of_source(BASE + "OTHER = 1\ndef other(): pass\n") == of_source(BASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* b", "+ b"),
        ("b=2", "b=3"),
        ("x + 1", "x + 2"),
        ("LIMIT = 3", "LIMIT = 4"),
        ("LIMIT = 3", "LIMIT = 3.0"),
        ("helper(a)", "abs(a)"),
        ("a, b", "a, *, b"),
    ],
)
def test_what_runs_counts(old: str, new: str) -> None:
    assert BASE.count(old) == 1
    assert of_source(BASE.replace(old, new)) != of_source(BASE)


def test_closures_partials_methods_and_classes_count() -> None:
    def closure(value: Any) -> Any:
        return lambda: value

    assert identity.of_function(closure(1)).digest == identity.of_function(closure(1)).digest
    assert identity.of_function(closure(1)).digest != identity.of_function(closure(2)).digest
    assert identity.of_function(closure({"a": [1]})).digest != identity.of_function(closure({"a": [2]})).digest
    made = {identity.of_function(functools.partial(pow, 2, mod=mod)).digest for mod in (3, 4, 3)}
    assert len(made) == 2
    classes = "class C:\n    STEP = {step}\n    def go(self): return {value}\ndef f(): return C().go()\n"
    first = of_source(classes.format(step=1, value=1))
    assert first == of_source(classes.format(step=1, value=1))
    assert len({first, of_source(classes.format(step=2, value=1)), of_source(classes.format(step=1, value=2))}) == 3


WRAPPER = """
class Plus:
    def __init__(self, function, n):
        self.n = n
        update_wrapper(self, function)
    def __call__(self):
        return (self.__wrapped__() + self.n) * {}
"""

# What a function of the first source returns is not what one of the second does.
UNLIKE = {
    "order of a dict": (
        "M = {'a': 1, 'b': 2}\ndef f(): return list(M)",
        "M = {'b': 2, 'a': 1}\ndef f(): return list(M)",
    ),
    "order of keywords": (
        "def g(**k): return list(k)\nM = partial(g, a=1, b=2)\ndef f(): return M()",
        "def g(**k): return list(k)\nM = partial(g, b=2, a=1)\ndef f(): return M()",
    ),
    "tuple in a list": ("M = [(2,)]\ndef f(): return str(M)", "M = [[2]]\ndef f(): return str(M)"),
    "frozenset": ("M = {1}\ndef f(): return str(M)", "M = frozenset({1})\ndef f(): return str(M)"),
    "one list twice": (
        "X = [1]\nM = [X, X]\ndef f():\n    M[0].append(2)\n    return M",
        "M = [[1], [1]]\ndef f():\n    M[0].append(2)\n    return M",
    ),
    "default of a dict": (
        "M = defaultdict(int)\ndef f(): return M['a']",
        "M = defaultdict(list)\ndef f(): return M['a']",
    ),
    "fields of a tuple": (
        "M = namedtuple('P', 'a b')(1, 2)\ndef f(): return M.a",
        "M = namedtuple('P', 'b a')(1, 2)\ndef f(): return M.a",
    ),
    "name of a number": (
        "class E(IntEnum):\n    A = 1\nM = [E.A]\ndef f(): return M[0].name",
        "class E(IntEnum):\n    B = 1\nM = [E.B]\ndef f(): return M[0].name",
    ),
    "kind of a method": (
        "class C:\n    @staticmethod\n    def g(*a): return len(a)\ndef f(): return C.g()",
        "class C:\n    @classmethod\n    def g(*a): return len(a)\ndef f(): return C.g()",
    ),
    "no operator": (
        "class C:\n    __hash__ = None\ndef f(): return C.__hash__ is None",
        "class C:\n    pass\ndef f(): return C.__hash__ is None",
    ),
    "operator of functools": (
        "class C:\n    @cache\n    def __call__(self): return 1\ndef f(): return C()()",
        "class C:\n    @cache\n    def __call__(self): return 2\ndef f(): return C()()",
    ),
    "size of a cache": (
        "@lru_cache(maxsize=1)\ndef g(a): return [a]\ndef f(): return g(1).append(2), g(3), g(1)",
        "@lru_cache(maxsize=2)\ndef g(a): return [a]\ndef f(): return g(1).append(2), g(3), g(1)",
    ),
    "by place only": (
        "def f():\n    def g(a, /, **k): return k\n    return g(1, b=2, **{'a': 3})",
        "def f():\n    def g(a, **k): return k\n    return g(1, b=2, **{'a': 3})",
    ),
    "state of a decorator": (
        WRAPPER.format(1) + "H = Plus(int, 1)\ndef f(): return H()",
        WRAPPER.format(1) + "H = Plus(int, 2)\ndef f(): return H()",
    ),
    "code of a decorator": (
        WRAPPER.format(1) + "@partial(Plus, n=1)\ndef f(): return 1",
        WRAPPER.format(2) + "@partial(Plus, n=1)\ndef f(): return 1",
    ),
    "attribute of a function": (
        "def g(): pass\ng._step = 1\ndef f(): return g._step",
        "def g(): pass\ng._step = 2\ndef f(): return g._step",
    ),
    "kind of property": (
        "class P(property):\n    def __get__(self, *a): return 1\nclass C:\n    p = P(len)\ndef f(): return C().p",
        "class P(property):\n    def __get__(self, *a): return 2\nclass C:\n    p = P(len)\ndef f(): return C().p",
    ),
    "kind of partial": (
        "class P(partial):\n    def __call__(self): return 1\nM = P(int)\ndef f(): return M()",
        "class P(partial):\n    def __call__(self): return 2\nM = P(int)\ndef f(): return M()",
    ),
    "name between underscores": (
        "class C:\n    __steps__ = [1]\ndef f(): return C.__steps__",
        "class C:\n    __steps__ = [2]\ndef f(): return C.__steps__",
    ),
    **{
        f"method of a {kind}": tuple(
            f"class K({kind}):\n    def go(self): return {value}\nM = K({of})\ndef f(): return M.go()"
            for value in (1, 2)
        )
        for kind, of in {
            **dict.fromkeys(("list", "tuple", "set", "frozenset"), "[1]"),
            "str": "'x'",
            "int": "1",
            "float": "'nan'",
            "bytes": "b''",
            "dict": "{1: 2}",
        }.items()
    },
}


def returned_by(source: str) -> tuple[str, str]:
    """A function's digest, and what it returns."""
    namespace: dict[str, Any] = {"__name__": "experiment"}
    imports = (
        "from collections import defaultdict, namedtuple\nfrom enum import IntEnum\n"
        "from functools import cache, lru_cache, partial, update_wrapper\n"
    )
    exec(compile(imports + source, "experiment.py", "exec"), namespace)
    digest = identity.of_function(namespace["f"]).digest
    try:
        return digest, repr(namespace["f"]())
    except TypeError as error:
        return digest, str(error)


@pytest.mark.parametrize("case", UNLIKE)
def test_what_returns_something_else_is_something_else(case: str) -> None:
    (first, returned), (second, other) = map(returned_by, UNLIKE[case])
    assert returned_by(UNLIKE[case][0])[0] == first
    assert returned != other
    assert first != second


def test_functions_that_call_each_other_have_an_end() -> None:
    both = "def g(n): return f(n - {step})\ndef f(n): return n and g(n)\n"
    assert of_source(both.format(step=1)) != of_source(both.format(step=2))


def test_modules_of_the_user_count_and_installed_ones_do_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    source = "import json\nimport our_helper\ndef f(): return json.dumps(our_helper.g())\n"
    seen = []
    for body in ("1", "2"):
        (tmp_path / "our_helper.py").write_text(f"def g(): return {body}\n")
        monkeypatch.delitem(sys.modules, "our_helper", raising=False)
        seen.append(of_source(source))
    assert seen[0] != seen[1]
    assert not identity.is_own("json")
    assert not identity.is_own(np.__name__)
    assert not identity.is_own(lab.__name__)
    assert identity.is_own("our_helper")


# What a function comes to by some way other than by name: each is run with {v} as 1 and as 2.
WAYS = {
    "functools.cache": {"m": "import functools\n@functools.cache\ndef h(): return {v}\ndef f(): return h()\n"},
    "a method in functools.cache": {
        "m": "import functools\nclass C:\n    @functools.cache\n    def g(self): return {v}\ndef f(): return C().g()\n"
    },
    "functools.cached_property": {
        "m": "import functools\nclass C:\n    @functools.cached_property\n    def p(self): return {v}\n"
        "def f(): return C().p\n"
    },
    "functools.singledispatch": {
        "m": "import functools\n@functools.singledispatch\ndef h(x): return 0\n@h.register\ndef _(x: int): return {v}\n"
        "def f(): return h(3)\n"
    },
    "a function in an object": {
        "m": "class O:\n    def __init__(self, op): self.op = op\ndef h(): return {v}\nX = O(h)\n"
        "def f(): return X.op()\n"
    },
    "a decorator that is a class": {
        "m": "class D:\n    def __init__(self, fn): self.fn = fn\n    def __call__(self): return self.fn()\n"
        "@D\ndef h(): return {v}\ndef f(): return h()\n"
    },
    "a function in a set": {"m": "def h(): return {v}\nL = frozenset([h])\ndef f(): return [x() for x in L][0]\n"},
    "an object with a set": {
        "m": "class A:\n    def __init__(self): self.s = {'p', 'q', 'r', 's', 't'}\n    def g(self): return {v}\n"
        "X = A()\ndef f(): return X.g()\n"
    },
    "the setter of a property": {
        "m": "class C:\n    @property\n    def p(self): return self._p\n"
        "    @p.setter\n    def p(self, x): self._p = {v}\n"
        "def f():\n    c = C()\n    c.p = 0\n    return c.p\n"
    },
    "a metaclass": {
        "m": "class M(type):\n    def g(cls): return {v}\nclass A(metaclass=M): pass\ndef f(): return A.g()\n"
    },
    "an abstract class": {
        "m": "import abc\nclass A(abc.ABC):\n    @abc.abstractmethod\n    def g(self): pass\n"
        "class B(A):\n    def g(self): return {v}\ndef f(): return B().g()\n"
    },
    "a function's attribute": {"m": "def h(): return h.x\nh.x = {v}\ndef f(): return h()\n"},
    "a module that a module imports": {
        "m": "import lib\ndef f(): return lib.g()\n",
        "lib": "import detail\ndef g(): return detail.h()\n",
        "detail": "def h(): return {v}\n",
    },
    "a name that a module imports": {
        "m": "import lib\ndef f(): return lib.V\n",
        "lib": "from detail import *\n",
        "detail": "V = {v}\n",
    },
    "a module in a package": {
        "m": "import pkg.sub\ndef f(): return pkg.sub.g()\n",
        "pkg/__init__": "",
        "pkg/sub": "from . import other\ndef g(): return other.V\n",
        "pkg/other": "V = {v}\n",
    },
    "an import in the function": {
        "m": "def f():\n    import lib\n    return lib.g()\n",
        "lib": "def g(): return {v}\n",
    },
    "a name that is imported in the function": {
        "m": "def f():\n    from pkg.sub import g\n    return g()\n",
        "pkg/sub": "def g():\n    from .other import V\n    return V\n",
        "pkg/other": "V = {v}\n",
    },
}


@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_code_of_the_users_own_counts(way: str, tmp_path: Path) -> None:
    code = "import m; from sampleblk_lab.sweeps import identity; print(identity.of_function(m.f).digest, m.f())"
    seen = []
    for value, seed in ((1, "1"), (1, "2"), (2, "1")):
        for name, text in WAYS[way].items():
            path = tmp_path / f"{name}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.replace("{v}", str(value)))
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )
        digest, returned = done.stdout.split()
        assert returned == str(value)
        seen.append(digest)
    assert seen[0] == seen[1] != seen[2]


def test_the_digest_is_the_same_in_every_process(tmp_path: Path) -> None:
    """Whatever the seed of hashes, which orders sets."""
    (tmp_path / "own_code.py").write_text(
        "import re\nWORDS = {'one', 'two', 'three', 'four'}\nPATTERN = re.compile('x+')\n"
        "class C:\n    def m(self): return 1\n"
        "def f(a, b=(1, 2), **rest):\n    return a in WORDS or PATTERN.match(a) or C().m() or a in {'p', 'q', 'r'}\n"
    )
    code = "import own_code; from sampleblk_lab.sweeps import identity; print(identity.of_function(own_code.f).digest)"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            cwd=tmp_path,
            env={**os.environ, "PYTHONHASHSEED": str(seed), "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in (1, 2, 3)
    }
    assert len(seen) == 1


def test_what_has_no_state_to_tell_is_named() -> None:
    lock = threading.Lock()
    with pytest.raises(lab.InputError, match="'lock', which the function refers to, is of type lock") as caught:
        identity.of_function(lambda: lock)
    assert "make such an object within the function" in caught.value.expected


def test_every_part_of_a_key_counts() -> None:
    machine = {"cpus": 2, "release": "6.1"}
    base = trial.make("code", {"a": 1, "b": "x"}, 0, 0, machine)
    others = [
        trial.make("other", {"a": 1, "b": "x"}, 0, 0, machine),
        trial.make("code", {"a": 2, "b": "x"}, 0, 0, machine),
        trial.make("code", {"a": 1.0, "b": "x"}, 0, 0, machine),
        trial.make("code", {"a": "1", "b": "x"}, 0, 0, machine),
        trial.make("code", {"a": 1}, 0, 0, machine),
        trial.make("code", {"a": 1, "b": "x"}, 1, 0, machine),
        trial.make("code", {"a": 1, "b": "x"}, 0, 1, machine),
        trial.make("code", {"a": 1, "b": "x"}, 0, 0, {**machine, "release": "6.12"}),
        trial.make("code", {"a": 1, "b": "x"}, 0, 0, None),
    ]
    assert len({base.key, *(one.key for one in others)}) == 1 + len(others)
    assert trial.make("code", {"b": "x", "a": 1}, 0, 0, dict(reversed(machine.items()))).key == base.key
    # The seed is the parameters' and the repeat's, whatever else changes.
    assert others[0].seed == base.seed
    assert len({one.seed for one in (base, others[1], others[5], others[6])}) == 4


def test_the_modules_of_a_kernel_of_ones_own_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system that is built as a module changes, and the image stays."""
    modules = tmp_path / "lib/modules/6.12.0-mine"
    (modules / "kernel/fs").mkdir(parents=True)
    module = modules / "kernel/fs/ext4.ko"
    module.write_bytes(b"before")
    (tmp_path / "vmlinux").write_bytes(b"image")
    own = Kernel("6.12.0-mine", tmp_path / "vmlinux", modules, None)
    monkeypatch.setattr("sampleblk_lab.kernels.resolve", lambda *_, **__: own)
    shape = trial.Shape(driver=False)

    def found() -> Any:
        return trial.Machines(shape, download=False).of("mine")[0]

    before = found()
    os.utime(module, (1, 1))
    assert found() == before
    module.write_bytes(b"after!")
    assert found() != before


def test_a_kernel_that_was_built_anew_between_two_sweeps_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is remembered of this host's kernels and driver is one sweep's: its process may run many."""
    monkeypatch.setattr(
        "sampleblk_lab.kernels.resolve", lambda *_, **__: Kernel("6.12.0-mine", tmp_path / "vmlinux", None, None)
    )
    # The trial itself needs no VM here.
    monkeypatch.setattr("sampleblk_lab.sweeps.host._waited_for", lambda *_: Outcome())
    for number, image in enumerate((b"image", b"another")):
        (tmp_path / "vmlinux").write_bytes(image)
        machine, _ = trial.Machines(trial.Shape(driver=False), download=False).of("mine")
        work = Work(f"sweep {number}", "key", b"", {}, [], machine, "mine", None, Claim())
        assert host.execute(pickle.dumps(work)).message == ""
