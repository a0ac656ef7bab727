# SPDX-License-Identifier: MIT
"""What a result was measured on, and whether two results may be compared."""

from __future__ import annotations

import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import sampleblk_lab

# What must be equal before times are compared -> the part of env.json that tells it.
ASPECTS = ("accelerator", "kernel", "machine")

_HOST = "SAMPLEBLK_HOST"


def host() -> dict[str, str]:
    """The physical machine: in a guest, what the host said of itself."""
    told = os.environ.get(_HOST)
    if told:
        about: dict[str, str] = json.loads(told)
        return about
    model = ""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        name, _, value = line.partition(":")
        if name.strip() == "model name":
            model = value.strip()
            break
    return {"name": platform.node(), "cpu": model, "cpus": str(os.cpu_count() or 0)}


def tell_guest() -> None:
    """Puts what :func:`host` says into the environment, which a guest inherits."""
    os.environ.setdefault(_HOST, json.dumps(host()))


def environment() -> dict[str, Any]:
    """What ``env.json`` holds: kernel, accelerator, VM, host, versions and the time."""
    told = os.environ.get("SAMPLEBLK_VM")
    about: dict[str, Any] = {
        "kernel": platform.release(),
        "accel": "none",
        "host": host(),
        "python": platform.python_version(),
        "sampleblk_lab": sampleblk_lab.__version__,
        "started": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "started_ns": time.time_ns(),
    }
    if told:
        vm = json.loads(told)
        about["vm"] = vm
        about["accel"] = vm["accel"]
    return about


def aspects(environment: dict[str, Any]) -> dict[str, str]:
    """Accelerator, kernel and machine of an env.json, as words; older files lack some."""
    vm = environment.get("vm") or {}
    about = environment.get("host") or {}
    guest = f"VM of {vm.get('cpus')} CPUs and {vm.get('memory_mib')} MiB" if vm else ""
    machine = ", ".join(filter(None, (about.get("name"), about.get("cpu"), guest)))
    return {
        "accelerator": environment.get("accel") or vm.get("accel") or "none",
        "kernel": environment.get("kernel") or "",
        "machine": machine,
    }
