// SPDX-License-Identifier: MIT
#include "views/profile_builder.hpp"

#include <sys/utsname.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <ranges>

#include "perf/byte_reader.hpp"
#include "perf/perf_parts.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/text.hpp"
#include "symbols/elf_symbols.hpp"

namespace sampleblk::profile {

namespace {

constexpr std::uint64_t kContextKernel = static_cast<std::uint64_t>(PERF_CONTEXT_KERNEL);
constexpr std::uint64_t kContextUser = static_cast<std::uint64_t>(PERF_CONTEXT_USER);
constexpr const char* kRunning = "/proc/kallsyms";
constexpr std::uint64_t kContextMax = static_cast<std::uint64_t>(PERF_CONTEXT_MAX);

// What a CPU ran that this kernel does not see into: of such code no address is one of ours. Empty for other modes.
std::string_view beyond_this_kernel(std::uint16_t mode) noexcept {
    switch (mode) {
        case PERF_RECORD_MISC_HYPERVISOR:
            return "[hypervisor]";
        case PERF_RECORD_MISC_GUEST_KERNEL:
            return "[guest kernel]";
        case PERF_RECORD_MISC_GUEST_USER:
            return "[guest user]";
        default:
            return {};
    }
}

// A path of which the recording saw several files, as two containers have them, has all their ids: it does not tell
// whose is which, and no file has such an id.
std::map<std::string, std::string> build_id_map(const PerfFile& file) {
    std::map<std::string, std::string> out;
    for (const BuildId& build_id : file.build_ids()) {
        const auto [found, fresh] = out.emplace(build_id.path, build_id.id);
        if (!fresh && found->second.find(build_id.id) == std::string::npos) {
            found->second.append(" or ").append(build_id.id);
        }
    }
    return out;
}

std::string base_name(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

// "/lib/modules/6.1.0/kernel/fs/ext4/ext4.ko.xz", as perf records it, to "[ext4]", as kallsyms has it.
std::string module_of(const std::string& name) {
    if (name.starts_with('[')) {
        return name;
    }
    std::string out = base_name(name);
    out.resize(std::min(out.size(), out.rfind(".ko")));
    std::ranges::replace(out, '-', '_');
    return "[" + out + "]";
}

// Where the recorded kernel lay: what tells one boot's addresses from another's.
struct KernelPlace {
    std::string symbol;  // at the start of its text
    std::uint64_t address = 0;
    struct Part {
        std::string name;
        std::uint64_t start;
        std::uint64_t end;
    };
    std::vector<Part> modules;
    std::vector<Part> programs;  // that it compiled while recording (BPF), and what ftrace allocated
};

// What a PERF_RECORD_KSYMBOL says to be there; nullopt for one that is gone.
std::optional<KernelPlace::Part> program_of(const Record& record) {
    ByteReader in(record.body());
    const auto start = in.number<std::uint64_t>();
    const auto length = in.number<std::uint32_t>();
    in.skip(2);
    const auto flags = in.number<std::uint16_t>();
    std::string name = in.c_string();
    if ((flags & PERF_RECORD_KSYMBOL_FLAGS_UNREGISTER) != 0 || in.overrun() || name.empty()) {
        return std::nullopt;
    }
    return KernelPlace::Part{std::move(name), start, start + length};
}

KernelPlace kernel_place(const PerfFile& file) {
    constexpr std::string_view prefix = "[kernel.kallsyms]";
    KernelPlace out;
    for (const Record& record : file.records()) {
        const auto header = record.header();
        ByteReader in(record.body());
        if (header.type == PERF_RECORD_KSYMBOL) {
            if (auto program = program_of(record)) {
                out.programs.push_back(*std::move(program));
            }
        }
        if (header.type != PERF_RECORD_MMAP && header.type != PERF_RECORD_MMAP2) {
            continue;
        }
        in.skip(8);  // pid, tid
        const auto start = in.number<std::uint64_t>();
        const auto length = in.number<std::uint64_t>();
        const auto offset = in.number<std::uint64_t>();
        in.skip(header.type == PERF_RECORD_MMAP2 ? 32 : 0);
        const std::string name = in.c_string();
        if (name.starts_with(prefix)) {
            if (out.symbol.empty() && name.size() > prefix.size()) {
                out.symbol = name.substr(prefix.size());
                out.address = offset != 0 ? offset : start;
            }
        } else if ((header.misc & PERF_RECORD_MISC_CPUMODE_MASK) == PERF_RECORD_MISC_KERNEL && !name.empty() &&
                   length <= ~0ULL - start) {
            out.modules.push_back({module_of(name), start, start + length});
        }
    }
    return out;
}

// Whether it is another kernel than the running one that was recorded. Where it lay does not tell: kernels without
// KASLR all lie at one address.
bool of_another_kernel(const PerfFile& file) {
    std::string notes;
    try {
        notes = read_file("/sys/kernel/notes");
    } catch (const SystemError&) {
        notes.clear();
    }
    const std::string running = build_id_in_notes(std::as_bytes(std::span(notes)));
    for (const BuildId& build_id : file.build_ids()) {
        if (build_id.path == "[kernel.kallsyms]" && !running.empty()) {
            return build_id.id != running;
        }
    }
    struct utsname machine{};
    (void)uname(&machine);
    const auto release = file.header().find("os_release");
    return release != file.header().end() && release->second != machine.release;
}

// Whether copied registers are those of this machine, as far as the recording tells what it is of.
bool of_such_a_machine(const PerfFile& file) {
    struct utsname machine{};
    (void)uname(&machine);
    const auto arch = file.header().find("arch");
    return arch == file.header().end() || arch->second == machine.machine;
}

}  // namespace

ProfileBuilder::ProfileBuilder(Profile& profile, const SymbolSources& sources)
    : profile_(profile),
      objects_(sources, build_id_map(profile.file())),
      user_(objects_),
      unwinder_(objects_, of_such_a_machine(profile.file())),
      inlines_(objects_),
      with_inlines_(sources.inlines) {
    load_kernel_symbols(sources);
}

void ProfileBuilder::load_kernel_symbols(const SymbolSources& sources) {
    const PerfFile& file = profile_.file();
    const KernelPlace recorded = kernel_place(file);
    for (const auto& module : recorded.modules) {
        kernel_.loaded(module.name, module.start, module.end);
    }
    for (const auto& program : recorded.programs) {
        kernel_.add(program.start, program.end, program.name, "");
    }
    std::vector<std::string> places;
    if (!sources.kallsyms.empty()) {
        places.push_back(sources.kallsyms);
    } else {
        const std::filesystem::path beside = std::filesystem::path(file.path()).parent_path();
        places.push_back(beside / "kallsyms");
        places.push_back(beside / "kcore_dir" / "kallsyms");  // perf record --kcore
        for (const std::string& directory : sources.build_id_dirs) {
            for (const BuildId& build_id : file.build_ids()) {
                if (build_id.path.starts_with("[kernel.kallsyms]") && build_id.id.size() > 2) {
                    std::string place = directory;
                    place.append("/.build-id/").append(build_id.id, 0, 2).append("/").append(build_id.id, 2);
                    places.push_back(place + "/kallsyms");
                }
            }
        }
        if (sources.use_running_kernel) {
            places.emplace_back(kRunning);
        }
    }
    std::string why = "no kallsyms beside the recording or in a build-id cache";
    const auto take = [&](const std::string& text, const std::string& from, bool any_boot) {
        std::uint64_t shift = 0;
        if (from == kRunning && sources.kallsyms.empty() && of_another_kernel(file)) {
            why = from + " is of another kernel";
            return false;
        }
        if (from == kRunning && recorded.symbol.empty() && sources.kallsyms.empty()) {
            why = "the recording does not say where its kernel lay";
            return false;
        }
        if (!recorded.symbol.empty()) {
            const std::uint64_t there = kallsyms_address(text, recorded.symbol);
            if (there == 0) {
                why = from + " has no address of " + recorded.symbol;
                return false;
            }
            shift = recorded.address - there;
            if (shift != 0 && !any_boot) {
                why = from + " is of another boot";
                return false;
            }
        }
        kernel_.read(text, shift);
        profile_.metadata_["kernel_symbols"] =
            from + (shift != 0 ? ", of another boot: without its modules" : std::string());
        return true;
    };
    bool found = false;
    // Another boot's modules lie elsewhere, and nothing says where: only if there are none of this one.
    for (const bool any_boot : {false, true}) {
        found = found || (!file.kallsyms().empty() && take(std::string(file.kallsyms()), "the recording", any_boot));
        for (std::size_t i = 0; i < places.size() && !found; ++i) {
            std::string text;
            try {
                text = read_file(places[i]);
            } catch (const SystemError&) {
                if (!sources.kallsyms.empty()) {
                    throw;
                }
                continue;
            }
            found = take(text, places[i], any_boot && places[i] != kRunning);
        }
    }
    if (!found) {
        profile_.metadata_["kernel_symbols"] = "none: " + why;
    }
    kernel_.finish();
}

void ProfileBuilder::build() {
    profile_.stacks_.push_back({});
    std::size_t since_check = 0;
    for (const Record& record : profile_.file().records()) {
        if (++since_check % 65536 == 0) {
            check_interrupt();
        }
        if (record.header().type == PERF_RECORD_SAMPLE) {
            on_sample(record);
        } else {
            side_band(record);
        }
    }
    finish();
}

void ProfileBuilder::side_band(const Record& record) {
    const auto header = record.header();
    ByteReader in(record.body());
    switch (header.type) {
        case PERF_RECORD_COMM: {
            const auto pid = in.number<std::int32_t>();
            const auto tid = in.number<std::int32_t>();
            processes_.name(pid, tid, profile_.names_->intern(plain_text(in.c_string())),
                            (header.misc & PERF_RECORD_MISC_COMM_EXEC) != 0);
            break;
        }
        case PERF_RECORD_FORK: {
            const auto pid = in.number<std::int32_t>();
            const auto parent = in.number<std::int32_t>();
            const auto tid = in.number<std::int32_t>();
            const auto parent_tid = in.number<std::int32_t>();
            processes_.fork(pid, tid, parent, parent_tid, (header.misc & PERF_RECORD_MISC_FORK_EXEC) != 0);
            break;
        }
        case PERF_RECORD_MMAP:
        case PERF_RECORD_MMAP2:
            on_mmap(record.body(), header.misc, header.type == PERF_RECORD_MMAP2);
            break;
        case PERF_RECORD_KSYMBOL:
            if (auto program = program_of(record); program && kernel_.find(program->start).symbol != program->name) {
                kernel_.replace(program->start, program->end, std::move(program->name));
                kernel_frames_ = {};
                chain_numbers_ = {};
            }
            break;
        case PERF_RECORD_LOST:
            in.skip(8);
            counts_["lost_records"] += in.number<std::uint64_t>();
            profile_.gaps_.push_back(record.time_ns);
            break;
        case PERF_RECORD_LOST_SAMPLES: {
            constexpr std::uint16_t filtered = 1U << 15U;  // PERF_RECORD_MISC_LOST_SAMPLES_BPF: perf record --filter
            counts_[(header.misc & filtered) != 0 ? "filtered_samples" : "lost_samples"] += in.number<std::uint64_t>();
            break;
        }
        case PERF_RECORD_THROTTLE:
            ++counts_["throttled"];
            break;
        default:
            break;
    }
}

void ProfileBuilder::on_mmap(std::span<const std::byte> body, std::uint16_t misc, bool second) {
    if ((misc & PERF_RECORD_MISC_MMAP_DATA) != 0) {
        return;  // no code is sampled there
    }
    ByteReader in(body);
    const auto pid = in.number<std::int32_t>();
    in.skip(4);
    Mapping mapping;
    mapping.start = in.number<std::uint64_t>();
    const auto length = in.number<std::uint64_t>();
    mapping.offset = in.number<std::uint64_t>();
    const auto mode = static_cast<std::uint16_t>(misc & PERF_RECORD_MISC_CPUMODE_MASK);
    if (mode == PERF_RECORD_MISC_KERNEL || !beyond_this_kernel(mode).empty() || length > ~0ULL - mapping.start) {
        return;
    }
    mapping.end = mapping.start + length;
    std::string build_id;
    if (second) {
        build_id = mapped_build_id(misc, in.take(24));
        in.skip(8);  // protection, flags
    }
    const std::string path = in.c_string();
    if (in.overrun()) {
        ++counts_["damage_mmap"];
        return;
    }
    mapping.file = objects_.number(path, build_id);
    processes_.map(pid, mapping);
}

std::int32_t ProfileBuilder::comm_of(std::int32_t pid, std::int32_t tid) {
    if (const std::int32_t comm = processes_.comm(tid); comm >= 0) {
        return comm;
    }
    if (tid == 0) {
        return profile_.names_->intern("swapper");
    }
    if (const std::int32_t comm = processes_.comm(pid); comm >= 0) {
        return comm;
    }
    return profile_.names_->intern(":" + std::to_string(tid));
}

void ProfileBuilder::on_sample(const Record& record) {
    const auto sample = profile_.file().sample(record);
    if (!sample) {
        ++counts_["damage_sample"];
        return;
    }
    if (sample->counts.empty()) {
        add_sample(*sample, record.header().misc);
        return;
    }
    // A group's leader tells what every member counted: a sample of each that counted since (perf record -e '{…}:S').
    Sample one = *sample;
    for (std::size_t at = 0; at < sample->counts.size(); at += sample->count_size) {
        const auto count = load<std::uint64_t>(sample->counts.data() + at);
        const auto id = load<std::uint64_t>(sample->counts.data() + at + 8);
        const auto event = profile_.file().event_of_id(id);
        if (!event) {
            ++counts_["damage_group"];
            continue;
        }
        // A counter that is inherited counts in each thread by itself.
        const bool inherited = profile_.file().events()[*event].attr.inherit != 0;
        std::uint64_t& before = group_counts_[{id, inherited ? sample->tid : 0}];
        one.event = *event;
        one.raw = *event == sample->event ? sample->raw : std::span<const std::byte>{};  // the leader's own
        one.period = count - before;
        before = count;
        if (one.period != 0) {
            add_sample(one, record.header().misc);
        }
    }
}

void ProfileBuilder::add_sample(const Sample& sample, std::uint16_t misc) {
    profile_.time_ns_.push_back(sample.time_ns);
    profile_.period_.push_back(sample.period);
    profile_.comm_.push_back(comm_of(sample.pid, sample.tid));
    profile_.pid_.push_back(sample.pid);
    profile_.tid_.push_back(sample.tid);
    profile_.cpu_.push_back(sample.cpu);
    profile_.event_.push_back(static_cast<std::uint16_t>(sample.event));
    profile_.leaf_.push_back(leaf_of(sample, misc));
    if (!sample.raw.empty() && profile_.raw_.size() + 1 < profile_.time_ns_.size()) {
        profile_.raw_.resize(profile_.time_ns_.size() - 1);
    }
    if (!sample.raw.empty() || !profile_.raw_.empty()) {
        profile_.raw_.push_back(sample.raw);
    }
}

std::span<const std::byte> ProfileBuilder::whole_chain(const Sample& sample, const AddressSpace& space) {
    const perf_event_attr& attr = profile_.file().events()[sample.event].attr;
    // Where the kernel was to follow frame pointers as well, it has done that already.
    if (sample.user_stack.empty() || attr.exclude_callchain_user == 0) {
        return sample.chain;
    }
    unwound_.resize(sample.chain.size() / 8);
    if (!unwound_.empty()) {
        std::memcpy(unwound_.data(), sample.chain.data(), unwound_.size() * 8);
    }
    unwound_.push_back(kContextUser);
    const std::size_t before = unwound_.size();
    unwinder_.unwind(space, sample, attr.sample_regs_user, unwound_);
    return unwound_.size() == before ? sample.chain : std::as_bytes(std::span(unwound_));
}

std::uint32_t ProfileBuilder::leaf_of(Sample sample, std::uint16_t misc) {
    const AddressSpace& space = processes_.space(sample.pid);
    const auto recorded = sample.chain;
    sample.chain = whole_chain(sample, space);
    const auto mode = static_cast<std::uint16_t>(misc & PERF_RECORD_MISC_CPUMODE_MASK);
    std::uint64_t hash = mix(sample.ip ^ (std::uint64_t{space.version} << 40U) ^ mode);
    std::size_t at = 0;
    for (; at + 8 <= sample.chain.size(); at += 8) {
        hash = (hash ^ load<std::uint64_t>(sample.chain.data() + at)) * 0x9e3779b97f4a7c15ULL;
        hash ^= hash >> 32U;
    }
    for (;; hash = mix(hash + 1)) {
        std::uint32_t& number = chain_numbers_.at(hash);
        if (number == FlatMap::kNone) {
            number = static_cast<std::uint32_t>(chains_.size());
            Chain chain{sample.chain, sample.ip, space.version, 0, mode};
            if (sample.chain.data() != recorded.data()) {
                chain.bytes = std::as_bytes(std::span(made_.emplace_back(unwound_)));
            }
            chain.leaf = build_stack(sample, space, mode, sample.chain.data() == recorded.data());
            chains_.push_back(chain);
            return chain.leaf;
        }
        const Chain& known = chains_[number];
        if (known.ip == sample.ip && known.space == space.version && known.mode == mode &&
            known.bytes.size() == sample.chain.size() &&
            (sample.chain.empty() || std::memcmp(known.bytes.data(), sample.chain.data(), sample.chain.size()) == 0)) {
            return known.leaf;
        }
    }
}

// `returns`: the chain has where calls return to, as the kernel finds it; our unwinder's has the calls themselves.
std::uint32_t ProfileBuilder::build_stack(const Sample& sample, const AddressSpace& space, std::uint16_t misc,
                                          bool returns) {
    std::vector<std::uint32_t> frames;  // innermost first
    const auto beyond = beyond_this_kernel(misc);
    bool kernel = misc == PERF_RECORD_MISC_KERNEL;
    bool skip = !beyond.empty();
    bool in_kernel = false;  // any of the chain
    bool innermost = true;   // of the user's or the kernel's part
    const auto add = [&](std::uint64_t address) {
        if (kernel) {
            frames.push_back(kernel_frame(address));
        } else {
            add_user_frames(space, address, returns && !innermost, frames);
        }
        innermost = false;
    };
    for (std::size_t at = 0; at + 8 <= sample.chain.size(); at += 8) {
        const auto address = load<std::uint64_t>(sample.chain.data() + at);
        if (address >= kContextMax) {
            // A guest's or the hypervisor's part has no symbols of ours.
            skip = address != kContextKernel && address != kContextUser;
            kernel = address == kContextKernel;
            innermost = true;
            continue;
        }
        if (!skip) {
            in_kernel = in_kernel || kernel;
            add(address);
        }
    }
    if (!beyond.empty()) {
        Place place;
        place.module = beyond;
        place.symbol = beyond;
        frames.insert(frames.begin(), intern(place));
    } else if (frames.empty()) {
        kernel = misc == PERF_RECORD_MISC_KERNEL;
        add(sample.ip);
    } else if (misc == PERF_RECORD_MISC_KERNEL && !in_kernel) {
        // perf record --user-callchains: the kernel's part was left out, but the sample is of the kernel.
        frames.insert(frames.begin(), kernel_frame(sample.ip));
    }
    std::uint32_t node = 0;
    for (const std::uint32_t frame : std::views::reverse(frames)) {
        node = child(node, frame);
    }
    return node;
}

std::uint32_t ProfileBuilder::child(std::uint32_t parent, std::uint32_t frame) {
    std::uint32_t& node = children_.at(std::uint64_t{parent} << 32U | frame);
    if (node == FlatMap::kNone) {
        node = static_cast<std::uint32_t>(profile_.stacks_.size());
        profile_.stacks_.push_back({parent, frame});
    }
    return node;
}

std::uint32_t ProfileBuilder::kernel_frame(std::uint64_t address) {
    std::uint32_t& frame = kernel_frames_.at(address);
    if (frame == FlatMap::kNone) {
        frame = intern(kernel_.find(address));
    }
    return frame;
}

void ProfileBuilder::add_user_frames(const AddressSpace& space, std::uint64_t address, bool returns,
                                     std::vector<std::uint32_t>& frames) {
    const Mapping* mapping = space.find(address);
    constexpr unsigned offset_bits = 44;
    if (mapping == nullptr || (address - mapping->start + mapping->offset) >> offset_bits != 0) {
        std::uint32_t& frame = unmapped_frames_.at(address);
        if (frame == FlatMap::kNone) {
            Place place;
            place.module = "[unknown]";
            place.key = address;
            frame = intern(place);
        }
        frames.push_back(frame);
        return;
    }
    const std::uint64_t offset = address - mapping->start + mapping->offset;
    std::uint32_t& known = user_frames_.at(returns ? 1 : 0).at(std::uint64_t{mapping->file} << offset_bits | offset);
    if (known == FlatMap::kNone) {
        Place place = user_.find(mapping->file, offset);
        std::uint64_t code = offset;
        // What was called is called from the call: behind it another function may begin, or what it was inlined into go
        // on. Before code that is only returned to, such as a signal handler's, there is padding.
        if (returns && offset != 0) {
            if (Place call = user_.find(mapping->file, offset - 1); !call.symbol.empty()) {
                place = std::move(call);
                --code;
            }
        }
        known = intern(place);
        std::vector<std::uint32_t> all;
        for (std::string& name : with_inlines_ ? inlines_.at(mapping->file, code) : std::vector<std::string>{}) {
            place.symbol = std::move(name);
            place.kind = FrameKind::inlined;
            all.push_back(intern(place));
        }
        if (!all.empty()) {
            all.push_back(known);
            known = kInlined | static_cast<std::uint32_t>(inlined_frames_.size());
            inlined_frames_.push_back(std::move(all));
        }
    }
    if ((known & kInlined) == 0) {
        frames.push_back(known);
    } else {
        const auto& all = inlined_frames_[known & ~kInlined];
        frames.insert(frames.end(), all.begin(), all.end());
    }
}

std::uint32_t ProfileBuilder::intern(const Place& place) {
    std::string identity = place.module;
    identity += place.symbol.empty() ? '\1' : place.kind == FrameKind::inlined ? '\3' : '\2';
    if (place.kind == FrameKind::inlined) {
        identity += place.symbol;
    } else {
        identity.append(reinterpret_cast<const char*>(&place.key), sizeof(place.key)).append(place.symbol);
    }
    const auto [found, fresh] = interned_.emplace(identity, static_cast<std::uint32_t>(profile_.frames_.size()));
    if (fresh) {
        Frame frame;
        frame.module = profile_.names_->intern(plain_text(place.module));
        frame.kind = place.kind;
        frame.key = place.key;
        frame.resolved = !place.symbol.empty();
        if (frame.resolved) {
            frame.name = profile_.names_->intern(plain_text(place.symbol));
        } else if (place.module.empty() || place.module[0] == '[') {
            frame.name = frame.module;
        } else {
            frame.name = profile_.names_->intern(plain_text("[" + base_name(place.module) + "]"));
        }
        profile_.frames_.push_back(frame);
    }
    return found->second;
}

void ProfileBuilder::finish() {
    auto& metadata = profile_.metadata_;
    for (const char* always : {"lost_records", "lost_samples", "throttled"}) {
        metadata[always] = std::to_string(counts_[always]);
    }
    for (const auto& [name, count] : counts_) {
        metadata[name] = std::to_string(count);
    }
    const auto& unwound = unwinder_.counts();
    for (const auto& [name, count] : unwound) {
        if (name == "not_unwound" ? count != 0 : unwound.at("unwound") != 0) {
            metadata[name] = std::to_string(count);
        }
    }
    for (const auto& [kind, count] : profile_.file().damage()) {
        metadata["damage_" + kind] = std::to_string(count);
    }
    std::string missing;
    for (const auto& [path, why] : objects_.missing()) {
        missing.append(missing.empty() ? "" : "; ").append(plain_text(path)).append(": ").append(plain_text(why));
    }
    if (!missing.empty()) {
        metadata["files_without_symbols"] = missing;
    }
    std::string unverified;
    for (const std::string& path : objects_.unverified()) {
        unverified.append(unverified.empty() ? "" : "; ").append(plain_text(path));
    }
    if (!unverified.empty()) {
        metadata["files_without_build_ids"] = unverified;
    }
    profile_.symbol_files_ = objects_.found();
    profile_.parents_ = processes_.parents();
}

}  // namespace sampleblk::profile
