// SPDX-License-Identifier: MIT
#include "sampleblk/profile/sampler.hpp"

#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <ctime>
#include <exception>
#include <map>
#include <span>
#include <thread>
#include <utility>

#include "perf/byte_reader.hpp"
#include "perf/event_names.hpp"
#include "perf/machine.hpp"
#include "perf/perf_parts.hpp"
#include "perf/perf_writer.hpp"
#include "perf/record_maker.hpp"
#include "perf/tracing_data.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/fork.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/profile/perf_file.hpp"
#include "sampleblk/signals.hpp"
#include "sampling/ring_buffer.hpp"
#include "symbols/elf_symbols.hpp"

namespace sampleblk::profile {

namespace {

// The same in all events, so that one trailer serves every record: 5 u64.
constexpr std::uint64_t kBaseSample =
    PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU | PERF_SAMPLE_PERIOD;
constexpr std::size_t kTrailerBytes = std::size_t{8} * 4;  // pid and tid, time, cpu, identifier
constexpr std::uint64_t kFormatLost = 1U << 4U;            // PERF_FORMAT_LOST, since 6.0
constexpr std::uint32_t kMaxStackDump = 65528;

// Registers that an unwinder of this machine needs, as perf record --call-graph dwarf asks for.
std::uint64_t user_registers() {
#if defined(__x86_64__)
    // ax…r15 but for the segment registers that user space cannot give (PERF_REG_X86_DS, ES, FS, GS).
    return 0xff0fffULL;
#elif defined(__aarch64__)
    return 0x1ffffffffULL;
#else
    return 0;
#endif
}

}  // namespace

struct Sampler::Impl {
    explicit Impl(SamplerOptions wanted)
        : options(std::move(wanted)), new_threads(!options.pids.empty() && !options.children) {}

    const pid_t made_by = ::getpid();

    struct Opened {
        std::size_t event;
        Fd fd;
    };
    // What an event needs beside its attributes.
    struct Extra {
        std::string filter;
        bool everywhere = false;
    };

    void choose_event();
    [[nodiscard]] perf_event_attr base_attr() const;
    void add_stacks(perf_event_attr& attr) const;
    void add_source(const SampleSource& source);
    void add_events();
    void set_filter(std::size_t event, int fd) const;
    void open_all(const std::string& path);
    void open_one(std::size_t event, std::int32_t tid, std::int32_t cpu, std::map<std::int32_t, int>& first_of_cpu);
    void enable(bool tracking);
    void run();
    void drain();
    void take(std::span<const std::byte> first, std::span<const std::byte> second);
    void look_at(const perf_event_header& header, std::span<const std::byte> body);
    void count_lost();

    SamplerOptions options;
    std::vector<Event> events;  // the dummy that tracks tasks and mappings is the last
    std::vector<Extra> extras;  // of each
    std::vector<Opened> opened;
    std::vector<RingBuffer> rings;
    std::vector<pollfd> polled;
    std::unique_ptr<PerfWriter> writer;
    std::map<std::string, std::string> files;  // what is mapped to be executed, with its build id
    SamplerStats stats;
    bool format_lost = true;
    bool new_threads;  // without children: those of the processes themselves
    bool mapped_ids = true;
    bool full = false;

    std::thread thread;
    Fd stop_read;
    Fd stop_write;
    std::exception_ptr failure;
    bool started = false;
    bool stopped = false;
    std::vector<std::byte> joined;
};

void Sampler::Impl::choose_event() {
    if (options.frequency_hz == 0) {
        return;
    }
    if (!options.event.empty()) {
        stats.event = find_event(options.event, options.tracefs).name;
        return;
    }
    perf_event_attr attr{};
    attr.size = sizeof(attr);
    attr.type = PERF_TYPE_HARDWARE;
    attr.config = PERF_COUNT_HW_CPU_CYCLES;
    attr.sample_period = 1000000000;
    attr.exclude_kernel = options.kernel ? 0 : 1;
    attr.disabled = 1;
    const Fd probe(perf_event_open(attr, 0, -1));
    if (probe) {
        stats.event = "cycles";
        return;
    }
    stats.event = "cpu-clock";
    stats.fallback =
        "this machine counts no CPU cycles; sampled by its clock (cpu-clock), which cannot see into "
        "stretches with interrupts off";
}

perf_event_attr Sampler::Impl::base_attr() const {
    perf_event_attr attr{};
    attr.size = sizeof(attr);
    attr.sample_type = kBaseSample;
    attr.read_format = PERF_FORMAT_ID | (format_lost ? kFormatLost : 0U);
    attr.disabled = 1;
    attr.inherit = new_threads || (!options.pids.empty() && options.children) ? 1 : 0;
    attr.inherit_thread = new_threads ? 1 : 0;
    attr.sample_id_all = 1;
    attr.exclude_kernel = options.kernel ? 0 : 1;
    attr.exclude_user = options.user ? 0 : 1;
    attr.exclude_guest = 1;
    // The clock of trace.dat's "mono" and of time.monotonic_ns().
    attr.use_clockid = 1;
    attr.clockid = CLOCK_MONOTONIC;
    attr.watermark = 1;
    attr.wakeup_watermark = static_cast<std::uint32_t>(options.buffer_pages * 4096U / 4U);
    return attr;
}

void Sampler::Impl::add_stacks(perf_event_attr& attr) const {
    if (!options.callchains) {
        return;
    }
    attr.sample_type |= PERF_SAMPLE_CALLCHAIN;
    if (options.user_stack_bytes != 0) {
        attr.sample_type |= PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
        attr.sample_regs_user = user_registers();
        attr.sample_stack_user = std::min(kMaxStackDump, (options.user_stack_bytes + 7U) & ~7U);
        attr.exclude_callchain_user = 1;
    } else if (!options.user) {
        attr.exclude_callchain_user = 1;
    }
}

void Sampler::Impl::add_source(const SampleSource& source) {
    const NamedEvent named = find_event(source.event, options.tracefs);
    Event event;
    event.name = named.name;
    event.attr = base_attr();
    event.attr.type = named.type;
    event.attr.config = named.config;
    event.attr.exclude_kernel |= named.exclude_kernel ? 1U : 0U;
    event.attr.exclude_user |= named.exclude_user ? 1U : 0U;
    if (event.attr.exclude_kernel != 0 && event.attr.exclude_user != 0 && !named.trace_point()) {
        throw InputError("event " + source.event + " where its half is left out", "events", 0,
                         "the kernel's half or the user's that the event is of");
    }
    if (source.frequency_hz != 0) {
        event.attr.freq = 1;
        event.attr.sample_freq = source.frequency_hz;
    } else if (source.period != 0) {
        event.attr.sample_period = source.period;
        // Asked to tell each sample's period, the kernel would sample every occurrence (perf_swevent_event()).
        event.attr.sample_type &= ~std::uint64_t{PERF_SAMPLE_PERIOD};
    } else {
        throw InputError("period=0 of " + source.event, "events", 0, "a period or a frequency above 0");
    }
    if (named.trace_point()) {
        event.attr.sample_type |= PERF_SAMPLE_RAW;
        // Whoever runs into it does so in the kernel.
        event.attr.exclude_kernel = 0;
        event.attr.exclude_user = 0;
    } else if (!source.filter.empty()) {
        throw InputError("filter '" + source.filter + "' of " + source.event, "events", 0, "a trace point");
    }
    if (source.stacks) {
        add_stacks(event.attr);
    }
    events.push_back(std::move(event));
    extras.push_back({source.filter, source.everywhere});
}

void Sampler::Impl::add_events() {
    events.clear();
    extras.clear();
    if (options.frequency_hz != 0) {
        SampleSource main;
        main.event = stats.event;
        const NamedEvent named = find_event(stats.event, options.tracefs);
        // A trace point has no pace of its own that could be followed.
        main.frequency_hz = named.trace_point() ? 0 : options.frequency_hz;
        add_source(main);
    }
    for (const SampleSource& source : options.sources) {
        add_source(source);
    }
    Event tracking;
    tracking.name = "dummy";
    tracking.attr = base_attr();
    tracking.attr.type = PERF_TYPE_SOFTWARE;
    tracking.attr.config = PERF_COUNT_SW_DUMMY;
    tracking.attr.sample_period = 1;
    tracking.attr.exclude_kernel = 1;
    tracking.attr.exclude_user = 0;
    tracking.attr.mmap = 1;
    tracking.attr.mmap2 = 1;
    // By the end its path may be another file's.
    tracking.attr.build_id = mapped_ids ? 1 : 0;
    // perf's unwinder finds .eh_frame in what is mapped to be read.
    tracking.attr.mmap_data = options.user_stack_bytes != 0 ? 1 : 0;
    tracking.attr.comm = 1;
    tracking.attr.comm_exec = 1;
    tracking.attr.task = 1;
    events.push_back(std::move(tracking));
    // Whoever is sampled has a name.
    extras.push_back({{}, std::ranges::any_of(extras, &Extra::everywhere)});
}

void Sampler::Impl::set_filter(std::size_t event, int fd) const {
    const std::string& filter = extras[event].filter;
    if (!filter.empty() && ::ioctl(fd, PERF_EVENT_IOC_SET_FILTER, filter.c_str()) != 0) {
        if (errno == EINVAL) {
            const std::string& name = events[event].name;
            std::string place = options.tracefs;
            place.append("/events/").append(name, 0, name.find(':')).append("/");
            place.append(name, name.find(':') + 1).append("/format");
            throw InputError("filter '" + filter + "' of " + name, "events", 0,
                             "a filter of the fields in " + place + ", such as 'pid == 1 && cpu > 0'");
        }
        throw_errno("PERF_EVENT_IOC_SET_FILTER of " + events[event].name);
    }
}

void Sampler::Impl::open_one(std::size_t event, std::int32_t tid, std::int32_t cpu,
                             std::map<std::int32_t, int>& first_of_cpu) {
    Fd fd(perf_event_open(events[event].attr, tid, cpu));
    if (!fd) {
        const int code = errno;
        const std::string what = "perf_event_open of " + events[event].name;
        if (code == ESRCH && tid > 0) {
            return;  // the thread ended since it was seen
        }
        if (code == EACCES || code == EPERM) {
            throw SystemError(what, "", code, paranoid_remedy());
        }
        if (code == ENOENT || code == EOPNOTSUPP || code == ENODEV) {
            throw UnsupportedError("the event " + events[event].name, "this machine does not count it",
                                   "event='cpu-clock' works everywhere");
        }
        if (code == EINVAL && events[event].attr.freq != 0) {
            constexpr auto limit = "/proc/sys/kernel/perf_event_max_sample_rate";
            const std::string most = read_file(limit);
            if (events[event].attr.sample_freq > std::stoull(most)) {
                throw InputError("hz=" + std::to_string(events[event].attr.sample_freq) + " of " + events[event].name,
                                 "", 0, "at most " + most.substr(0, most.find('\n')) + ", which " + limit + " says");
            }
        }
        throw SystemError(what, "", code);
    }
    set_filter(event, fd.get());
    std::uint64_t id = 0;
    if (::ioctl(fd.get(), PERF_EVENT_IOC_ID, &id) != 0) {
        throw_errno("PERF_EVENT_IOC_ID");
    }
    events[event].ids.push_back(id);
    if (const auto first = first_of_cpu.find(cpu); first != first_of_cpu.end()) {
        if (::ioctl(fd.get(), PERF_EVENT_IOC_SET_OUTPUT, first->second) != 0) {
            throw_errno("PERF_EVENT_IOC_SET_OUTPUT");
        }
    } else {
        first_of_cpu[cpu] = fd.get();
        rings.emplace_back(fd.get(), options.buffer_pages);
        polled.push_back({fd.get(), POLLIN, 0});
    }
    opened.push_back({event, std::move(fd)});
}

void Sampler::Impl::open_all(const std::string& path) {
    const auto pids = options.children ? with_descendants(options.pids) : options.pids;
    const auto tids = threads_of(options.pids, options.children);
    const auto cpus = online_cpus();
    const auto attempt = [&] {
        add_events();
        opened.clear();
        rings.clear();
        polled.clear();
        std::map<std::int32_t, int> first_of_cpu;
        for (const std::int32_t cpu : cpus) {
            for (std::size_t event = 0; event < events.size(); ++event) {
                if (tids.empty() || extras[event].everywhere) {
                    events[event].attr.inherit = events[event].attr.inherit_thread = 0;
                    open_one(event, -1, cpu, first_of_cpu);
                    continue;
                }
                for (const std::int32_t tid : tids) {
                    open_one(event, tid, cpu, first_of_cpu);
                }
            }
        }
    };
    for (;;) {
        try {
            attempt();
            break;
        } catch (const SystemError& error) {
            if (error.code() != EINVAL || !mapped_ids) {
                throw;
            }
            // What kernels before 6.0 do not know, before 5.13, and before 5.12.
            (format_lost ? format_lost : new_threads ? new_threads : mapped_ids) = false;
        }
    }
    if (opened.empty()) {
        throw SystemError("look at process", "/proc/" + std::to_string(options.pids.front()), ESRCH);
    }
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        throw_errno("pipe");
    }
    stop_read = Fd(ends[0]);
    stop_write = Fd(ends[1]);
    polled.push_back({stop_read.get(), POLLIN, 0});

    writer = std::make_unique<PerfWriter>(path, events);
    // Tracking first: what begins while the rest is looked at is then seen twice, not never.
    enable(true);
    const auto take_record = [this](const std::vector<std::byte>& record) { writer->write(record); };
    make_kernel_records(take_record, kTrailerBytes);
    make_process_records(extras.back().everywhere ? std::vector<std::int32_t>{} : pids, options.user_stack_bytes != 0,
                         take_record, kTrailerBytes, files);
}

void Sampler::Impl::enable(bool tracking) {
    for (const Opened& one : opened) {
        if ((one.event + 1 == events.size()) == tracking && ::ioctl(one.fd.get(), PERF_EVENT_IOC_ENABLE, 0) != 0) {
            throw_errno("PERF_EVENT_IOC_ENABLE");
        }
    }
}

void Sampler::Impl::look_at(const perf_event_header& header, std::span<const std::byte> body) {
    ByteReader in(body);
    switch (header.type) {
        case PERF_RECORD_SAMPLE:
            ++stats.samples;
            break;
        case PERF_RECORD_LOST:
            in.skip(8);
            stats.lost += in.number<std::uint64_t>();
            break;
        case PERF_RECORD_LOST_SAMPLES:
            stats.lost += in.number<std::uint64_t>();
            break;
        case PERF_RECORD_THROTTLE:
            ++stats.throttled;
            break;
        case PERF_RECORD_MMAP2: {
            const auto pid = in.number<std::int32_t>();
            in.skip(4 + 24);
            std::string id = mapped_build_id(header.misc, in.take(24));
            in.skip(8);
            const std::string path = in.c_string();
            const bool code = (header.misc & PERF_RECORD_MISC_MMAP_DATA) == 0;
            if (code && path.starts_with('/') && !path.starts_with("//anon") && !path.starts_with("/dev/")) {
                const auto [file, is_new] = files.try_emplace(path);
                if (file->second.empty()) {
                    file->second = is_new && id.empty() ? build_id_of(path_in_process(pid, path)) : std::move(id);
                }
            }
            break;
        }
        default:
            break;
    }
}

void Sampler::Impl::take(std::span<const std::byte> first, std::span<const std::byte> second) {
    const std::size_t length = first.size() + second.size();
    if (full || writer->bytes() + length > options.limit_bytes) {
        full = true;
        stats.dropped_bytes += length;
        return;
    }
    std::span<const std::byte> all = first;
    if (!second.empty()) {
        joined.assign(first.begin(), first.end());
        joined.insert(joined.end(), second.begin(), second.end());
        all = joined;
    }
    writer->write(all);
    for (std::size_t at = 0; at + sizeof(perf_event_header) <= all.size();) {
        const auto header = load<perf_event_header>(all.data() + at);
        if (header.size < sizeof(header) || header.size > all.size() - at) {
            break;
        }
        look_at(header, all.subspan(at + sizeof(header), header.size - sizeof(header)));
        at += header.size;
    }
}

void Sampler::Impl::drain() {
    const std::uint64_t before = writer->bytes();
    for (RingBuffer& ring : rings) {
        ring.drain([this](const std::array<std::span<const std::byte>, 2>& parts) { take(parts[0], parts[1]); });
    }
    if (writer->bytes() != before) {
        // All that is older than this round's start has been written: perf report may sort up to there.
        writer->write(RecordMaker(kRecordFinishedRound, 0).finish(0));
    }
}

void Sampler::Impl::run() {
    try {
        for (;;) {
            const int ready = ::poll(polled.data(), polled.size(), 200);
            if (ready < 0 && errno != EINTR) {
                throw_errno("poll of perf events");
            }
            drain();
            if (polled.back().revents != 0) {
                return;
            }
            // A process that has ended hangs its event up; asking again would spin.
            for (std::size_t i = 0; i + 1 < polled.size(); ++i) {
                if ((polled[i].revents & (POLLHUP | POLLERR)) != 0) {
                    polled[i].fd = -1;
                }
            }
        }
    } catch (...) {
        failure = std::current_exception();
    }
}

// Samples that were lost after the last record that could tell of it.
void Sampler::Impl::count_lost() {
    if (!format_lost) {
        return;
    }
    std::uint64_t total = 0;
    for (const Opened& one : opened) {
        struct {
            std::uint64_t value;
            std::uint64_t id;
            std::uint64_t lost;
        } counts{};
        if (::read(one.fd.get(), &counts, sizeof(counts)) == static_cast<ssize_t>(sizeof(counts))) {
            total += counts.lost;
        }
    }
    if (total > stats.lost) {
        RecordMaker record(PERF_RECORD_LOST_SAMPLES, 0);
        record.put(total - stats.lost);
        writer->write(record.finish(kTrailerBytes));
        stats.lost = total;
    }
}

Sampler::Sampler(const SamplerOptions& options, const std::string& path) : impl_(std::make_unique<Impl>(options)) {
    if (options.buffer_pages == 0 || !std::has_single_bit(options.buffer_pages)) {
        throw InputError("buffer_pages=" + std::to_string(options.buffer_pages), "", 0, "a power of two");
    }
    impl_->choose_event();
    impl_->open_all(path);
}

Sampler::~Sampler() {
    if (left_to_parent(impl_)) {
        return;
    }
    try {
        (void)stop();
    } catch (...) {  // NOLINT(bugprone-empty-catch): a destructor has nobody to tell; stop() tells whoever asks
    }
}

void Sampler::start() {
    Impl& impl = *impl_;
    if (impl.started) {
        return;
    }
    impl.thread = start_thread([&impl] { impl.run(); });
    impl.started = true;
    impl.enable(false);
}

SamplerStats Sampler::stop() {
    Impl& impl = *impl_;
    if (impl.stopped) {
        return impl.stats;
    }
    impl.stopped = true;
    for (const Impl::Opened& one : impl.opened) {
        (void)::ioctl(one.fd.get(), PERF_EVENT_IOC_DISABLE, 0);
    }
    if (impl.thread.joinable()) {
        impl.stop_write.reset();  // the thread sees its end hang up
        impl.thread.join();
    }
    if (impl.failure) {
        std::rethrow_exception(impl.failure);
    }
    impl.drain();
    impl.count_lost();
    impl.opened.clear();
    impl.rings.clear();
    std::vector<std::string> trace_points;
    for (const Event& event : impl.events) {
        const bool known = std::ranges::find(trace_points, event.name) != trace_points.end();
        if (event.attr.type == PERF_TYPE_TRACEPOINT && !known) {
            trace_points.push_back(event.name);
        }
    }
    for (auto& [path, id] : impl.files) {
        if (id.empty()) {
            id = build_id_of(path);
        }
    }
    impl.writer->finish(impl.files, trace_points.empty() ? std::vector<std::byte>{}
                                                         : make_tracing_data(impl.options.tracefs, trace_points));
    impl.stats.bytes = impl.writer->bytes();
    return impl.stats;
}

}  // namespace sampleblk::profile
