// SPDX-License-Identifier: MIT
#include "recording/builder.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <span>

#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/trace/writer.hpp"

namespace sampleblk::trace {

namespace {

// include/linux/ring_buffer.h, enum ring_buffer_type; the number of words of a short record otherwise.
constexpr std::uint32_t kTimeExtend = 30;
constexpr std::uint32_t kMostWords = 28;
constexpr std::uint32_t kDeltaBits = 27;
constexpr std::uint32_t kExtendBits = kDeltaBits + 32;
constexpr std::uint64_t kMissedEvents = 1ULL << 31U;
constexpr std::uint64_t kMissedStored = 1ULL << 30U;
constexpr std::size_t kSpoolStep = 1U << 20U;

// trace_get_header_page() and ring_buffer_print_entry_header() of kernel/trace/ring_buffer.c.
constexpr std::string_view kHeaderPage =
    "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n"
    "\tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n"
    "\tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n"
    "\tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";
constexpr std::string_view kHeaderEvent =
    "# compressed entry header\n"
    "\ttype_len    :    5 bits\n"
    "\ttime_delta  :   27 bits\n"
    "\tarray       :   32 bits\n"
    "\n"
    "\tpadding     : type == 29\n"
    "\ttime_extend : type == 30\n"
    "\ttime_stamp : type == 31\n"
    "\tdata max type_len  == 28\n";

std::uint32_t head_of(std::uint32_t type, std::uint64_t delta) {
    const auto low = static_cast<std::uint32_t>(delta & ((1U << kDeltaBits) - 1));
    return std::endian::native == std::endian::little ? type | (low << 5U) : (type << kDeltaBits) | low;
}

// A file without a name beside `path`, which goes with its descriptor.
Fd nameless_file(const std::string& path) {
    const auto slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    const int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) {
        return Fd(fd);
    }
    if (errno != EOPNOTSUPP && errno != EISDIR) {
        throw_errno("open", folder);
    }
    std::string name = path + ".XXXXXX";
    Fd named(::mkostemp(name.data(), O_CLOEXEC));
    if (!named) {
        throw_errno("mkostemp", name);
    }
    (void)::unlink(name.c_str());
    return named;
}

}  // namespace

EventLayout::EventLayout(std::string_view system, std::string_view name) : system_(system), name_(name) {
    (void)number("unsigned short", "common_type", 2);
    (void)number("unsigned char", "common_flags", 1);
    (void)number("unsigned char", "common_preempt_count", 1);
    (void)number("int", "common_pid", 4, true);
    fields_ += '\n';
}

std::uint32_t EventLayout::field(std::string_view declaration, std::uint32_t size, std::uint32_t align,
                                 bool is_signed) {
    const std::uint32_t offset = (end_ + align - 1) / align * align;
    end_ = offset + size;
    fields_.append("\tfield:").append(declaration).append(";\toffset:").append(std::to_string(offset));
    fields_.append(";\tsize:").append(std::to_string(size)).append(";\tsigned:").append(is_signed ? "1;\n" : "0;\n");
    return offset;
}

std::uint32_t EventLayout::number(std::string_view type, std::string_view name, std::uint32_t size, bool is_signed) {
    return field(std::string(type).append(" ").append(name), size, size, is_signed);
}

std::uint32_t EventLayout::text(std::string_view name, std::uint32_t size) {
    return field(std::string("char ").append(name) + "[" + std::to_string(size) + "]", size, 1, false);
}

std::uint32_t EventLayout::dynamic_text(std::string_view name) {
    return field(std::string("__data_loc char[] ").append(name), 4, 4, false);
}

std::string EventLayout::format(std::uint32_t id, std::string_view print) const {
    return "name: " + name_ + "\nID: " + std::to_string(id) + "\nformat:\n" + fields_ +
           "\nprint fmt: " + std::string(print) + "\n";
}

EventRecord::EventRecord(std::uint16_t type, std::uint32_t size, std::int32_t pid) : bytes_(size) {
    put(0, type);
    put(4, pid);
}

void EventRecord::put_text(std::uint32_t offset, std::uint32_t size, std::string_view text) {
    std::ranges::copy(std::as_bytes(std::span(text.substr(0, size - 1))), bytes_.begin() + offset);
}

bool EventRecord::put_dynamic(std::uint32_t offset, std::string_view text) {
    const auto at = static_cast<std::uint32_t>(bytes_.size());
    const std::size_t length = std::min<std::size_t>(text.size(), kMost - at - 1);
    put(offset, at | static_cast<std::uint32_t>(length + 1) << 16U);
    bytes_.resize((at + length + 1 + 3) & ~std::size_t{3});
    std::ranges::copy(std::as_bytes(std::span(text.substr(0, length))), bytes_.begin() + at);
    return length == text.size();
}

RecordingBuilder::RecordingBuilder(std::string path) : path_(std::move(path)), spool_(nameless_file(path_)) {}

std::uint16_t RecordingBuilder::add_format(const EventLayout& layout, std::string_view print) {
    if (next_id_ == UINT16_MAX) {
        throw InputError("more than " + std::to_string(UINT16_MAX - 1000) + " kinds of events", {}, 0,
                         "a recording that a trace.dat can hold");
    }
    formats_[layout.system()].push_back(layout.format(next_id_, print));
    return next_id_++;
}

void RecordingBuilder::add_task(std::int32_t pid, std::string_view comm) {
    if (pid > 0 && !comm.empty()) {
        // A line end in a name would begin another task's line.
        std::ranges::replace(tasks_.try_emplace(pid, comm).first->second, '\n', '?');
    }
}

bool RecordingBuilder::add(std::uint32_t number, std::uint64_t time, EventRecord record) {
    Cpu& cpu = cpus_[number];
    if (time < cpu.last) {
        return false;
    }
    auto place = cpu.waiting.end();
    while (place != cpu.waiting.begin() && std::prev(place)->time > time) {
        --place;
    }
    cpu.waiting.insert(place, Waiting{time, std::move(record).take(), cpu.lost_next, cpu.lost_count});
    cpu.lost_next = false;
    cpu.lost_count = 0;
    if (cpu.waiting.size() > kWindow) {
        put(cpu, cpu.waiting.front());
        cpu.waiting.pop_front();
    }
    return true;
}

void RecordingBuilder::add_lost(std::uint32_t number, std::uint64_t count) {
    Cpu& cpu = cpus_[number];
    cpu.lost_next = true;
    cpu.lost_count += count;
}

void RecordingBuilder::begin_page(Cpu& cpu, std::uint64_t time) {
    cpu.page.fill(std::byte{0});
    std::memcpy(cpu.page.data(), &time, sizeof(time));
    cpu.used = 0;
    cpu.open = true;
    cpu.last = time;
}

void RecordingBuilder::end_page(Cpu& cpu) {
    if (!cpu.open) {
        return;
    }
    std::uint64_t commit = cpu.used;
    if (cpu.missed) {
        commit |= kMissedEvents;
        if (cpu.missed_count != 0) {
            commit |= kMissedStored;
            std::memcpy(cpu.page.data() + kHead + cpu.used, &cpu.missed_count, sizeof(cpu.missed_count));
        }
    }
    std::memcpy(cpu.page.data() + sizeof(std::uint64_t), &commit, sizeof(commit));
    cpu.pages.push_back(spooled_);
    buffered_.append(reinterpret_cast<const char*>(cpu.page.data()), kPage);
    spooled_ += kPage;
    if (buffered_.size() >= kSpoolStep) {
        flush_spool();
    }
    cpu.open = cpu.missed = false;
    cpu.missed_count = 0;
}

void RecordingBuilder::put(Cpu& cpu, const Waiting& event) {
    const std::size_t words = event.bytes.size() / 4;
    const bool is_long = words > kMostWords;
    if (event.lost_before) {
        end_page(cpu);
        begin_page(cpu, event.time);
        cpu.missed = true;
        cpu.missed_count = event.lost_count;
    }
    const auto needs = [&](std::uint64_t delta) {
        return 4 + (is_long ? 4 : 0) + event.bytes.size() + ((delta >> kDeltaBits) != 0 ? 8 : 0);
    };
    const std::size_t room = kRoom - (cpu.missed ? sizeof(std::uint64_t) : 0);
    // A page has a whole stamp; a record's own have 59 bits.
    const bool far = ((event.time - cpu.last) >> kExtendBits) != 0;
    if (!cpu.open || far || cpu.used + needs(event.time - cpu.last) > room) {
        end_page(cpu);
        begin_page(cpu, event.time);
    }
    const auto word = [&cpu](std::uint32_t value) {
        std::memcpy(cpu.page.data() + kHead + cpu.used, &value, sizeof(value));
        cpu.used += sizeof(value);
    };
    std::uint64_t delta = event.time - cpu.last;
    if ((delta >> kDeltaBits) != 0) {
        word(head_of(kTimeExtend, delta));
        word(static_cast<std::uint32_t>(delta >> kDeltaBits));
        delta = 0;
    }
    word(head_of(is_long ? 0 : static_cast<std::uint32_t>(words), delta));
    if (is_long) {
        word(static_cast<std::uint32_t>(event.bytes.size() + 4));
    }
    std::memcpy(cpu.page.data() + kHead + cpu.used, event.bytes.data(), event.bytes.size());
    cpu.used += event.bytes.size();
    cpu.last = event.time;
}

void RecordingBuilder::flush_spool() {
    write_full(spool_.get(), buffered_, path_);
    buffered_.clear();
}

void RecordingBuilder::write(const std::string& uname) {
    for (auto& [number, cpu] : cpus_) {
        for (; !cpu.waiting.empty(); cpu.waiting.pop_front()) {
            put(cpu, cpu.waiting.front());
        }
        end_page(cpu);
        if (cpu.lost_next) {
            begin_page(cpu, cpu.last);
            cpu.missed = true;
            cpu.missed_count = cpu.lost_count;
            end_page(cpu);
        }
    }
    flush_spool();
    // The pages of each CPU behind each other, as the file has them.
    const Fd sorted = nameless_file(path_);
    BufferSpool buffer;
    std::uint64_t offset = 0;
    std::vector<std::byte> page(kPage);
    for (const auto& [number, cpu] : cpus_) {
        for (const std::uint64_t at : cpu.pages) {
            check_interrupt();
            if (lseek(spool_.get(), static_cast<off_t>(at), SEEK_SET) < 0) {
                throw_errno("lseek", path_);
            }
            if (read_full(spool_.get(), page, path_) != kPage) {
                throw SystemError("read", path_, EIO, "the end of what was spooled is missing");
            }
            write_full(sorted.get(), std::span<const std::byte>(page), path_);
        }
        const std::uint64_t bytes = cpu.pages.size() * kPage;
        buffer.cpus.push_back({number, "/proc/self/fd/" + std::to_string(sorted.get()), bytes, offset});
        offset += bytes;
    }
    TraceHeader header;
    header.big_endian = std::endian::native == std::endian::big;
    header.long_size = sizeof(std::uint64_t);
    header.page_size = kPage;
    header.header_page = kHeaderPage;
    header.header_event = kHeaderEvent;
    header.event_formats.assign(formats_.begin(), formats_.end());
    std::vector<std::pair<std::int32_t, std::string>> tasks(tasks_.begin(), tasks_.end());
    std::ranges::sort(tasks);
    for (const auto& [pid, comm] : tasks) {
        header.command_lines.append(std::to_string(pid)).append(" ").append(comm).append("\n");
    }
    header.uname = uname;
    header.writer = "sampleblk-lab";
    write_trace_file(path_, header, {buffer});
}

}  // namespace sampleblk::trace
