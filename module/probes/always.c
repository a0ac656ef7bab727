// SPDX-License-Identifier: GPL-2.0-only
// Compiles on every kernel.
#include <linux/module.h>
