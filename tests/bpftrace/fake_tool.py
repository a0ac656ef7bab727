#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Behaves as a tool of bcc's does, in what its caller has to cope with. FAKE says how: a word each."""

import os
import sys
import time
from pathlib import Path

how = os.environ.get("FAKE", "").split()
if "lacks" in how:
    sys.exit("libbpf: prog 'x': failed to find kernel BTF type ID of 'blk_account_io_start': -3\nfailed to load: -3")
if "kprobe" in how:
    # As biotop has it (0.26), with exit status 0.
    print("libbpf: prog 'x': failed to create kprobe 'some_function+0x0' perf event: No such file or directory")
    sys.exit(0)
if "target" in how:
    sys.exit("failed to set attach target for do_page_cache_ra: No such process")
if "sampling" in how:
    print("failed to init perf sampling: No such file or directory", file=sys.stderr)
    sys.exit(0)
if "usage" in how:
    sys.exit("fake_tool.py: Too many arguments\nTry `fake --help' or `fake --usage' for more information.")
if "broken" in how:
    sys.exit(3)
if "early" in how:
    sys.exit(0)
# A map or a program of BPF cannot be made here; what has the name of one is there as soon as probes would be.
time.sleep(1.0 if "slow" in how else 0.0)
with Path("/dev/null" if "idle" in how else os.environ["FAKE_BPF"]).open() as probes:
    print("Tracing... Hit Ctrl-C to end.")
    try:
        while True:
            time.sleep(10)
    except KeyboardInterrupt:
        if "deaf" in how:
            time.sleep(100)
    probes.read()
print("\n     usecs               : count    distribution\n         0 -> 1          : 7        |****|")
print(f"arguments: {sys.argv[1:]}")
if "loses" in how:
    print("lost 12 events on CPU #1\nlost 30 events on CPU #0", file=sys.stderr)
if "fails" in how:
    sys.exit("on the last step")
