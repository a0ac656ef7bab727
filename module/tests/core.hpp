// SPDX-License-Identifier: GPL-2.0-only
// The driver's data structures, seen from C++ tests.
#pragma once

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wpedantic"
extern "C" {
#include "core/fault.h"
#include "core/integrity.h"
#include "core/medium.h"
#include "core/timing.h"
#include "core/zones.h"
}
#pragma GCC diagnostic pop

#include <cstdint>
#include <memory>
#include <vector>

namespace sampleblk_module {

struct StorePut {
    void operator()(sblk_store* store) const { sblk_store_put(store); }
};
using Store = std::unique_ptr<sblk_store, StorePut>;

inline Store make_store(u64 bytes, sblk_store* base = nullptr) { return Store(sblk_store_create(bytes, base)); }

using Bytes = std::vector<std::uint8_t>;

inline Bytes contents(sblk_store* store) {
    Bytes out(store->bytes);
    sblk_store_read(store, 0, out.data(), out.size());
    return out;
}

}  // namespace sampleblk_module
