# SPDX-License-Identifier: MIT
"""A process of this machine in the place of a VM, for tests of what the plugin does around it.

``local_guest.py PARENT FD [--OPTION VALUE]… PYTHON ARGUMENTS``: notes its start and its options in the file that
LOCAL_GUEST_LOG names, then becomes the interpreter that sampleblk-python would run in a VM. LOCAL_GUEST_FAILS is what
it says of the VM before it ends with sampleblk-python's status for a VM that does not start; LOCAL_GUEST_KILLED how
many of the first guests end as one does whose QEMU is killed while pytest collects.
"""

import json
import os
import sys
import time
from pathlib import Path

arguments = sys.argv[3:]
options = {}
while arguments[0].startswith("--"):
    name = arguments.pop(0)
    options[name] = arguments.pop(0)
with Path(os.environ["LOCAL_GUEST_LOG"]).open("a") as log:
    log.write(json.dumps(options) + "\n")
if "LOCAL_GUEST_FAILS" in os.environ:
    os.write(int(sys.argv[2]), os.environ["LOCAL_GUEST_FAILS"].encode())
    sys.exit(125)
if len(Path(os.environ["LOCAL_GUEST_LOG"]).read_text().splitlines()) <= int(os.environ.get("LOCAL_GUEST_KILLED", "0")):
    os.write(int(sys.argv[2]), b"sampleblk-python: the virtual machine ended unexpectedly; it was killed\n--- end")
    sys.exit(122)
time.sleep(float(os.environ.get("LOCAL_GUEST_SECONDS", "0")))
os.environ["SAMPLEBLK_VM"] = json.dumps({"kernel": options.get("--kernel"), "accel": "none"})
os.execv(sys.executable, [sys.executable, *arguments])
