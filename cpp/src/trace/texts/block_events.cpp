// SPDX-License-Identifier: MIT
#include "texts/block_events.hpp"

#include <array>
#include <charconv>
#include <utility>

#include "file/text.hpp"

namespace sampleblk::trace {

namespace {

// The kernel's RWBS_LEN is 8, and 10 since 7.0; a text may have more.
constexpr std::uint32_t kRwbsSize = 16;
constexpr std::uint32_t kCommSize = 16;  // TASK_COMM_LEN

constexpr std::array kPriorityClasses = {"none", "rt", "be", "idle"};  // IOPRIO_CLASS_*
constexpr std::uint32_t kPriorityInvalid = 7;

constexpr std::pair<std::string_view, BlockShape> kEvents[] = {
    {"block_bio_queue", BlockShape::bio},
    {"block_bio_backmerge", BlockShape::bio},
    {"block_bio_frontmerge", BlockShape::bio},
    {"block_bio_bounce", BlockShape::bio},
    {"block_getrq", BlockShape::bio},
    {"block_sleeprq", BlockShape::bio},
    {"block_bio_complete", BlockShape::bio_end},
    {"block_rq_insert", BlockShape::request},
    {"block_rq_issue", BlockShape::request},
    {"block_rq_merge", BlockShape::request},
    {"block_io_start", BlockShape::request},
    {"block_io_done", BlockShape::request},
    {"block_rq_complete", BlockShape::request_end},
    {"block_rq_requeue", BlockShape::request_end},
    {"block_rq_error", BlockShape::request_end},
    {"block_rq_abort", BlockShape::request_end},
    {"block_split", BlockShape::split},
    {"block_bio_remap", BlockShape::remap},
    {"block_rq_remap", BlockShape::remap},
    {"block_plug", BlockShape::plug},
    {"block_unplug", BlockShape::unplug},
    {"block_touch_buffer", BlockShape::buffer},
    {"block_dirty_buffer", BlockShape::buffer},
};

// Takes what an event's line has off its front.
class Cursor {
  public:
    explicit Cursor(std::string_view text) : text_(text) {}

    template <typename T>
    bool number(T& value, int base = 10) {
        const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), value, base);
        if (error != std::errc()) {
            return false;
        }
        text_.remove_prefix(static_cast<std::size_t>(end - text_.data()));
        return true;
    }
    bool expect(std::string_view literal) {
        if (!text_.starts_with(literal)) {
            return false;
        }
        text_.remove_prefix(literal.size());
        return true;
    }
    bool word(std::string_view& out) {
        const auto end = text_.find(' ');
        if (end == 0 || end == std::string_view::npos) {
            return false;
        }
        out = text_.substr(0, end);
        text_.remove_prefix(end);
        return true;
    }
    // "(…)" up to the last ")" before `behind`.
    bool bracketed(std::string_view& out, std::string_view behind) {
        const auto end = text_.find(behind);
        if (!text_.starts_with('(') || end == std::string_view::npos) {
            return false;
        }
        out = text_.substr(1, end - 1);
        text_.remove_prefix(end + 1);
        return true;
    }
    // "[…]", which ends the text: a task's name may have brackets of its own.
    bool rest_in_brackets(std::string_view& out) {
        if (text_.size() < 2 || text_.front() != '[' || text_.back() != ']') {
            return false;
        }
        out = text_.substr(1, text_.size() - 2);
        text_ = {};
        return true;
    }
    bool device(std::uint32_t& out) {
        std::uint32_t major = 0;
        std::uint32_t minor = 0;
        if (!number(major) || !expect(",") || !number(minor) || major > 0xfff || minor > 0xfffff) {
            return false;
        }
        out = (major << 20U) | minor;
        return true;
    }
    // " none,0,0", or as trace-cmd has it " 0x0,0,0"; leaves alone what is none.
    void priority(std::optional<std::uint16_t>& out) {
        Cursor at = *this;
        std::string_view name;
        if (!at.expect(" ") || at.text_.starts_with('[')) {
            return;
        }
        const auto comma = at.text_.find(',');
        if (comma == std::string_view::npos) {
            return;
        }
        name = at.text_.substr(0, comma);
        at.text_.remove_prefix(comma + 1);
        std::uint32_t type = kPriorityInvalid;
        for (std::uint32_t i = 0; i < kPriorityClasses.size(); ++i) {
            type = name == kPriorityClasses[i] ? i : type;
        }
        if (Cursor number(name); number.expect("0x") && (!number.number(type, 16) || !number.at_end())) {
            return;
        }
        std::uint32_t hint = 0;
        std::uint32_t level = 0;
        if (type > kPriorityInvalid || (type == kPriorityInvalid && name != "invalid" && name != "0x7") ||
            !at.number(hint) || !at.expect(",") || !at.number(level) || hint > 0x3ff || level > 7) {
            return;
        }
        out = static_cast<std::uint16_t>((type << 13U) | (hint << 3U) | level);
        *this = at;
    }
    [[nodiscard]] bool at_end() const { return text_.empty(); }

  private:
    std::string_view text_;
};

}  // namespace

std::optional<BlockShape> block_shape(std::string_view event) {
    if (!event.starts_with("block_")) {
        return std::nullopt;
    }
    for (const auto& [name, shape] : kEvents) {
        if (name == event) {
            return shape;
        }
    }
    return std::nullopt;
}

bool parse_device(std::string_view text, std::uint32_t& device) {
    Cursor at(text);
    return at.device(device) && at.at_end();
}

bool parse_block_event(BlockShape shape, std::string_view text, BlockEvent& event) {
    Cursor at(text);
    const auto place = [&at, &event] {
        return at.number(event.sector) && at.expect(" + ") && at.number(event.sectors);
    };
    const auto in_brackets = [&at](std::int32_t& value) {
        return at.expect(" [") && at.number(value) && at.expect("]") && at.at_end();
    };
    if (shape == BlockShape::plug) {
        return at.rest_in_brackets(event.comm);
    }
    if (shape == BlockShape::unplug) {
        const auto end = text.rfind("] ");
        if (!text.starts_with('[') || end == std::string_view::npos) {
            return false;
        }
        event.comm = text.substr(1, end - 1);
        Cursor behind(text.substr(end + 2));
        return behind.number(event.requests) && behind.at_end();
    }
    if (!at.device(event.dev) || !at.expect(" ")) {
        return false;
    }
    if (shape == BlockShape::buffer) {
        return at.expect("sector=") && at.number(event.sector) && at.expect(" size=") && at.number(event.bytes) &&
               at.at_end();
    }
    if (!at.word(event.rwbs) || !at.expect(" ")) {
        return false;
    }
    switch (shape) {
        case BlockShape::bio:
            return place() && at.expect(" ") && at.rest_in_brackets(event.comm);
        case BlockShape::bio_end:
            return place() && in_brackets(event.error);
        case BlockShape::request: {
            std::uint32_t bytes = 0;
            if (!at.number(bytes) || !at.expect(" ") || !at.bracketed(event.command, ") ") || !at.expect(" ") ||
                !place()) {
                return false;
            }
            event.bytes = bytes;
            at.priority(event.ioprio);
            return at.expect(" ") && at.rest_in_brackets(event.comm);
        }
        case BlockShape::request_end:
            if (!at.bracketed(event.command, ") ") || !at.expect(" ") || !place()) {
                return false;
            }
            at.priority(event.ioprio);
            return in_brackets(event.error);
        case BlockShape::split:
            return at.number(event.sector) && at.expect(" / ") && at.number(event.new_sector) && at.expect(" ") &&
                   at.rest_in_brackets(event.comm);
        case BlockShape::remap: {
            if (!place() || !at.expect(" <- (") || !at.device(event.old_dev) || !at.expect(") ") ||
                !at.number(event.old_sector)) {
                return false;
            }
            std::uint32_t bios = 0;
            if (at.at_end()) {
                return true;
            }
            if (!at.expect(" ") || !at.number(bios)) {
                return false;
            }
            event.bios = bios;
            return at.at_end();
        }
        default:
            return false;
    }
}

BlockEventWriter::Format BlockEventWriter::make(std::string_view name, BlockShape shape, const BlockEvent& event) {
    EventLayout layout("block", name);
    Format out;
    Offsets& at = out.at;
    std::string print;
    std::string values;
    const auto device = [&](const char* field, std::uint32_t& offset) { offset = layout.number("dev_t", field, 4); };
    const auto device_values = [](const std::string& field) {
        return "((unsigned int) ((REC->" + field + ") >> 20)), ((unsigned int) ((REC->" + field +
               ") & ((1U << 20) - 1)))";
    };
    // What is printed as the kernel does, one piece after the other.
    const auto show = [&](std::string_view format, std::string_view value) {
        print += format;
        values.append(", ").append(value);
    };
    const auto sector = [&] { at.sector = layout.number("sector_t", "sector", 8); };
    const auto sectors = [&] { at.sectors = layout.number("unsigned int", "nr_sector", 4); };
    const auto priority = [&] {
        if (out.has_ioprio) {
            show(" %s,%u,%u",
                 "__print_symbolic((((REC->ioprio) >> 13) & (8 - 1)), { 0, \"none\" }, { 1, \"rt\" }, { 2, \"be\" }, "
                 "{ 3, \"idle\" }, { 7, \"invalid\" }), (((REC->ioprio) >> 3) & ((1 << 10) - 1)), ((REC->ioprio) & "
                 "((1 << 3) - 1))");
        }
    };
    const auto texts = [&](bool comm) {
        at.rwbs = layout.text("rwbs", kRwbsSize);
        if (comm) {
            at.comm = layout.text("comm", kCommSize);
        }
    };
    const auto command = [&] { at.command = layout.dynamic_text("cmd"); };
    const auto place = [&] { show(" %llu + %u", "(unsigned long long)REC->sector, REC->nr_sector"); };
    if (shape == BlockShape::plug || shape == BlockShape::unplug) {
        if (shape == BlockShape::unplug) {
            at.requests = layout.number("int", "nr_rq", 4, true);
        }
        at.comm = layout.text("comm", kCommSize);
        show("[%s]", "REC->comm");
        if (shape == BlockShape::unplug) {
            show(" %d", "REC->nr_rq");
        }
    } else {
        device("dev", at.dev);
        show("%d,%d", device_values("dev"));
        sector();
        if (shape != BlockShape::buffer) {
            show(" %s", "REC->rwbs");
        }
    }
    switch (shape) {
        case BlockShape::bio:
            sectors();
            texts(true);
            place();
            show(" [%s]", "REC->comm");
            break;
        case BlockShape::bio_end:
            sectors();
            at.error = layout.number("int", "error", 4, true);
            texts(false);
            place();
            show(" [%d]", "REC->error");
            break;
        case BlockShape::request:
        case BlockShape::request_end: {
            const bool ends = shape == BlockShape::request_end;
            sectors();
            if (ends) {
                at.error = layout.number("int", "error", 4, true);
            } else {
                at.bytes = layout.number("unsigned int", "bytes", 4);
                show(" %u", "REC->bytes");
            }
            out.has_ioprio = event.ioprio.has_value();
            if (out.has_ioprio) {
                at.ioprio = layout.number("unsigned short", "ioprio", 2);
            }
            texts(!ends);
            command();
            show(" (%s)", "__get_str(cmd)");
            place();
            priority();
            show(ends ? " [%d]" : " [%s]", ends ? "REC->error" : "REC->comm");
            break;
        }
        case BlockShape::split:
            at.new_sector = layout.number("sector_t", "new_sector", 8);
            texts(true);
            show(" %llu / %llu [%s]",
                 "(unsigned long long)REC->sector, (unsigned long long)REC->new_sector, REC->comm");
            break;
        case BlockShape::remap:
            sectors();
            device("old_dev", at.old_dev);
            at.old_sector = layout.number("sector_t", "old_sector", 8);
            out.has_bios = event.bios.has_value();
            if (out.has_bios) {
                at.bios = layout.number("unsigned int", "nr_bios", 4);
            }
            texts(false);
            place();
            show(" <- (%d,%d)", device_values("old_dev"));
            show(" %llu", "(unsigned long long)REC->old_sector");
            if (out.has_bios) {
                show(" %u", "REC->nr_bios");
            }
            break;
        case BlockShape::buffer:
            at.bytes = layout.number("size_t", "size", 8);
            show(" sector=%llu size=%zu", "(unsigned long long)REC->sector, REC->size");
            break;
        default:
            break;
    }
    out.size = layout.size();
    out.id = recording_.add_format(layout, "\"" + print + "\"" + values);
    return out;
}

bool BlockEventWriter::add(std::string_view name, BlockShape shape, std::uint32_t cpu, std::uint64_t time,
                           std::int32_t pid, const BlockEvent& event) {
    auto found = formats_.find(name);
    if (found == formats_.end()) {
        found = formats_.emplace(name, make(name, shape, event)).first;
    }
    const Format& format = found->second;
    const Offsets& at = format.at;
    EventRecord record(format.id, format.size, pid);
    // A field that the event has is never at 0, where its type is.
    const auto put = [&record](std::uint32_t offset, auto value) {
        if (offset != 0) {
            record.put(offset, value);
        }
    };
    put(at.dev, event.dev);
    put(at.sector, event.sector);
    put(at.sectors, event.sectors);
    if (shape == BlockShape::buffer) {
        put(at.bytes, event.bytes);
    } else {
        put(at.bytes, static_cast<std::uint32_t>(event.bytes));
    }
    put(at.error, event.error);
    put(at.ioprio, event.ioprio.value_or(0));
    put(at.new_sector, event.new_sector);
    put(at.old_dev, event.old_dev);
    put(at.old_sector, event.old_sector);
    put(at.bios, event.bios.value_or(0));
    put(at.requests, event.requests);
    if (at.rwbs != 0) {
        record.put_text(at.rwbs, kRwbsSize, event.rwbs);
    }
    if (at.comm != 0) {
        record.put_text(at.comm, kCommSize, event.comm);
    }
    if (at.command != 0) {
        (void)record.put_dynamic(at.command, event.command);
    }
    return recording_.add(cpu, time, std::move(record));
}

}  // namespace sampleblk::trace
