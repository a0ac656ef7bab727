// SPDX-License-Identifier: MIT
// The kernel's user-space headers, for C++. They are C and change with each update of linux-libc-dev: 6.1.192 named a
// parameter `class` in <linux/ioprio.h>. Whatever C++ needs of <linux/…> and <asm/…> is included here and nowhere else
// (tests/test_packaging.py looks), with C++'s own words out of the headers' way.
#pragma once

// First what those headers include themselves and what has C++ in it, so that no macro below reaches it.
#include <linux/ioctl.h>
#include <linux/stddef.h>
#include <linux/types.h>

#define class class_
#define delete delete_
#define explicit explicit_
#define export export_
#define friend friend_
#define mutable mutable_
#define namespace namespace_
#define new new_
#define operator operator_
#define private private_
#define protected protected_
#define public public_
#define template template_
#define this this_
#define throw throw_
#define typename typename_
#define using using_
#define virtual virtual_
extern "C" {
#include <asm/perf_regs.h>
#include <linux/aio_abi.h>
#include <linux/falloc.h>
#include <linux/fs.h>
#include <linux/futex.h>
#include <linux/ioprio.h>
#include <linux/loop.h>
#include <linux/perf_event.h>
}
#undef class
#undef delete
#undef explicit
#undef export
#undef friend
#undef mutable
#undef namespace
#undef new
#undef operator
#undef private
#undef protected
#undef public
#undef template
#undef this
#undef throw
#undef typename
#undef using
#undef virtual
