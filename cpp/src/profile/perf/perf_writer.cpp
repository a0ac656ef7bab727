// SPDX-License-Identifier: MIT
#include "perf/perf_writer.hpp"

#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <string_view>

#include "perf/perf_parts.hpp"
#include "perf/record_maker.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/profile/profile.hpp"
#include "symbols/elf_symbols.hpp"

namespace sampleblk::profile {

namespace {

constexpr std::size_t kPending = std::size_t{1} << 20U;

class Bytes {
  public:
    template <typename T>
    Bytes& put(T value) {
        return put_bytes(&value, sizeof(value));
    }
    Bytes& put_bytes(const void* data, std::size_t size) {
        const auto* from = static_cast<const std::byte*>(data);
        bytes_.insert(bytes_.end(), from, from + size);
        return *this;
    }
    // perf's strings: a length that counts NUL and padding, to 64 bytes.
    Bytes& put_counted(std::string_view text) {
        const std::size_t room = (text.size() / 64 + 1) * 64;
        put(static_cast<std::uint32_t>(room));
        put_bytes(text.data(), text.size());
        bytes_.resize(bytes_.size() + room - text.size());
        return *this;
    }
    [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

  private:
    std::vector<std::byte> bytes_;
};

std::vector<std::byte> text_feature(std::string_view text) {
    return Bytes().put_counted(text).take();
}

std::string cpu_model() {
    std::string text;
    try {
        text = read_file("/proc/cpuinfo");
    } catch (const SystemError&) {
        return "unknown";
    }
    const auto at = text.find("model name");
    const auto colon = text.find(": ", at);
    const auto end = text.find('\n', at);
    return at == std::string::npos || colon == std::string::npos ? "unknown" : text.substr(colon + 2, end - colon - 2);
}

std::vector<std::byte> build_id_record(const std::string& path, const std::string& id, std::uint16_t misc) {
    RecordMaker record(kRecordBuildId, misc | (1U << 15U));  // PERF_RECORD_MISC_BUILD_ID_SIZE
    record.put(std::int32_t{-1});
    const auto bytes = build_id_bytes(id);
    record.put_bytes(bytes.data(), bytes.size()).put(static_cast<std::uint32_t>(id.size() / 2));
    record.put_text(path);
    return record.finish(0);
}

std::vector<std::byte> build_ids(const std::map<std::string, std::string>& files) {
    std::vector<std::byte> out;
    const auto add = [&out](const std::vector<std::byte>& record) {
        out.insert(out.end(), record.begin(), record.end());
    };
    try {
        const std::string notes = read_file("/sys/kernel/notes");
        if (const std::string id = build_id_in_notes(std::as_bytes(std::span(notes))); !id.empty()) {
            add(build_id_record("[kernel.kallsyms]", id, PERF_RECORD_MISC_KERNEL));
        }
    } catch (const SystemError&) {  // NOLINT(bugprone-empty-catch): no notes, no id
    }
    if (const auto vdso = read_elf_info(own_vdso()); vdso && !vdso->build_id.empty()) {
        add(build_id_record("[vdso]", vdso->build_id, PERF_RECORD_MISC_USER));
    }
    for (const auto& [file, id] : files) {
        if (!id.empty()) {
            add(build_id_record(file, id, PERF_RECORD_MISC_USER));
        }
    }
    return out;
}

void write_at(int fd, std::span<const std::byte> bytes, std::uint64_t offset, const std::string& path) {
    while (!bytes.empty()) {
        const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
        if (put < 0) {
            if (errno == EINTR) {
                continue;
            }
            throw_errno("write", path);
        }
        bytes = bytes.subspan(static_cast<std::size_t>(put));
        offset += static_cast<std::uint64_t>(put);
    }
}

}  // namespace

PerfWriter::PerfWriter(const std::string& path, const std::vector<Event>& events)
    : path_(path), fd_(open_file(path, O_WRONLY | O_CREAT | O_TRUNC, 0644)), events_(events) {
    Bytes attributes;
    std::uint64_t ids_at = kFileHeaderSize;
    for (const Event& event : events) {
        attributes.put_bytes(&event.attr, sizeof(event.attr));
        attributes.put(ids_at + events.size() * (sizeof(perf_event_attr) + 16)).put(event.ids.size() * 8);
        ids_at += event.ids.size() * 8;
    }
    for (const Event& event : events) {
        attributes.put_bytes(event.ids.data(), event.ids.size() * 8);
    }
    const auto body = attributes.take();
    data_offset_ = kFileHeaderSize + body.size();
    header_ = Bytes()
                  .put_bytes("PERFILE2", 8)
                  .put(std::uint64_t{kFileHeaderSize})
                  .put(std::uint64_t{sizeof(perf_event_attr) + 16})
                  .put(std::uint64_t{kFileHeaderSize})
                  .put(std::uint64_t{events.size() * (sizeof(perf_event_attr) + 16)})
                  .put(data_offset_)
                  .take();
    header_.resize(kFileHeaderSize);
    write_full(fd_.get(), header_, path_);
    write_full(fd_.get(), body, path_);
    pending_.reserve(kPending);
}

void PerfWriter::flush() {
    write_full(fd_.get(), pending_, path_);
    pending_.clear();
}

void PerfWriter::write(std::span<const std::byte> bytes) {
    if (pending_.size() + bytes.size() > kPending) {
        flush();
    }
    if (bytes.size() > kPending) {
        write_full(fd_.get(), bytes, path_);
    } else {
        pending_.insert(pending_.end(), bytes.begin(), bytes.end());
    }
    data_bytes_ += bytes.size();
}

std::vector<std::byte> PerfWriter::event_description() const {
    Bytes out;
    out.put(static_cast<std::uint32_t>(events_.size())).put(static_cast<std::uint32_t>(sizeof(perf_event_attr)));
    for (const Event& event : events_) {
        out.put_bytes(&event.attr, sizeof(event.attr)).put(static_cast<std::uint32_t>(event.ids.size()));
        out.put_counted(event.name).put_bytes(event.ids.data(), event.ids.size() * 8);
    }
    return out.take();
}

void PerfWriter::finish(const std::map<std::string, std::string>& files, const std::vector<std::byte>& tracing_data) {
    flush();
    struct utsname machine{};
    (void)uname(&machine);
    std::map<std::uint32_t, std::vector<std::byte>> features;
    if (!tracing_data.empty()) {
        features[kFeatureTracingData] = tracing_data;
    }
    features[kFeatureBuildId] = build_ids(files);
    features[kFeatureHostname] = text_feature(machine.nodename);
    features[kFeatureOsRelease] = text_feature(machine.release);
    features[kFeatureVersion] = text_feature("sampleblk-lab");
    features[kFeatureArch] = text_feature(machine.machine);
    features[kFeatureCpus] = Bytes()
                                 .put(static_cast<std::uint32_t>(sysconf(_SC_NPROCESSORS_ONLN)))
                                 .put(static_cast<std::uint32_t>(sysconf(_SC_NPROCESSORS_CONF)))
                                 .take();
    features[kFeatureCpuDescription] = text_feature(cpu_model());
    features[kFeatureEventDescription] = event_description();
    Bytes table;
    std::vector<std::byte> bodies;
    std::uint64_t at = data_offset_ + data_bytes_ + features.size() * 16;
    std::array<std::uint64_t, 4> bits{};
    for (auto& [feature, bytes] : features) {
        bytes.resize((bytes.size() + 7) / 8 * 8);
        bits.at(feature / 64) |= std::uint64_t{1} << (feature % 64);
        table.put(at).put(std::uint64_t{bytes.size()});
        bodies.insert(bodies.end(), bytes.begin(), bytes.end());
        at += bytes.size();
    }
    write_full(fd_.get(), table.take(), path_);
    write_full(fd_.get(), bodies, path_);
    std::memcpy(header_.data() + 48, &data_bytes_, sizeof(data_bytes_));
    std::memcpy(header_.data() + 72, bits.data(), sizeof(bits));
    write_at(fd_.get(), header_, 0, path_);
    fd_.reset();
}

}  // namespace sampleblk::profile
