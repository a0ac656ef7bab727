// SPDX-License-Identifier: MIT
#include "sampleblk/profile/counters.hpp"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>

#include "perf/event_names.hpp"
#include "perf/machine.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::profile {

std::uint64_t CounterValue::scaled() const noexcept {
    if (running_ns == 0 || running_ns >= enabled_ns) {
        return raw;
    }
    // As perf does it: a double has the digits that an estimate deserves.
    return static_cast<std::uint64_t>(
        std::llround(static_cast<double>(raw) * static_cast<double>(enabled_ns) / static_cast<double>(running_ns)));
}

struct CounterSet::Impl {
    struct Counter {
        NamedEvent event;
        bool supported = true;
        std::vector<Fd> fds;
    };

    void open(Counter& counter, std::int32_t pid, std::int32_t cpu, const CounterOptions& options);
    void each(unsigned long request) const;

    std::vector<Counter> counters;
};

void CounterSet::Impl::open(Counter& counter, std::int32_t pid, std::int32_t cpu, const CounterOptions& options) {
    if (!counter.supported) {
        return;
    }
    perf_event_attr attr{};
    attr.size = sizeof(attr);
    attr.type = counter.event.type;
    attr.config = counter.event.config;
    attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
    attr.disabled = 1;
    attr.inherit = options.commands || !options.pids.empty() ? 1 : 0;
    attr.inherit_thread = !options.commands && !options.pids.empty() && !options.children ? 1 : 0;
    attr.enable_on_exec = options.commands ? 1 : 0;
    attr.exclude_kernel = counter.event.exclude_kernel ? 1 : 0;
    attr.exclude_user = counter.event.exclude_user ? 1 : 0;
    Fd fd(perf_event_open(attr, pid, cpu));
    if (!fd && errno == EINVAL && attr.inherit_thread != 0) {
        // Kernels before 5.13 know children of either kind only, or none.
        attr.inherit = attr.inherit_thread = 0;
        fd = Fd(perf_event_open(attr, pid, cpu));
    }
    if (!fd && (errno == EACCES || errno == EPERM) && attr.exclude_kernel == 0 && attr.exclude_user == 0 && cpu < 0 &&
        !counter.event.trace_point()) {
        // What this user may count: perf stat falls back the same way, and names it so even where it cannot be counted.
        counter.event.exclude_kernel = true;
        counter.event.name += ":u";
        attr.exclude_kernel = 1;
        fd = Fd(perf_event_open(attr, pid, cpu));
    }
    if (fd) {
        counter.fds.push_back(std::move(fd));
        return;
    }
    const int code = errno;
    if (code == ESRCH && pid > 0) {
        return;  // the thread ended since it was seen
    }
    if (code == ENOENT || code == EOPNOTSUPP || code == ENODEV || code == ENXIO || code == EINVAL) {
        counter.supported = false;
        counter.fds.clear();
        return;
    }
    throw SystemError("perf_event_open of " + counter.event.name, "", code,
                      code == EACCES || code == EPERM ? paranoid_remedy() : "");
}

void CounterSet::Impl::each(unsigned long request) const {
    for (const Counter& counter : counters) {
        for (const Fd& fd : counter.fds) {
            if (::ioctl(fd.get(), request, 0) != 0) {
                throw_errno("ioctl of the counter " + counter.event.name);
            }
        }
    }
}

CounterSet::CounterSet(const CounterOptions& options) : impl_(std::make_unique<Impl>()) {
    for (const std::string& name : options.events) {
        impl_->counters.push_back({find_event(name, options.tracefs), true, {}});
        impl_->counters.back().event.name = name;  // perf stat shows the name that it was asked for, too
    }
    if (options.commands) {
        for (auto& counter : impl_->counters) {
            impl_->open(counter, 0, -1, options);
        }
    } else if (options.pids.empty()) {
        for (const std::int32_t cpu : online_cpus()) {
            for (auto& counter : impl_->counters) {
                impl_->open(counter, -1, cpu, options);
            }
        }
    } else {
        for (const std::int32_t tid : threads_of(options.pids, options.children)) {
            for (auto& counter : impl_->counters) {
                impl_->open(counter, tid, -1, options);
            }
        }
    }
}

CounterSet::~CounterSet() = default;

void CounterSet::start() {
    impl_->each(PERF_EVENT_IOC_ENABLE);
}

void CounterSet::stop() {
    impl_->each(PERF_EVENT_IOC_DISABLE);
}

std::vector<CounterValue> CounterSet::read() const {
    std::vector<CounterValue> out;
    for (const Impl::Counter& counter : impl_->counters) {
        CounterValue sum;
        sum.event = counter.event.name;
        sum.supported = counter.supported;
        sum.clock = counter.event.clock();
        for (const Fd& fd : counter.fds) {
            struct {
                std::uint64_t value;
                std::uint64_t enabled;
                std::uint64_t running;
            } one{};
            if (::read(fd.get(), &one, sizeof(one)) != static_cast<ssize_t>(sizeof(one))) {
                throw_errno("read of the counter " + counter.event.name);
            }
            sum.raw += one.value;
            sum.enabled_ns += one.enabled;
            sum.running_ns += one.running;
        }
        out.push_back(std::move(sum));
    }
    return out;
}

}  // namespace sampleblk::profile
