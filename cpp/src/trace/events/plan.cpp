// SPDX-License-Identifier: MIT
#include "events/plan.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

namespace sampleblk::trace {

namespace {

// Longer arrays are shown as hex text instead of a column an element.
constexpr std::uint32_t kMaxElements = 16;

ColumnType number_type(std::uint32_t size, bool is_signed) {
    switch (size) {
        case 1:
            return is_signed ? ColumnType::i8 : ColumnType::u8;
        case 2:
            return is_signed ? ColumnType::i16 : ColumnType::u16;
        case 4:
            return is_signed ? ColumnType::i32 : ColumnType::u32;
        default:
            return is_signed ? ColumnType::i64 : ColumnType::u64;
    }
}

bool asked_for(const DecodeRequest& request, const std::string& name) {
    return request.fields.empty() || std::ranges::find(request.fields, name) != request.fields.end();
}

bool holds_address(const Field& field) {
    if (field.kind != FieldKind::number || field.size < 4 || field.is_signed) {
        return false;
    }
    for (const std::string_view name : {"ip", "parent_ip", "func", "function", "retaddr", "call_site", "__probe_ip",
                                        "__probe_func", "__probe_ret_ip", "caller", "fn"}) {
        if (field.name == name) {
            return true;
        }
    }
    return false;
}

}  // namespace

EventPlan::EventPlan(const TraceFile& file, const EventFormat& format, const DecodeRequest& request,
                     std::size_t max_rows)
    : file_(&file), format_(&format), buffers_(file, request.selection.buffer), swap_(swap_needed(file.big_endian())) {
    Builder time;
    time.name = "time";
    time.unit = file.time_unit(request.selection.buffer);
    time.source = Source::time;
    add_builder(std::move(time));
    Builder cpu;
    cpu.name = "cpu";
    cpu.type = ColumnType::u16;
    cpu.source = Source::cpu;
    add_builder(std::move(cpu));
    if (buffers_.several()) {
        Builder buffer;
        buffer.name = "buffer";
        buffer.type = ColumnType::string;
        buffer.source = Source::buffer;
        buffer.words = std::make_unique<Dictionary>();
        add_builder(std::move(buffer));
    }
    if (request.comm) {
        if (const Field* pid = format.find("common_pid"); pid != nullptr && pid->size == 4) {
            Builder comm;
            comm.name = "comm";
            comm.type = ColumnType::string;
            comm.source = Source::command;
            comm.offset = pid->offset;
            comm.words = std::make_unique<Dictionary>();
            add_builder(std::move(comm));
        }
    }
    for (const Field& field : format.fields) {
        if (field.name != "common_type" && asked_for(request, field.name)) {
            add_field(field, request);
        }
    }
    for (Builder& builder : builders_) {
        builder.out.expect(max_rows * element_size(builder.type));
    }
}

void EventPlan::add_builder(Builder builder) {
    // Names are unique in a table; an event's own "time", or a field given twice, makes way.
    const auto taken = [this](const std::string& name) {
        return std::ranges::any_of(builders_, [&](const Builder& b) { return b.name == name; });
    };
    while (taken(builder.name)) {
        builder.name += "_";
    }
    builders_.push_back(std::move(builder));
}

void EventPlan::add_field(const Field& field, const DecodeRequest& request) {
    Builder builder;
    builder.name = field.name;
    builder.field = field;
    builder.offset = field.offset;
    switch (field.kind) {
        case FieldKind::number:
            builder.type = number_type(field.size, field.is_signed);
            add_builder(std::move(builder));
            if (request.symbols && holds_address(field)) {
                Builder symbol;
                symbol.name = field.name + "_symbol";
                symbol.type = ColumnType::string;
                symbol.source = Source::symbol;
                symbol.field = field;
                symbol.offset = field.offset;
                symbol.words = std::make_unique<Dictionary>();
                add_builder(std::move(symbol));
            }
            return;
        case FieldKind::numbers: {
            const std::uint32_t count = field.size / field.element_size;
            if (count <= kMaxElements) {
                for (std::uint32_t i = 0; i < count; ++i) {
                    Builder element;
                    element.name = field.name + "[" + std::to_string(i) + "]";
                    element.field = field;
                    element.offset = field.offset + i * field.element_size;
                    element.type = number_type(field.element_size, field.is_signed);
                    add_builder(std::move(element));
                }
                return;
            }
            builder.source = Source::array;
            break;
        }
        case FieldKind::text:
            builder.source = Source::text;
            break;
        case FieldKind::data_loc:
        case FieldKind::rel_loc:
            for (std::uint32_t i = 0; field.size > 4 && i < field.size / 4; ++i) {
                Field one = field;
                one.name += "[" + std::to_string(i) + "]";
                one.offset += 4 * i;
                one.size = 4;
                add_field(one, request);
            }
            if (field.size > 4) {
                return;
            }
            builder.source = Source::dynamic;
            break;
        case FieldKind::trailing_text:
            builder.source = Source::dynamic;
            break;
        case FieldKind::trailing:
            builder.source = request.symbols && field.name == "caller" ? Source::stack : Source::dynamic;
            break;
    }
    builder.type = ColumnType::string;
    builder.words = std::make_unique<Dictionary>();
    add_builder(std::move(builder));
}

template <typename T>
void EventPlan::copy_numbers(Builder& builder) const {
    // Locals, because a store through `out` could otherwise change any member.
    T* __restrict out = reinterpret_cast<T*>(builder.out.extend(pending_ * sizeof(T)));
    const std::byte* const* __restrict data = batch_->data.data();
    const std::size_t count = pending_;
    const std::uint32_t offset = builder.offset;
    if (swap_) {
        for (std::size_t i = 0; i < count; ++i) {
            out[i] = load<T, true>(data[i] + offset);
        }
    } else {
        for (std::size_t i = 0; i < count; ++i) {
            out[i] = load<T, false>(data[i] + offset);
        }
    }
}

std::int32_t EventPlan::dynamic_code(Builder& builder, std::size_t row) {
    const Field& field = builder.field;
    const std::byte* data = batch_->data[row];
    const std::uint32_t size = batch_->size[row];
    std::uint32_t at = field.offset;
    std::uint32_t length = 0;
    if (field.kind == FieldKind::data_loc || field.kind == FieldKind::rel_loc) {
        const auto location = load<std::uint32_t>(data + field.offset, swap_);
        at = location & 0xffff;
        length = location >> 16;
        if (field.kind == FieldKind::rel_loc) {
            at += field.offset + field.size;
        }
        if (length == 0) {
            return builder.words->code({});
        }
        if (at > size || length > size - at) {
            ++bad_fields_;
            return -1;
        }
    } else {
        length = at <= size ? size - at : 0;
    }
    const std::span<const std::byte> bytes(data + at, length);
    return field.is_text ? builder.words->code(as_text(bytes))
                         : builder.words->code(hex_array(bytes, field.element_size, swap_));
}

std::string EventPlan::stack_text(const Builder& builder, std::size_t row) const {
    const std::uint32_t each = file_->long_size();
    std::vector<std::uint64_t> frames;
    for (std::uint32_t at = builder.offset; at + each <= batch_->size[row]; at += each) {
        const std::byte* from = batch_->data[row] + at;
        const std::uint64_t address = each == 8 ? load<std::uint64_t>(from, swap_) : load<std::uint32_t>(from, swap_);
        if (address == 0 || address == UINT64_MAX) {
            break;
        }
        frames.push_back(address);
    }
    std::string out;
    for (const std::uint64_t frame : std::views::reverse(frames)) {
        out += (out.empty() ? "" : ";") + file_->symbols().describe(frame);
    }
    return out;
}

void EventPlan::fill_buffers(Builder& builder) {
    auto* out = reinterpret_cast<std::int32_t*>(builder.out.extend(pending_ * sizeof(std::int32_t)));
    for (std::size_t i = 0; i < pending_; ++i) {
        const std::uint16_t number = batch_->place[i].buffer;
        const auto [entry, fresh] = builder.known.try_emplace(number, -1);
        if (fresh) {
            entry->second = builder.words->code(buffers_.at(number));
        }
        out[i] = entry->second;
    }
}

void EventPlan::fill(Builder& builder) {
    switch (builder.source) {
        case Source::time: {
            auto* out = builder.out.extend(pending_ * sizeof(std::uint64_t));
            std::memcpy(out, batch_->time.data(), pending_ * sizeof(std::uint64_t));
            return;
        }
        case Source::cpu: {
            auto* out = reinterpret_cast<std::uint16_t*>(builder.out.extend(pending_ * sizeof(std::uint16_t)));
            const Place* place = batch_->place.data();
            for (std::size_t i = 0, count = pending_; i < count; ++i) {
                out[i] = place[i].cpu;
            }
            return;
        }
        case Source::buffer:
            fill_buffers(builder);
            return;
        case Source::number:
            switch (element_size(builder.type)) {
                case 1:
                    copy_numbers<std::uint8_t>(builder);
                    return;
                case 2:
                    copy_numbers<std::uint16_t>(builder);
                    return;
                case 4:
                    copy_numbers<std::uint32_t>(builder);
                    return;
                default:
                    copy_numbers<std::uint64_t>(builder);
                    return;
            }
        default:
            break;
    }
    auto* out = reinterpret_cast<std::int32_t*>(builder.out.extend(pending_ * sizeof(std::int32_t)));
    const Field& field = builder.field;
    if (builder.source == Source::text) {
        Dictionary& words = *builder.words;
        const std::byte* const* data = batch_->data.data();
        const std::uint32_t offset = field.offset;
        const std::uint32_t size = field.size;
        for (std::size_t i = 0, count = pending_; i < count; ++i) {
            out[i] = words.code({reinterpret_cast<const char*>(data[i] + offset), size});
        }
        return;
    }
    for (std::size_t i = 0; i < pending_; ++i) {
        const std::byte* data = batch_->data[i];
        switch (builder.source) {
            case Source::array:
                out[i] = builder.words->code(hex_array({data + field.offset, field.size}, field.element_size, swap_));
                break;
            case Source::command: {
                const auto pid = load<std::int32_t>(data + builder.offset, swap_);
                const auto [entry, fresh] = builder.known.try_emplace(static_cast<std::uint32_t>(pid), -1);
                if (fresh) {
                    const auto found = file_->commands().find(pid);
                    entry->second = pid == 0                           ? builder.words->code("<idle>")
                                    : found == file_->commands().end() ? builder.words->code("<...>")
                                                                       : builder.words->code(found->second);
                }
                out[i] = entry->second;
                break;
            }
            case Source::symbol: {
                const std::uint64_t address = field.size == 8 ? load<std::uint64_t>(data + builder.offset, swap_)
                                                              : load<std::uint32_t>(data + builder.offset, swap_);
                const auto [entry, fresh] = builder.known.try_emplace(address, -1);
                if (fresh) {
                    entry->second = builder.words->code(file_->symbols().describe(address));
                }
                out[i] = entry->second;
                break;
            }
            case Source::stack:
                out[i] = builder.words->code(stack_text(builder, i));
                break;
            default:
                out[i] = dynamic_code(builder, i);
                break;
        }
    }
}

void EventPlan::flush() {
    if (pending_ == 0) {
        return;
    }
    for (Builder& builder : builders_) {
        fill(builder);
    }
    rows_ += pending_;
    pending_ = 0;
}

void EventPlan::append(EventPlan& later) {
    flush();
    later.flush();
    for (std::size_t i = 0; i < builders_.size(); ++i) {
        Builder& to = builders_[i];
        Builder& from = later.builders_[i];
        const std::size_t bytes = from.out.size();
        if (bytes == 0) {
            continue;
        }
        std::byte* out = to.out.extend(bytes);
        if (!to.words) {
            std::memcpy(out, from.out.data(), bytes);
            continue;
        }
        std::vector<std::int32_t> codes;
        codes.reserve(from.words->pool()->size());
        for (std::size_t code = 0; code < from.words->pool()->size(); ++code) {
            codes.push_back(to.words->pool()->intern(from.words->pool()->at(static_cast<std::int32_t>(code))));
        }
        auto* target = reinterpret_cast<std::int32_t*>(out);
        const auto* source = reinterpret_cast<const std::int32_t*>(from.out.data());
        for (std::size_t row = 0; row < bytes / sizeof(std::int32_t); ++row) {
            target[row] = source[row] < 0 ? -1 : codes[static_cast<std::size_t>(source[row])];
        }
    }
    rows_ += later.rows_;
    bad_fields_ += later.bad_fields_;
}

Table EventPlan::take(std::map<std::string, std::string> metadata) {
    flush();
    std::vector<Column> columns;
    columns.reserve(builders_.size());
    for (Builder& builder : builders_) {
        std::shared_ptr<const StringPool> pool;
        if (builder.words) {
            pool = builder.words->take();
            builder.known.clear();
        }
        columns.emplace_back(builder.name, builder.type, builder.out.share(), rows_, builder.unit, std::move(pool));
    }
    rows_ = 0;
    return Table(std::move(columns), std::move(metadata));
}

}  // namespace sampleblk::trace
