# SPDX-License-Identifier: MIT
"""What runs in the guest: the Python that commands are forked from, and how one has itself saved with the machine."""
