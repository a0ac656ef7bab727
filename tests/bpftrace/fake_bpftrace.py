#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Behaves as bpftrace does, in what its caller has to cope with. FAKE says how: a word each."""

import getopt
import json
import os
import select
import signal
import sys
import time

how = os.environ.get("FAKE", "").split()
# With options behind what is none, as getopt_long() has it.
options, given = getopt.gnu_getopt(sys.argv[1:], "df:kv", ["info", "unsafe"])
script = next(iter(given), "")
if ("--info", "") in options:
    sys.exit(print(f"Kernel features\n  btf: {'no' if 'blind' in how else 'yes'}"))
if "untyped" in how:
    sys.exit("unknown type name 'dev_t'")
if "syntax" in how:
    sys.exit(f"{script}:3:9-14: ERROR: Unknown function: prinf\nBEGIN {{ prinf(1) }}\n        ~~~~~")
if "missing" in how:
    sys.exit(f"{script}:1:1-24: ERROR: tracepoint not found: nosuch:thing")
if "broken" in how:
    sys.exit("ERROR: out of luck")
heard = 0


def interrupted(_number: int, _frame: object) -> None:
    global heard
    heard += 1


signal.signal(signal.SIGINT, signal.SIG_IGN if "deaf" in how else interrupted)
print('{"type": "attached_probes", "data": {"probes": 1}}', flush=True)
print("couldn't set RLIMIT_MEMLOCK for bpftrace", file=sys.stderr, flush=True)
if "BPFTRACE_MAP_KEYS_MAX" in os.environ:
    print("WARNING: BPFTRACE_MAP_KEYS_MAX is deprecated. Use BPFTRACE_MAX_MAP_KEYS instead.", file=sys.stderr)
if "skips" in how:
    print(f"{script}:1:1-2: WARNING: a is not traceable\ncould not attach probe kprobe:a, skipping.", file=sys.stderr)
time.sleep(1.0 if "slow" in how else 0.0)
if given[1:]:
    print(json.dumps({"type": "printf", "data": " ".join(given[1:]) + "\n"}))
probe = os.open("/dev/null", os.O_RDONLY)
print('{"type": "printf", "data": "attached\\n"}', flush=True)
events = select.epoll()
if "exits" in how:
    heard = 2
if "busy" in how:
    events.poll(0.5)
    while not heard:
        time.sleep(0.001)
while heard < (2 if "loses" in how else 1):
    events.poll(0.1)
os.close(probe)
# What a second signal would end now.
signal.signal(signal.SIGINT, signal.SIG_DFL)
end = time.monotonic() + 1.5
while "slow" in how and time.monotonic() < end:
    events.poll(0.1)
if "full" in how:
    error = '{"type": "helper_error", "helper": "%s", "retcode": %d, "line": 1, "col": 1}'
    print(
        error % ("map_update_elem", -7), error % ("map_update_elem", -7), error % ("get_stackid", -17), "cut", sep="\n"
    )
print('{"type": "map", "data": {"@": 7}}', flush=True)
if "fails" in how:
    sys.exit("ERROR: on the last step")
