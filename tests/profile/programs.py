# SPDX-License-Identifier: MIT
"""Small programs whose stacks are known, compiled when a test asks for them."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# main > outer > middle > leaf, none with a frame pointer; leaf burns CPU time, in seconds its first argument, in
# its own code, in memcpy of libc and in a system call; `spin_inline` is inlined into it.
DEEP = r"""
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <fcntl.h>

static volatile unsigned long sink;
static char from[1 << 16], to[1 << 16];
static int null;

static inline __attribute__((always_inline)) void spin_inline(unsigned long n)
{
    for (unsigned long i = 0; i < n; i++)
        sink += i * i;
}

__attribute__((noinline)) int leaf(unsigned long n)
{
    volatile char room[300];
    room[n % 300] = 1;
    spin_inline(n);
    memcpy(to, from, sizeof(to) - (n & 7));
    if (pwrite(null, to, sizeof(to), 0) < 0)
        abort();
    return room[0] + to[5];
}

__attribute__((noinline)) int middle(unsigned long n, char *text)
{
    volatile char room[100 + n % 64];
    room[0] = *text;
    return leaf(n) + room[0];
}

__attribute__((noinline)) int outer(unsigned long n)
{
    char text[64];
    snprintf(text, sizeof(text), "%lu", n);
    return middle(n, text) + 1;
}

int main(int argc, char **argv)
{
    struct timespec now;
    double end, seconds = argc > 1 ? atof(argv[1]) : 1;
    int sum = 0;
    null = open(argc > 2 ? argv[2] : "/dev/null", O_RDWR | O_CREAT, 0600);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    end = now.tv_sec + now.tv_nsec / 1e9 + seconds;
    do {
        for (int i = 0; i < 16; i++)
            sum += outer(2000 + i);
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    } while (now.tv_sec + now.tv_nsec / 1e9 < end);
    return sum == 42;
}
"""


def compiled(folder: Path, source: str, *flags: str, name: str = "deep") -> Path:
    """Compiles C without frame pointers; returns the program."""
    code = folder / f"{name}.c"
    code.write_text(source)
    program = folder / name
    subprocess.run(
        ["gcc", "-O2", "-g", "-fomit-frame-pointer", "-Wl,--build-id", *flags, "-o", str(program), str(code)],
        check=True,
    )
    return program
