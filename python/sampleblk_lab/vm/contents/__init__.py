# SPDX-License-Identifier: MIT
"""What a guest has in its memory when it starts: our init and the modules it needs, a Python, the programs it runs."""
