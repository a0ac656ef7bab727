// SPDX-License-Identifier: MIT
#include "sampleblk/profile/exports.hpp"

#include <fcntl.h>
#include <zlib.h>

#include <map>
#include <ranges>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/text.hpp"
#include "sampleblk/trace/protobuf.hpp"

namespace sampleblk::profile {

namespace {

using trace::protobuf::bytes;
using trace::protobuf::number;
using trace::protobuf::varint;

// Functions of a tree, each with what it is in, numbered from 0.
class Functions {
  public:
    explicit Functions(const StackTree& tree) : tree_(tree) {}

    std::uint32_t of(const StackTree::Node& node) {
        const auto key = std::pair(node.label, node.module);
        const auto [found, fresh] = numbers_.try_emplace(key, static_cast<std::uint32_t>(all_.size()));
        if (fresh) {
            all_.push_back(key);
        }
        return found->second;
    }
    [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }
    [[nodiscard]] const std::string& name(std::size_t number) const { return tree_.labels().at(all_[number].first); }
    // nullptr: not known.
    [[nodiscard]] const std::string* module(std::size_t number) const {
        return all_[number].second < 0 ? nullptr : &tree_.labels().at(all_[number].second);
    }

  private:
    const StackTree& tree_;
    std::map<std::pair<std::int32_t, std::int32_t>, std::uint32_t> numbers_;
    std::vector<std::pair<std::int32_t, std::int32_t>> all_;
};

// Calls `take(thread, stack, weight)` for each stack with a weight of its own, innermost function first; `thread` is
// the tree's node of its thread.
template <typename Take>
void each_stack(const StackTree& tree, Functions& functions, Take&& take) {
    std::vector<std::uint32_t> stack;
    for (std::uint32_t i = 1; i < tree.nodes().size(); ++i) {
        if (i % 65536 == 0) {
            check_interrupt();
        }
        if (tree.nodes()[i].self == 0) {
            continue;
        }
        stack.clear();
        std::uint32_t at = i;
        for (; tree.nodes()[at].parent != 0; at = tree.nodes()[at].parent) {
            stack.push_back(functions.of(tree.nodes()[at]));
        }
        if (StackTree::is_function(tree.nodes()[at])) {
            stack.push_back(functions.of(tree.nodes()[at]));
        }
        take(at, stack, tree.nodes()[i].self);
    }
}

std::string gzip(const std::string& plain) {
    z_stream stream{};
    constexpr int with_gzip_header = 15 + 16;
    if (deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, with_gzip_header, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        throw std::bad_alloc();
    }
    std::string out(deflateBound(&stream, plain.size()), '\0');
    // zlib counts in 32 bits.
    constexpr std::size_t most = std::size_t{1} << 30U;
    std::size_t read = 0;
    std::size_t written = 0;
    int code = Z_OK;
    while (code == Z_OK) {
        const std::size_t in = std::min(most, plain.size() - read);
        const std::size_t room = std::min(most, out.size() - written);
        stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data() + read));
        stream.avail_in = static_cast<uInt>(in);
        stream.next_out = reinterpret_cast<Bytef*>(out.data() + written);
        stream.avail_out = static_cast<uInt>(room);
        code = deflate(&stream, read + in == plain.size() ? Z_FINISH : Z_NO_FLUSH);
        read += in - stream.avail_in;
        written += room - stream.avail_out;
    }
    deflateEnd(&stream);
    out.resize(written);
    return out;
}

// pprof's table of strings; "" is number 0.
class Strings {
  public:
    std::uint64_t of(const std::string& text) {
        const auto [found, fresh] = numbers_.try_emplace(text, all_.size());
        if (fresh) {
            all_.push_back(text);
        }
        return found->second;
    }
    void write(std::string& out, std::uint32_t tag) const {
        for (const std::string& text : all_) {
            bytes(out, tag, text);
        }
    }

  private:
    std::vector<std::string> all_{""};
    std::unordered_map<std::string, std::uint64_t> numbers_{{"", 0}};
};

}  // namespace

std::string speedscope_json(const StackTree& tree, const std::string& title) {
    struct Thread {
        std::string samples;
        std::string weights;
        std::uint64_t total = 0;
    };
    Functions functions(tree);
    std::map<std::string, Thread> threads;
    each_stack(tree, functions, [&](std::uint32_t node, const std::vector<std::uint32_t>& stack, std::uint64_t weight) {
        Thread& thread = threads[tree.label(tree.nodes()[node])];
        thread.samples += thread.samples.empty() ? "[" : ",[";
        for (auto frame = stack.rbegin(); frame != stack.rend(); ++frame) {
            thread.samples += (frame == stack.rbegin() ? "" : ",") + std::to_string(*frame);
        }
        thread.samples += "]";
        thread.weights += (thread.weights.empty() ? "" : ",") + std::to_string(weight);
        thread.total += weight;
    });
    std::string out = R"({"$schema":"https://www.speedscope.app/file-format-schema.json","exporter":"sampleblk-lab",)";
    out += R"("name":)" + json_text(title) + R"(,"activeProfileIndex":0,"shared":{"frames":[)";
    for (std::size_t i = 0; i < functions.size(); ++i) {
        out += (i == 0 ? "\n" : ",\n");
        out += R"({"name":)" + json_text(functions.name(i));
        if (const std::string* module = functions.module(i); module != nullptr) {
            out += R"(,"file":)" + json_text(*module);
        }
        out += "}";
    }
    out += R"(]},"profiles":[)";
    const std::string unit = tree.unit() == "ns" ? "nanoseconds" : "none";
    const char* comma = "\n";
    for (const auto& [name, thread] : threads) {
        out.append(comma).append(R"({"type":"sampled","name":)").append(json_text(name));
        out += R"(,"unit":")" + unit + R"(","startValue":0,"endValue":)" + std::to_string(thread.total);
        out += R"(,"samples":[)" + thread.samples + R"(],"weights":[)" + thread.weights + "]}";
        comma = ",\n";
    }
    return out + "]}\n";
}

std::string pprof_profile(const StackTree& tree) {
    enum : std::uint8_t { kSampleType = 1, kSample = 2, kMapping = 3, kLocation = 4, kFunction = 5, kStrings = 6 };
    Functions functions(tree);
    Strings strings;
    std::string out;
    std::string message;
    std::string part;
    const auto value_type = [&](const std::string& type, const std::string& unit) {
        message.clear();
        number(message, 1, strings.of(type));
        number(message, 2, strings.of(unit));
        bytes(out, kSampleType, message);
    };
    if (tree.unit() == "ns") {
        value_type("time", "nanoseconds");
    } else {
        value_type(tree.unit(), "count");
    }
    const std::uint64_t thread_key = strings.of("thread");
    each_stack(tree, functions, [&](std::uint32_t node, const std::vector<std::uint32_t>& stack, std::uint64_t weight) {
        message.clear();
        part.clear();
        for (const std::uint32_t function : stack) {
            varint(part, function + std::uint64_t{1});
        }
        bytes(message, 1, part);
        number(message, 2, weight);
        part.clear();
        number(part, 1, thread_key);
        number(part, 2, strings.of(tree.label(tree.nodes()[node])));
        bytes(message, 3, part);
        bytes(out, kSample, message);
    });
    std::map<std::string, std::uint64_t> mappings;
    for (std::size_t i = 0; i < functions.size(); ++i) {
        std::uint64_t mapping = 0;
        if (const std::string* module = functions.module(i); module != nullptr) {
            mapping = mappings.try_emplace(*module, mappings.size() + 1).first->second;
        }
        message.clear();
        number(message, 1, i + 1);
        if (mapping != 0) {
            number(message, 2, mapping);
        }
        part.clear();
        number(part, 1, i + 1);
        bytes(message, 4, part);
        bytes(out, kLocation, message);
        message.clear();
        number(message, 1, i + 1);
        number(message, 2, strings.of(functions.name(i)));
        number(message, 3, strings.of(functions.name(i)));
        bytes(out, kFunction, message);
    }
    for (const auto& [module, id] : mappings) {
        message.clear();
        number(message, 1, id);
        number(message, 5, strings.of(module));
        number(message, 7, 1);  // the names of functions are here
        bytes(out, kMapping, message);
    }
    strings.write(out, kStrings);
    return gzip(out);
}

namespace {

// Field numbers of Perfetto's protos.
enum : std::uint8_t {
    kTracePacket = 1,
    kPacketTimestamp = 8,
    kPacketSequence = 10,
    kPacketInterned = 12,
    kPacketFlags = 13,
    kPacketTrackDescriptor = 60,
    kPacketPerfSample = 66,
    kInternedFunctionNames = 5,
    kInternedFrames = 6,
    kInternedCallstacks = 7,
    kInternedPaths = 17,
    kInternedMappings = 19,
};
constexpr std::uint64_t kSequence = 2;  // the timeline's own is 1: both can go into one file
constexpr std::uint64_t kStateCleared = 1;
constexpr std::uint64_t kNeedsState = 2;

class PerfettoSamples {
  public:
    PerfettoSamples(const Profile& profile, const std::string& path)
        : profile_(profile),
          file_(path),
          stacks_(profile.stacks().size(), false),
          frames_(profile.frames().size(), false) {}

    void write(const SampleSelection& selection) {
        const std::vector<std::uint32_t> samples = profile_.select(selection);
        // A track has one name: the one that its thread has last, for a sample between fork and exec has its parent's.
        for (const std::uint32_t i : samples) {
            comms_[profile_.tids()[i]] = profile_.comms()[i];
        }
        std::size_t since_check = 0;
        for (const std::uint32_t i : samples) {
            if (++since_check % 65536 == 0) {
                check_interrupt();
            }
            thread(i);
            const std::uint32_t leaf = profile_.leaves()[i];
            interned_.clear();
            stack(leaf);
            message_.clear();
            number(message_, 1, profile_.cpus()[i]);
            number(message_, 2, static_cast<std::uint32_t>(profile_.pids()[i]));
            number(message_, 3, static_cast<std::uint32_t>(profile_.tids()[i]));
            number(message_, 4, std::uint64_t{leaf} + 1);
            const FrameKind kind =
                leaf == 0 ? FrameKind::unknown : profile_.frames()[profile_.stacks()[leaf].frame].kind;
            const bool kernel = kind == FrameKind::kernel || kind == FrameKind::module;
            number(message_, 5, kernel ? 1 : 2);
            packet(kPacketPerfSample, &profile_.times()[i]);
        }
        flush();
        file_.finish();
    }

  private:
    void thread(std::uint32_t sample) {
        const std::int32_t tid = profile_.tids()[sample];
        if (!threads_.insert(tid).second) {
            return;
        }
        interned_.clear();
        std::string thread;
        number(thread, 1, static_cast<std::uint32_t>(profile_.pids()[sample]));
        number(thread, 2, static_cast<std::uint32_t>(tid));
        bytes(thread, 5, profile_.names().at(comms_.at(tid)));
        message_.clear();
        number(message_, 1, (std::uint64_t{1} << 61U) + static_cast<std::uint32_t>(tid));
        bytes(message_, 4, thread);
        packet(kPacketTrackDescriptor, nullptr);
    }

    void stack(std::uint32_t leaf) {
        if (stacks_[leaf]) {
            return;
        }
        stacks_[leaf] = true;
        std::vector<std::uint32_t> path;
        for (std::uint32_t node = leaf; node != 0; node = profile_.stacks()[node].parent) {
            path.push_back(profile_.stacks()[node].frame);
        }
        std::string callstack;
        number(callstack, 1, std::uint64_t{leaf} + 1);
        for (const std::uint32_t frame : std::views::reverse(path)) {
            intern(frame);
            number(callstack, 2, std::uint64_t{frame} + 1);
        }
        bytes(interned_, kInternedCallstacks, callstack);
    }

    void intern(std::uint32_t frame_number) {
        if (frames_[frame_number]) {
            return;
        }
        frames_[frame_number] = true;
        const Frame& frame = profile_.frames()[frame_number];
        text(kInternedFunctionNames, frame.name);
        if (text(kInternedPaths, frame.module)) {
            std::string mapping;
            number(mapping, 1, static_cast<std::uint64_t>(frame.module) + 1);
            number(mapping, 7, static_cast<std::uint64_t>(frame.module) + 1);
            bytes(interned_, kInternedMappings, mapping);
        }
        std::string message;
        number(message, 1, std::uint64_t{frame_number} + 1);
        number(message, 2, static_cast<std::uint64_t>(frame.name) + 1);
        number(message, 3, static_cast<std::uint64_t>(frame.module) + 1);
        number(message, 4, frame.key);
        bytes(interned_, kInternedFrames, message);
    }

    // False when the table has it already.
    bool text(std::uint32_t table, std::int32_t name) {
        if (!texts_.insert(std::uint64_t{table} << 32U | static_cast<std::uint32_t>(name)).second) {
            return false;
        }
        std::string message;
        number(message, 1, static_cast<std::uint64_t>(name) + 1);
        bytes(message, 2, profile_.names().at(name));
        bytes(interned_, table, message);
        return true;
    }

    void packet(std::uint32_t tag, const std::uint64_t* time) {
        packet_.clear();
        if (time != nullptr) {
            number(packet_, kPacketTimestamp, *time);
        }
        number(packet_, kPacketSequence, kSequence);
        number(packet_, kPacketFlags, first_ ? kStateCleared | kNeedsState : kNeedsState);
        first_ = false;
        if (!interned_.empty()) {
            bytes(packet_, kPacketInterned, interned_);
        }
        bytes(packet_, tag, message_);
        bytes(out_, kTracePacket, packet_);
        constexpr std::size_t full = std::size_t{1} << 20U;
        if (out_.size() >= full) {
            flush();
        }
    }

    void flush() {
        write_full(file_.get(), out_, file_.path());
        out_.clear();
    }

    const Profile& profile_;
    WholeFile file_;
    std::vector<bool> stacks_;
    std::vector<bool> frames_;
    std::unordered_set<std::uint64_t> texts_;
    std::unordered_set<std::int32_t> threads_;
    std::unordered_map<std::int32_t, std::int32_t> comms_;  // thread -> code of its last name
    bool first_ = true;
    std::string interned_;
    std::string message_;
    std::string packet_;
    std::string out_;
};

}  // namespace

void write_perfetto_samples(const Profile& profile, const SampleSelection& selection, const std::string& path) {
    PerfettoSamples(profile, path).write(selection);
}

}  // namespace sampleblk::profile
