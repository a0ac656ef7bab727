// SPDX-License-Identifier: MIT
#include "sampleblk/arrow.hpp"

#include <cerrno>
#include <cstring>
#include <exception>
#include <limits>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "sampleblk/text.hpp"

namespace sampleblk {

namespace {

constexpr std::int64_t nullable_flag = 2;  // ARROW_FLAG_NULLABLE

// Releases a structure unless its consumer did, as the specification lets it by moving it out.
struct Release {
    template <typename Arrow>
    void operator()(Arrow* self) const {
        if (self->release != nullptr) {
            self->release(self);
        }
        delete self;
    }
};
template <typename Arrow>
using Released = std::unique_ptr<Arrow, Release>;

// What an exported schema owns; its release callback deletes it.
struct SchemaOwner {
    std::string format;
    std::string name;
    std::string metadata;
    std::vector<Released<ArrowSchema>> children;
    std::vector<ArrowSchema*> child_pointers;
    Released<ArrowSchema> dictionary;
};

struct ArrayOwner {
    std::shared_ptr<const void> data;
    std::vector<std::uint8_t> validity;
    std::vector<std::int32_t> offsets;
    std::string text;
    std::vector<const void*> buffers;
    std::vector<Released<ArrowArray>> children;
    std::vector<ArrowArray*> child_pointers;
    Released<ArrowArray> dictionary;
};

template <typename Arrow, typename Owner>
void release(Arrow* self) {
    delete static_cast<Owner*>(self->private_data);
    self->release = nullptr;
}

void release_schema(ArrowSchema* self) {
    release<ArrowSchema, SchemaOwner>(self);
}
void release_array(ArrowArray* self) {
    release<ArrowArray, ArrayOwner>(self);
}

const char* arrow_format(ColumnType type) {
    switch (type) {
        case ColumnType::i8:
            return "c";
        case ColumnType::i16:
            return "s";
        case ColumnType::i32:
        case ColumnType::string:
            return "i";
        case ColumnType::i64:
            return "l";
        case ColumnType::u8:
            return "C";
        case ColumnType::u16:
            return "S";
        case ColumnType::u32:
            return "I";
        case ColumnType::u64:
            return "L";
        case ColumnType::f64:
            break;
    }
    return "g";
}

void append_sized(std::string& out, const std::string& text) {
    const auto size = static_cast<std::int32_t>(text.size());
    out.append(reinterpret_cast<const char*>(&size), sizeof(size));
    out += text;
}

// int32 count, then for each entry its key and value, each behind an int32 length.
std::string encode_metadata(const std::map<std::string, std::string>& metadata) {
    if (metadata.empty()) {
        return {};
    }
    std::string out;
    const auto count = static_cast<std::int32_t>(metadata.size());
    out.append(reinterpret_cast<const char*>(&count), sizeof(count));
    for (const auto& [key, value] : metadata) {
        append_sized(out, printable(key));
        append_sized(out, printable(value));
    }
    return out;
}

void fill_schema(ArrowSchema* out, std::unique_ptr<SchemaOwner> owner, std::int64_t flags) {
    for (const auto& child : owner->children) {
        owner->child_pointers.push_back(child.get());
    }
    *out = ArrowSchema{
        .format = owner->format.c_str(),
        .name = owner->name.c_str(),
        .metadata = owner->metadata.empty() ? nullptr : owner->metadata.c_str(),
        .flags = flags,
        .n_children = static_cast<std::int64_t>(owner->children.size()),
        .children = owner->child_pointers.data(),
        .dictionary = owner->dictionary.get(),
        .release = release_schema,
        .private_data = nullptr,
    };
    out->private_data = owner.release();
}

void fill_array(ArrowArray* out, std::unique_ptr<ArrayOwner> owner, std::size_t length, std::int64_t nulls) {
    for (const auto& child : owner->children) {
        owner->child_pointers.push_back(child.get());
    }
    *out = ArrowArray{
        .length = static_cast<std::int64_t>(length),
        .null_count = nulls,
        .offset = 0,
        .n_buffers = static_cast<std::int64_t>(owner->buffers.size()),
        .n_children = static_cast<std::int64_t>(owner->children.size()),
        .buffers = owner->buffers.data(),
        .children = owner->child_pointers.data(),
        .dictionary = owner->dictionary.get(),
        .release = release_array,
        .private_data = nullptr,
    };
    out->private_data = owner.release();
}

Released<ArrowArray> dictionary_array(const StringPool& pool) {
    auto owner = std::make_unique<ArrayOwner>();
    owner->offsets.push_back(0);
    for (std::size_t i = 0; i < pool.size(); ++i) {
        owner->text += pool.at(static_cast<std::int32_t>(i));
        if (owner->text.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
            throw std::length_error("arrow: a dictionary of more than 2 GiB of text");
        }
        owner->offsets.push_back(static_cast<std::int32_t>(owner->text.size()));
    }
    owner->buffers = {nullptr, owner->offsets.data(), owner->text.data()};
    Released<ArrowArray> array(new ArrowArray{});
    fill_array(array.get(), std::move(owner), pool.size(), 0);
    return array;
}

// A string column's missing values (code -1) as an Arrow validity bitmap.
std::int64_t build_validity(const Column& column, std::vector<std::uint8_t>& bitmap) {
    const auto* codes = column.values<std::int32_t>();
    std::int64_t nulls = 0;
    for (std::size_t i = 0; i < column.size(); ++i) {
        nulls += codes[i] < 0 ? 1 : 0;
    }
    if (nulls != 0) {
        bitmap.assign((column.size() + 7) / 8, 0);
        for (std::size_t i = 0; i < column.size(); ++i) {
            if (codes[i] >= 0) {
                bitmap[i / 8] = static_cast<std::uint8_t>(bitmap[i / 8] | (1U << (i % 8)));
            }
        }
    }
    return nulls;
}

// A field of a table's schema, or the schema of a column by itself.
Released<ArrowSchema> column_schema(const Column& column) {
    auto field = std::make_unique<SchemaOwner>();
    field->format = arrow_format(column.type());
    field->name = printable(column.name());
    if (!column.unit().empty()) {
        field->metadata = encode_metadata({{"unit", column.unit()}});
    }
    if (column.type() == ColumnType::string) {
        auto values = std::make_unique<SchemaOwner>();
        values->format = "u";
        field->dictionary.reset(new ArrowSchema{});
        fill_schema(field->dictionary.get(), std::move(values), nullable_flag);
    }
    Released<ArrowSchema> schema(new ArrowSchema{});
    fill_schema(schema.get(), std::move(field), nullable_flag);
    return schema;
}

Released<ArrowArray> column_array(const Column& column) {
    auto field = std::make_unique<ArrayOwner>();
    field->data = column.data();
    std::int64_t nulls = 0;
    if (column.type() == ColumnType::string) {
        nulls = build_validity(column, field->validity);
        field->dictionary = dictionary_array(*column.pool());
    }
    field->buffers = {field->validity.empty() ? nullptr : field->validity.data(), column.data().get()};
    Released<ArrowArray> array(new ArrowArray{});
    fill_array(array.get(), std::move(field), column.size(), nulls);
    return array;
}

// Hands a structure to its consumer, as the specification moves one: what is left behind has nothing to release.
template <typename Arrow>
void move_out(Released<Arrow> from, Arrow* out) {
    *out = *from;
    from->release = nullptr;
}

// A stream of one batch of `What`, a table or a column.
template <typename What>
struct Stream {
    What what;
    bool done = false;
    std::string error;

    static Stream& of(ArrowArrayStream* stream) { return *static_cast<Stream*>(stream->private_data); }

    // C callers cannot take an exception: keep its text for get_last_error.
    template <typename Action>
    static int guarded(ArrowArrayStream* stream, Action action) {
        Stream& self = of(stream);
        try {
            action(self);
            return 0;
        } catch (const std::bad_alloc&) {
            return ENOMEM;
        } catch (const std::exception& error) {
            self.error = error.what();
            return EINVAL;
        }
    }
    static int get_schema(ArrowArrayStream* stream, ArrowSchema* out) {
        return guarded(stream, [&](Stream& self) { export_schema(self.what, out); });
    }
    static int get_next(ArrowArrayStream* stream, ArrowArray* out) {
        return guarded(stream, [&](Stream& self) {
            if (std::exchange(self.done, true)) {
                std::memset(out, 0, sizeof(*out));  // release == nullptr is the end of the stream
            } else {
                export_batch(self.what, out);
            }
        });
    }
    static const char* last_error(ArrowArrayStream* stream) {
        const Stream& self = of(stream);
        return self.error.empty() ? nullptr : self.error.c_str();
    }
    static void release(ArrowArrayStream* stream) {
        delete &of(stream);
        stream->release = nullptr;
    }
    static void begin(const What& what, ArrowArrayStream* out) {
        *out = ArrowArrayStream{
            .get_schema = get_schema,
            .get_next = get_next,
            .get_last_error = last_error,
            .release = release,
            .private_data = new Stream{.what = what, .done = false, .error = {}},
        };
    }
};

}  // namespace

void export_schema(const Table& table, ArrowSchema* out) {
    auto owner = std::make_unique<SchemaOwner>();
    owner->format = "+s";
    owner->metadata = encode_metadata(table.metadata());
    for (const Column& column : table.columns()) {
        owner->children.push_back(column_schema(column));
    }
    fill_schema(out, std::move(owner), 0);
}

void export_batch(const Table& table, ArrowArray* out) {
    auto owner = std::make_unique<ArrayOwner>();
    owner->buffers = {nullptr};
    for (const Column& column : table.columns()) {
        owner->children.push_back(column_array(column));
    }
    fill_array(out, std::move(owner), table.rows(), 0);
}

void export_stream(const Table& table, ArrowArrayStream* out) {
    Stream<Table>::begin(table, out);
}

void export_schema(const Column& column, ArrowSchema* out) {
    move_out(column_schema(column), out);
}

void export_batch(const Column& column, ArrowArray* out) {
    move_out(column_array(column), out);
}

void export_stream(const Column& column, ArrowArrayStream* out) {
    Stream<Column>::begin(column, out);
}

}  // namespace sampleblk
