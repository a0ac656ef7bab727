# SPDX-License-Identifier: MIT
"""A function of ours, run in a VM: its value, its exceptions, and what becomes of a process that gives neither."""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
from typing import NamedTuple

import pytest

import sampleblk_lab as lab
from sampleblk_lab import by_value, called
from sampleblk_lab.vm import VM, CallError
from sampleblk_lab.vm.errors import RemoteTraceback

# What a class that goes by value looks at.
LIMIT = 1


class OddError(Exception):
    """Pickled by its text, which its two arguments are not: it cannot be unpickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")

    def __reduce__(self) -> tuple[object, ...]:
        return OddError, self.args  # said outright: tblib, which Dask may have installed, knows a way around


def fails() -> None:
    raise FileNotFoundError(2, "No such file or directory", "/nowhere")


def fails_oddly() -> None:
    raise OddError("very", "odd")


def outcome(function: object, *args: object) -> tuple[object, object, str | None]:
    return called.outcome_of(pickle.dumps((sys.path, by_value.dumps((function, args, {})))))


def test_what_the_guest_sends_back() -> None:
    value, _, text = outcome(lambda a: a + 1, 1)
    assert text is None
    assert pickle.loads(value) == 2
    _, error, text = outcome(fails)
    assert pickle.loads(error).filename == "/nowhere"
    assert 'in fails\n    raise FileNotFoundError(2, "No such' in str(text)
    assert "outcome_of" not in str(text)
    assert outcome(fails_oddly)[:2] == (None, None)
    _, _, text = outcome(lambda: (n for n in ()))  # a value that nothing can pickle
    assert "generator" in str(text)
    _, _, text = outcome(sys.exit, 3)
    assert "SystemExit: 3" in str(text)


def test_what_is_sent_by_value_still_names_its_file() -> None:
    """cloudpickle 3.1.3 names every file <dynamic-code>: such a traceback tells nobody where to look."""

    class Kept:
        def method(self, n: int) -> object:
            return [self.deep() for _ in range(n)]

        def deep(self) -> object:
            raise ValueError("by a method")  # of a class that goes by value too

    _, error, text = outcome(lambda n: Kept().method(n), 2)
    assert str(pickle.loads(error)) == "by a method"
    assert str(text).count(f'File "{__file__}"') >= 3
    assert 'in deep\n    raise ValueError("by a method")' in str(text)
    assert "dynamic-code" not in str(text)
    back = pickle.loads(by_value.dumps(lambda: Kept))
    assert back.__code__.co_filename == __file__
    assert back.__code__.co_firstlineno > 30
    assert back().deep.__code__.co_filename == __file__


def test_the_value_is_that_of_the_process_that_was_called() -> None:
    def forks() -> str:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
        return "the one" if child else "a fork, which returns first"

    work = pickle.dumps((sys.path, by_value.dumps((forks, (), {}))))
    done = subprocess.run([sys.executable, "-m", called.__name__], input=work, stdout=subprocess.PIPE, check=True)
    value, _, _ = pickle.loads(done.stdout.removeprefix(called.MAGIC))
    assert by_value.loads(value) == "the one"


def test_a_closed_standard_output_is_not_the_end_of_the_value() -> None:
    def closes() -> int:
        sys.stdout.close()
        return 3

    work = pickle.dumps((sys.path, by_value.dumps((closes, (), {}))))
    done = subprocess.run([sys.executable, "-m", called.__name__], input=work, stdout=subprocess.PIPE, check=True)
    value, _, _ = pickle.loads(done.stdout.removeprefix(called.MAGIC))
    assert by_value.loads(value) == 3


def test_a_class_that_comes_back_stays_as_it_is_here(monkeypatch: pytest.MonkeyPatch) -> None:
    class Figure:
        seen = 0

        def limit(self) -> int:
            return LIMIT

    sent = by_value.dumps(Figure())
    Figure.seen = 2
    monkeypatch.setattr(sys.modules[__name__], "LIMIT", 3)
    back = by_value.loads(sent)
    assert type(back) is Figure
    assert (Figure.seen, Figure().limit(), back.limit()) == (2, 3, 3)


def test_an_object_with_slots_comes_back_from_another_process() -> None:
    class Base:
        __slots__ = ("first",)

    @dataclasses.dataclass(slots=True)
    class Pair(Base):
        second: int

    class Named(NamedTuple):  # whose slots nobody may set
        value: int

    def both(given: Pair) -> tuple[Pair, bool, Named]:
        made = Pair(given.second + 1)
        made.first = given.second
        return made, hasattr(made, "__dict__"), Named(3)

    work = pickle.dumps((sys.path, by_value.dumps((both, (Pair(1),), {}))))
    done = subprocess.run([sys.executable, "-m", called.__name__], input=work, stdout=subprocess.PIPE, check=True)
    value, _, text = pickle.loads(done.stdout.removeprefix(called.MAGIC))
    assert text is None
    made, has_dictionary, named = by_value.loads(value)
    assert (type(made), made.first, made.second, has_dictionary, named.value) == (Pair, 1, 2, False, 3)


def test_a_function_runs_in_a_vm(capfd: pytest.CaptureFixture[str]) -> None:
    there = "of the test"

    def look(name: str, *, end: str) -> dict[str, object]:
        print("said in the guest")
        with lab.Device(capacity="16M") as device:
            return {"uid": os.getuid(), "text": there + name + end, "exists": os.path.exists(device.path)}  # noqa: PTH110

    with VM() as vm:
        assert vm.call(os.uname).release == vm.kernel.release
        assert vm.call(look, "!", end="?") == {"uid": 0, "text": "of the test!?", "exists": True}
        assert capfd.readouterr().err.endswith("said in the guest\n")
        with pytest.raises(FileNotFoundError, match="/nowhere") as caught:
            vm.call(fails)
        assert isinstance(caught.value.__cause__, RemoteTraceback)
        assert "in fails" in str(caught.value.__cause__)
        with pytest.raises(lab.InputError, match="capacity"):
            vm.call(lab.Device, capacity="much")
        with pytest.raises(CallError, match="OddError: very odd") as odd:
            vm.call(fails_oddly)
        assert "in fails_oddly" in str(odd.value.__cause__)
        with pytest.raises(CallError, match=r"_exit\(\) gave no value: its process ended by status 7"):
            vm.call(os._exit, 7)
        with pytest.raises(CallError, match="SystemExit: 3"):
            vm.call(sys.exit, 3)
        assert vm.call(len, bytes(3_000_000)) == 3_000_000
