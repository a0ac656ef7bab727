# SPDX-License-Identifier: MIT
"""A guest's programs share a session keyring, as those of a login do (session-keyring(7))."""

from __future__ import annotations

import ctypes
import errno
import os

import pytest

# x86-64's system calls, and what is in linux/keyctl.h.
_ADD_KEY, _KEYCTL = 248, 250
_SEARCH, _UNLINK, _SESSION, _USER = 10, 9, -3, -4

libc = ctypes.CDLL(None, use_errno=True)


def add_key(name: bytes, keyring: int) -> int:
    return libc.syscall(_ADD_KEY, b"user", name, b"x", 1, keyring)


def search(name: bytes) -> int:
    return libc.syscall(_KEYCTL, _SEARCH, _SESSION, b"user", name, 0)


@pytest.mark.parametrize("keyring", [_SESSION, _USER], ids=["session's", "user's"])
def test_a_key_outlives_the_program_that_added_it(keyring):
    name = b"sampleblk%d" % -keyring
    if search(name) < 0 and ctypes.get_errno() == errno.ENOSYS:
        pytest.skip("this kernel has no keys")
    assert search(name) < 0
    child = os.fork()
    if child == 0:
        os._exit(0 if add_key(name, keyring) > 0 else 1)
    assert os.waitpid(child, 0)[1] == 0
    found = search(name)
    assert found > 0
    assert libc.syscall(_KEYCTL, _UNLINK, found, keyring) == 0
