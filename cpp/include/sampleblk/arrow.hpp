// SPDX-License-Identifier: MIT
// Tables handed out by the Arrow C data and stream interfaces
// (https://arrow.apache.org/docs/format/CDataInterface.html, …/CStreamInterface.html), without the
// Arrow library. The structures are the ABI of that specification, so their names are its names.
#pragma once

#include <cstdint>

#include "sampleblk/table.hpp"

extern "C" {

struct ArrowSchema {
    const char* format;
    const char* name;
    const char* metadata;
    std::int64_t flags;
    std::int64_t n_children;
    struct ArrowSchema** children;
    struct ArrowSchema* dictionary;
    void (*release)(struct ArrowSchema*);
    void* private_data;
};

struct ArrowArray {
    std::int64_t length;
    std::int64_t null_count;
    std::int64_t offset;
    std::int64_t n_buffers;
    std::int64_t n_children;
    const void** buffers;
    struct ArrowArray** children;
    struct ArrowArray* dictionary;
    void (*release)(struct ArrowArray*);
    void* private_data;
};

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
    int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
    const char* (*get_last_error)(struct ArrowArrayStream*);
    void (*release)(struct ArrowArrayStream*);
    void* private_data;
};
}

namespace sampleblk {

// The table as one struct-typed schema or batch. Strings become dictionary<int32, utf8>, a column's
// unit its field metadata "unit", the table's metadata the schema's. The data is shared, not
// copied; `out` is released by its consumer.
void export_schema(const Table& table, ArrowSchema* out);
void export_batch(const Table& table, ArrowArray* out);

// A stream of that one batch.
void export_stream(const Table& table, ArrowArrayStream* out);

// The same of one column by itself: an array, not a struct of one.
void export_schema(const Column& column, ArrowSchema* out);
void export_batch(const Column& column, ArrowArray* out);
void export_stream(const Column& column, ArrowArrayStream* out);

}  // namespace sampleblk
