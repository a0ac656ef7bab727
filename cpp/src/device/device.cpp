// SPDX-License-Identifier: MIT
#include "sampleblk/device.hpp"

#include <sys/ioctl.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>

#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/units.hpp"

namespace sampleblk {

namespace {

constexpr const char* kNoJournal = "it has no journal: journal_start()";
constexpr const char* kMounted = "it is mounted: unmount it, or its file system goes on with what it remembers";
constexpr const char* kInUse = "it is mounted, or open: unmount it; force=True is for what is only open";
constexpr const char* kInUseOrRecorded =
    "it has a journal: journal_stop(); or it is mounted, or open: unmount it; force=True is for what is only open";
constexpr const char* kGap = "its journal has a gap, operations that found no room: record with a larger one";
constexpr const char* kNoSequence =
    "a sequence is one that its journal has, from 0 to journal_info().next_sequence - 1";
constexpr const char* kNoQueue = "it has no such queue: fewer than there are CPUs";
constexpr const char* kManySnapshots = "it has 64 snapshots, which is the most: snapshot_delete()";
constexpr const char* kManyDevices = "there are 256 devices, which is the most";
constexpr const char* kBadSectors = "; a rule has at most 16777216 bad sectors";
constexpr const char* kNoPart =
    "a part is of a write, discard or write-zeroes of the journal, within it and in whole logical blocks; and a device "
    "that takes a state has the capacity of the one that gives it";

void check_power_of_two(std::uint64_t value, std::uint64_t low, std::uint64_t high, const char* name) {
    if (value != 0 && (!std::has_single_bit(value) || value < low || value > high)) {
        throw InputError(std::string(name) + " of " + std::to_string(value) + " bytes", {}, 0,
                         "a power of two from " + std::to_string(low) + " to " + std::to_string(high));
    }
}

void check_at_most(std::uint32_t value, std::uint32_t high, const char* name) {
    if (value > high) {
        throw InputError(std::string(name) + " " + std::to_string(value), {}, 0, "at most " + std::to_string(high));
    }
}

void check_no_zones(const sampleblk_config& config) {
    const std::pair<std::uint64_t, const char*> values[] = {{config.zone_capacity_bytes, "zone_capacity"},
                                                            {config.conventional_zones, "conventional_zones"},
                                                            {config.max_open_zones, "max_open_zones"},
                                                            {config.max_active_zones, "max_active_zones"}};
    for (const auto& [value, name] : values) {
        if (value != 0) {
            throw InputError(std::string(name) + " " + std::to_string(value) + " without zones", {}, 0,
                             "it together with the size of a zone");
        }
    }
}

using Excluded = std::pair<bool, const char*>;

// What cannot be had together with `what`.
template <std::size_t count>
void check_alone(const char* what, const Excluded (&excluded)[count]) {
    for (const auto& [on, name] : excluded) {
        if (on) {
            throw InputError(std::string(what) + " together with " + name, {}, 0, "one of them");
        }
    }
}

// The rules are those of module/control/registry.c.
void check_integrity(const sampleblk_config& config) {
    if ((config.flags & SAMPLEBLK_F_INTEGRITY) == 0) {
        return;
    }
    const Excluded excluded[] = {{(config.flags & SAMPLEBLK_F_CACHE) != 0, "a volatile cache"},
                                 {(config.flags & SAMPLEBLK_F_SECTOR_ATOMIC) != 0, "sector_atomic"},
                                 {config.zone_bytes != 0, "zones"},
                                 {config.mode == SAMPLEBLK_MODE_BIO, "mode bio"},
                                 {config.logical_block_bytes > 4096, "a logical block above 4096 bytes"}};
    check_alone("integrity", excluded);
}

void check_multiple(std::uint64_t value, std::uint64_t of, std::uint64_t low, std::uint64_t high, const char* name) {
    if (value != 0 && (value % of != 0 || value < low || value > high)) {
        throw InputError(std::string(name) + " of " + std::to_string(value), {}, 0,
                         (of > 1 ? "a multiple of " + std::to_string(of) + " from " : "from ") + std::to_string(low) +
                             " to " + std::to_string(high));
    }
}

// The largest atomic write. It may begin and end within pages that are apart, each a segment: so the kernel counts them
// (blk_queue_max_guaranteed_bio()), of which a bio has at most 256.
std::uint32_t atomic_most(const sampleblk_config& config, std::uint32_t logical) {
    constexpr std::uint32_t page = 4096;
    const std::uint32_t sectors = config.max_sectors != 0 ? config.max_sectors : 2560;
    const std::uint32_t segments = std::min(config.max_segments != 0 ? config.max_segments : 128U, 256U);
    const std::uint32_t whole = segments > 2 ? segments - 2 : 0;
    return std::bit_floor(std::min(sectors * 512, (segments - whole) * logical + whole * page));
}

// The rules are those of module/control/registry.c and power.c.
void check_sizes(const sampleblk_config& config, std::uint32_t logical) {
    constexpr std::uint32_t page = 4096;
    constexpr std::uint32_t sector = 512;
    constexpr std::uint32_t largest = 64U << 20;
    constexpr std::uint32_t granule_max = 1U << 30;
    const std::uint32_t physical =
        config.physical_block_bytes != 0 ? config.physical_block_bytes : std::max(page, logical);
    check_multiple(config.io_min_bytes, physical, physical, largest, "io_min");
    const std::uint32_t least = config.io_min_bytes != 0 ? config.io_min_bytes : physical;
    check_multiple(config.io_opt_bytes, least, least, largest, "io_opt");
    check_multiple(config.max_sectors, logical / sector, page / sector, largest / sector, "max_sectors");
    check_multiple(config.max_segments, 1, logical / sector, 1024, "max_segments");
    check_multiple(config.cache_bytes, 1, 64U << 10, 4ULL << 30, "cache_size");
    const std::uint32_t granule = config.discard_granularity_bytes;
    check_power_of_two(granule, physical, granule_max, "discard_granularity");
    if (granule != 0 && (config.flags & SAMPLEBLK_F_DISCARD) == 0) {
        throw InputError("discard_granularity without discard", {}, 0, "it together with discard");
    }
    if (config.discard_alignment_bytes != 0 && granule == 0) {
        throw InputError("discard_alignment without discard_granularity", {}, 0, "both");
    }
    if (granule != 0) {
        check_multiple(config.discard_alignment_bytes, logical, logical, granule - 1, "discard_alignment");
    }
    const std::uint32_t atomic = config.atomic_write_unit_max_bytes;
    if (atomic == 0 && (config.atomic_write_unit_min_bytes | config.atomic_write_boundary_bytes) != 0) {
        throw InputError("atomic_write_min or atomic_write_boundary without atomic_write", {}, 0, "all of them");
    }
    check_power_of_two(atomic, logical, atomic_most(config, logical), "atomic_write");
    check_power_of_two(config.atomic_write_unit_min_bytes, logical, atomic, "atomic_write_min");
    check_power_of_two(config.atomic_write_boundary_bytes, atomic, granule_max, "atomic_write_boundary");
}

// The rules are those of module/core/timing.c.
void check_timing(const sampleblk_timing& timing, const std::vector<sampleblk_bin>& bins) {
    constexpr std::uint64_t longest = SAMPLEBLK_MAX_LATENCY_NS;
    const auto within = [](std::uint64_t value, std::uint64_t low, std::uint64_t high, const char* name) {
        if (value < low || value > high) {
            throw InputError(std::string(name) + "=" + std::to_string(value) + " of this latency model", {}, 0,
                             low == high ? "none: the model has no such parameter"
                                         : std::to_string(low) + " to " + std::to_string(high));
        }
    };
    const bool empirical = timing.model == SAMPLEBLK_LATENCY_EMPIRICAL;
    const bool has_none = empirical || timing.model == SAMPLEBLK_LATENCY_NONE;
    within(timing.a, 0, has_none ? 0 : longest, "a");
    switch (timing.model) {
        case SAMPLEBLK_LATENCY_UNIFORM:
            within(timing.b, timing.a, longest, "b");
            break;
        case SAMPLEBLK_LATENCY_LOGNORMAL:
            within(timing.b, 0, 10'000, "b");
            break;
        case SAMPLEBLK_LATENCY_PARETO:
            within(timing.b, 100, 100'000, "b");
            break;
        default:
            within(timing.b, 0, has_none || timing.model == SAMPLEBLK_LATENCY_CONSTANT ? 0 : longest, "b");
    }
    if (timing.ops == 0) {
        throw InputError("a latency of no operation", {}, 0, "at least one");
    }
    if (empirical == bins.empty()) {
        throw InputError(empirical ? "an empirical latency without bins" : "bins of another latency model", {}, 0,
                         "the model empirical together with bins");
    }
    std::uint64_t before = 0;
    bool counts = bins.empty();
    for (const sampleblk_bin& bin : bins) {
        if (bin.up_to_ns <= before || bin.up_to_ns > longest) {
            throw InputError("a bin that ends at " + std::to_string(bin.up_to_ns) + " ns", {}, 0,
                             "ends in ascending order, above 0 and up to " + std::to_string(longest));
        }
        before = bin.up_to_ns;
        counts = counts || bin.count != 0;
    }
    if (!counts) {
        throw InputError("bins of which none has a count", {}, 0, "a count above 0");
    }
}

void check_limits(const sampleblk_limits& limits) {
    constexpr std::uint64_t least = 4096;
    if (limits.bytes_per_second != 0 && limits.bytes_per_second < least) {
        throw InputError("bytes_per_second " + std::to_string(limits.bytes_per_second), {}, 0,
                         "at least 4096, or 0: none");
    }
    const std::uint64_t period = limits.stall_period_ns;
    const std::pair<std::uint64_t, const char*> parts[] = {{limits.stall_ns, "stall_ns"},
                                                           {limits.stall_offset_ns, "stall_offset_ns"}};
    for (const auto& [value, name] : parts) {
        if (value != 0 && value >= period) {
            throw InputError(std::string(name) + " " + std::to_string(value), {}, 0,
                             "less than stall_period_ns, " + std::to_string(period));
        }
    }
    if (limits.stall_ns > SAMPLEBLK_MAX_LATENCY_NS) {
        throw InputError("stall_ns " + std::to_string(limits.stall_ns), {}, 0,
                         "at most " + std::to_string(SAMPLEBLK_MAX_LATENCY_NS));
    }
}

// The rules are those of module/core/zones.c.
void check_zones(const sampleblk_config& config, std::uint32_t logical) {
    constexpr std::uint64_t zone_min = 64U << 10;
    constexpr std::uint64_t zone_max = std::uint64_t{1} << 40;
    constexpr std::uint64_t most = 1U << 20;
    const std::uint64_t zone = config.zone_bytes;
    if (zone == 0) {
        check_no_zones(config);
        return;
    }
    const Excluded excluded[] = {{(config.flags & SAMPLEBLK_F_CACHE) != 0, "a volatile cache"},
                                 {(config.flags & SAMPLEBLK_F_SECTOR_ATOMIC) != 0, "sector_atomic"},
                                 {(config.flags & SAMPLEBLK_F_DISCARD) != 0, "discard"},
                                 {(config.flags & SAMPLEBLK_F_WRITE_ZEROES) != 0, "write_zeroes"},
                                 {config.mode == SAMPLEBLK_MODE_BIO, "mode bio"},
                                 {config.atomic_write_unit_max_bytes != 0, "atomic_write"}};
    check_alone("zones", excluded);
    check_power_of_two(zone, zone_min, zone_max, "zone");
    const std::uint64_t zones = config.capacity_bytes / zone;
    if (config.capacity_bytes % zone != 0 || zones > most) {
        throw InputError("capacity " + std::to_string(config.capacity_bytes) + " bytes", {}, 0,
                         "a multiple of the zone, " + std::to_string(zone) + ", and at most 2^20 zones");
    }
    if (config.conventional_zones >= zones) {
        throw InputError("conventional_zones " + std::to_string(config.conventional_zones), {}, 0,
                         "fewer than there are zones, " + std::to_string(zones));
    }
    if (config.zone_capacity_bytes > zone || config.zone_capacity_bytes % logical != 0) {
        throw InputError("zone_capacity " + std::to_string(config.zone_capacity_bytes) + " bytes", {}, 0,
                         "a multiple of the logical block, at most the zone, " + std::to_string(zone));
    }
    if (config.max_active_zones != 0 && config.max_open_zones > config.max_active_zones) {
        throw InputError("max_open_zones " + std::to_string(config.max_open_zones), {}, 0,
                         "at most max_active_zones, " + std::to_string(config.max_active_zones));
    }
}

}  // namespace

std::string device_path(std::uint32_t index) {
    return "/dev/sampleblk" + std::to_string(index);
}

void check_config(const sampleblk_config& config) {
    constexpr std::uint32_t sector = 512;
    constexpr std::uint32_t block_max = 65536;
    constexpr std::uint32_t physical_max = 1U << 20;
    check_at_most(config.index, SAMPLEBLK_MAX_DEVICES, "device index");
    check_at_most(config.queues, SAMPLEBLK_MAX_QUEUES, "queues");
    check_at_most(config.poll_queues, SAMPLEBLK_MAX_QUEUES, "poll_queues");
    check_at_most(config.depth, SAMPLEBLK_MAX_DEPTH, "depth");
    check_power_of_two(config.logical_block_bytes, sector, block_max, "logical block");
    const std::uint32_t logical = config.logical_block_bytes != 0 ? config.logical_block_bytes : sector;
    check_power_of_two(config.physical_block_bytes, logical, physical_max, "physical block");
    if (config.capacity_bytes < SAMPLEBLK_MIN_CAPACITY_BYTES || config.capacity_bytes > SAMPLEBLK_MAX_CAPACITY_BYTES) {
        throw InputError(
            "capacity " + std::to_string(config.capacity_bytes) + " bytes", {}, 0,
            format_bytes(SAMPLEBLK_MIN_CAPACITY_BYTES) + " to " + format_bytes(SAMPLEBLK_MAX_CAPACITY_BYTES));
    }
    if (config.capacity_bytes % logical != 0) {
        throw InputError("capacity " + std::to_string(config.capacity_bytes) + " bytes", {}, 0,
                         "a multiple of the logical block, " + std::to_string(logical));
    }
    if ((config.flags & SAMPLEBLK_F_FUA) != 0 && (config.flags & SAMPLEBLK_F_CACHE) == 0) {
        throw InputError("FUA without a volatile cache to bypass", {}, 0, "FUA together with the cache");
    }
    if (config.poll_queues != 0 && config.mode == SAMPLEBLK_MODE_BIO) {
        throw InputError("poll_queues " + std::to_string(config.poll_queues) + " in bio mode", {}, 0,
                         "mode mq: bios have no queues");
    }
    if (config.cache_bytes != 0 && (config.flags & SAMPLEBLK_F_CACHE) == 0) {
        throw InputError("cache_bytes without a volatile cache", {}, 0, "cache_bytes together with the cache");
    }
    check_sizes(config, logical);
    check_integrity(config);
    check_zones(config, logical);
}

std::vector<sampleblk_bin> latency_bins(const LatencyStats& stats) {
    // The last bin of a histogram takes all that is longer; the device's bins end where it ends.
    static_assert(HistogramGeometry::lower_bound(HistogramGeometry::bins - 1) +
                      HistogramGeometry::width(HistogramGeometry::bins - 1) <=
                  SAMPLEBLK_MAX_LATENCY_NS);
    static_assert(2 * HistogramGeometry::bins <= SAMPLEBLK_MAX_BINS);
    std::vector<sampleblk_bin> bins;
    std::uint64_t end = 0;
    for (std::size_t i = 0; i < stats.bins.size(); ++i) {
        if (stats.bins[i] == 0) {
            continue;
        }
        const std::uint64_t begin = HistogramGeometry::lower_bound(i);
        if (begin > end) {
            bins.push_back({begin, 0});
        }
        end = begin + HistogramGeometry::width(i);
        bins.push_back({end, stats.bins[i]});
    }
    if (bins.empty()) {
        throw InputError("a latency of which nothing was measured", {}, 0, "at least one I/O");
    }
    return bins;
}

DeviceControl::DeviceControl(const std::string& path) : path_(path), fd_(open_file(path, O_RDWR)) {}

void DeviceControl::call(unsigned long request, void* argument, const char* name, const std::string& device,
                         std::initializer_list<Meaning> meanings) const {
    while (::ioctl(fd_.get(), request, argument) < 0) {
        const int error = errno;
        if (error != EINTR) {
            const auto* known = std::ranges::find(meanings, error, &Meaning::code);
            throw SystemError(std::string("ioctl ") + name, device, error,
                              known == meanings.end() ? std::string() : std::string(known->text));
        }
        // The call changed nothing, or comes to the same when it is made again.
        check_interrupt();
    }
}

sampleblk_config DeviceControl::add(sampleblk_config config) {
    check_config(config);
    call(SAMPLEBLK_IOC_ADD, &config, "SAMPLEBLK_IOC_ADD",
         config.index == SAMPLEBLK_INDEX_ANY ? path_ : device_path(config.index),
         {{ENOSPC, kManyDevices},
          {EINVAL, config.logical_block_bytes > 4096 ? "a logical block above 4096 bytes takes Linux 6.15"
                   : config.numa_node != 0           ? "there is no such node of memory, numa_node"
                                                     : ""}});
    return config;
}

void DeviceControl::remove(std::uint32_t index, bool force) {
    sampleblk_remove request{};
    request.index = index;
    request.flags = force ? SAMPLEBLK_REMOVE_FORCE : 0;
    call(SAMPLEBLK_IOC_REMOVE, &request, "SAMPLEBLK_IOC_REMOVE", device_path(index));
}

std::vector<std::uint32_t> DeviceControl::list() const {
    sampleblk_list list{};
    call(SAMPLEBLK_IOC_LIST, &list, "SAMPLEBLK_IOC_LIST", path_);
    std::vector<std::uint32_t> indices;
    constexpr std::uint32_t bits = 64;
    for (std::uint32_t bit = 0; bit < SAMPLEBLK_MAX_DEVICES; ++bit) {
        if (((list.map[bit / bits] >> (bit % bits)) & 1U) != 0) {
            indices.push_back(bit + 1);
        }
    }
    return indices;
}

sampleblk_info DeviceControl::info(std::uint32_t index) const {
    sampleblk_info info{};
    info.config.index = index;
    call(SAMPLEBLK_IOC_INFO, &info, "SAMPLEBLK_IOC_INFO", device_path(index));
    return info;
}

sampleblk_counters DeviceControl::counters(std::uint32_t index, std::uint32_t queue) const {
    sampleblk_counters counters{};
    counters.index = index;
    counters.queue = queue;
    call(SAMPLEBLK_IOC_COUNTERS, &counters, "SAMPLEBLK_IOC_COUNTERS", device_path(index), {{EINVAL, kNoQueue}});
    return counters;
}

sampleblk_histogram DeviceControl::histogram(std::uint32_t index, std::uint32_t op, std::uint32_t queue) const {
    sampleblk_histogram histogram{};
    histogram.index = index;
    histogram.op = op;
    histogram.queue = queue;
    call(SAMPLEBLK_IOC_HISTOGRAM, &histogram, "SAMPLEBLK_IOC_HISTOGRAM", device_path(index), {{EINVAL, kNoQueue}});
    return histogram;
}

void DeviceControl::reset(std::uint32_t index) {
    sampleblk_reset reset{};
    reset.index = index;
    call(SAMPLEBLK_IOC_RESET, &reset, "SAMPLEBLK_IOC_RESET", device_path(index));
}

void DeviceControl::resize(std::uint32_t index, std::uint64_t capacity_bytes) {
    sampleblk_resize resize{};
    resize.index = index;
    resize.capacity_bytes = capacity_bytes;
    call(SAMPLEBLK_IOC_RESIZE, &resize, "SAMPLEBLK_IOC_RESIZE", device_path(index),
         {{EINVAL, "a capacity is a multiple of the logical block, " + format_bytes(SAMPLEBLK_MIN_CAPACITY_BYTES) +
                       " to " + format_bytes(SAMPLEBLK_MAX_CAPACITY_BYTES) + kBadSectors},
          {EBUSY, "its journal records, it has snapshots, or it is a clone of one that there still is"},
          {EFBIG, "a device stays at 2 TiB or less, or above"},
          {EOPNOTSUPP, "a zoned device, or one with protection information, keeps its size"}});
}

sampleblk_tune DeviceControl::tune(sampleblk_tune tune) {
    call(SAMPLEBLK_IOC_TUNE, &tune, "SAMPLEBLK_IOC_TUNE", device_path(tune.index),
         {{EINVAL, "queues are at least 1, and with the poll_queues at most as many as CPUs"},
          {EOPNOTSUPP,
           "mode bio has no queues; a zoned device, or one with protection information, is not sector_atomic"}});
    return tune;
}

void DeviceControl::set_timing(sampleblk_timing timing, const std::vector<sampleblk_bin>& bins) {
    if (bins.size() > SAMPLEBLK_MAX_BINS) {
        throw InputError("histogram of " + std::to_string(bins.size()) + " bins", {}, 0,
                         "at most " + std::to_string(SAMPLEBLK_MAX_BINS));
    }
    check_timing(timing, bins);
    timing.nr_bins = static_cast<std::uint32_t>(bins.size());
    timing.bins = reinterpret_cast<std::uintptr_t>(bins.data());
    call(SAMPLEBLK_IOC_TIMING, &timing, "SAMPLEBLK_IOC_TIMING", device_path(timing.index));
}

void DeviceControl::set_limits(const sampleblk_limits& limits) {
    check_limits(limits);
    sampleblk_limits request = limits;
    call(SAMPLEBLK_IOC_LIMITS, &request, "SAMPLEBLK_IOC_LIMITS", device_path(limits.index));
}

std::pair<sampleblk_timing, std::vector<sampleblk_bin>> DeviceControl::timing(std::uint32_t index,
                                                                              std::uint32_t op) const {
    if (op >= SAMPLEBLK_OPS) {
        throw InputError("operation " + std::to_string(op), {}, 0,
                         "SAMPLEBLK_OP_READ … SAMPLEBLK_OP_FLUSH (0 to " + std::to_string(SAMPLEBLK_OPS - 1) + ")");
    }
    std::vector<sampleblk_bin> bins(SAMPLEBLK_MAX_BINS);
    sampleblk_timing timing{};
    timing.index = index;
    timing.ops = 1U << op;
    timing.nr_bins = static_cast<std::uint32_t>(bins.size());
    timing.bins = reinterpret_cast<std::uintptr_t>(bins.data());
    call(SAMPLEBLK_IOC_GET_TIMING, &timing, "SAMPLEBLK_IOC_GET_TIMING", device_path(index));
    bins.resize(timing.nr_bins);
    timing.bins = 0;
    return {timing, std::move(bins)};
}

sampleblk_limits DeviceControl::limits(std::uint32_t index) const {
    sampleblk_limits limits{};
    limits.index = index;
    call(SAMPLEBLK_IOC_GET_LIMITS, &limits, "SAMPLEBLK_IOC_GET_LIMITS", device_path(index));
    return limits;
}

void DeviceControl::set_faults(std::uint32_t index, std::vector<sampleblk_rule> rules, std::uint64_t seed, bool add) {
    if (rules.size() > SAMPLEBLK_MAX_RULES) {
        throw InputError(std::to_string(rules.size()) + " fault rules", {}, 0,
                         "at most " + std::to_string(SAMPLEBLK_MAX_RULES));
    }
    sampleblk_faults faults{};
    faults.index = index;
    faults.nr_rules = static_cast<std::uint32_t>(rules.size());
    faults.seed = seed;
    faults.rules = reinterpret_cast<std::uintptr_t>(rules.data());
    faults.flags = add ? SAMPLEBLK_FAULTS_ADD : 0;
    call(SAMPLEBLK_IOC_SET_FAULTS, &faults, "SAMPLEBLK_IOC_SET_FAULTS", device_path(index),
         {{EINVAL, "a device has at most " + std::to_string(SAMPLEBLK_MAX_RULES) +
                       " rules; what is misdirected stays within it, and so does the first bad sector" + kBadSectors},
          {EOPNOTSUPP, "it has no protection information: Device(integrity=True)"}});
}

std::vector<sampleblk_rule> DeviceControl::faults(std::uint32_t index) const {
    std::vector<sampleblk_rule> rules(SAMPLEBLK_MAX_RULES);
    sampleblk_faults faults{};
    faults.index = index;
    faults.nr_rules = static_cast<std::uint32_t>(rules.size());
    faults.rules = reinterpret_cast<std::uintptr_t>(rules.data());
    call(SAMPLEBLK_IOC_GET_FAULTS, &faults, "SAMPLEBLK_IOC_GET_FAULTS", device_path(index));
    rules.resize(faults.nr_rules);
    return rules;
}

sampleblk_power DeviceControl::power_cut(sampleblk_power power, const std::vector<sampleblk_survivor>& survivors) {
    power.action = SAMPLEBLK_POWER_CUT;
    power.nr_survivors = survivors.size();
    power.survivors = reinterpret_cast<std::uintptr_t>(survivors.data());
    call(SAMPLEBLK_IOC_POWER, &power, "SAMPLEBLK_IOC_POWER", device_path(power.index),
         {{EINVAL,
           "survive_percent is at most 100; survivors are of mode explicit, and of each whole logical blocks survive"},
          {EALREADY, "its power is off already: power_on()"}});
    return power;
}

void DeviceControl::power_on(std::uint32_t index) {
    sampleblk_power power{};
    power.index = index;
    power.action = SAMPLEBLK_POWER_ON;
    call(SAMPLEBLK_IOC_POWER, &power, "SAMPLEBLK_IOC_POWER", device_path(index),
         {{EALREADY, "its power is on"}, {EBUSY, kMounted}});
}

std::vector<sampleblk_volatile> DeviceControl::volatile_writes(std::uint32_t index) const {
    std::vector<sampleblk_volatile> writes;
    // Writes go on: ask again until the room was enough.
    for (;;) {
        sampleblk_volatile_list list{};
        list.index = index;
        list.nr = writes.size();
        list.list = reinterpret_cast<std::uintptr_t>(writes.data());
        call(SAMPLEBLK_IOC_VOLATILE, &list, "SAMPLEBLK_IOC_VOLATILE", device_path(index));
        if (list.nr <= writes.size()) {
            writes.resize(list.nr);
            return writes;
        }
        writes.resize(list.nr + list.nr / 8);
    }
}

std::uint64_t DeviceControl::written_back(std::uint32_t index) const {
    sampleblk_volatile_list list{};
    list.index = index;
    call(SAMPLEBLK_IOC_VOLATILE, &list, "SAMPLEBLK_IOC_VOLATILE", device_path(index));
    return list.written_back;
}

void DeviceControl::journal_start(std::uint32_t index, std::uint64_t bytes) {
    sampleblk_journal journal{};
    journal.index = index;
    journal.action = SAMPLEBLK_JOURNAL_START;
    journal.bytes = bytes;
    call(SAMPLEBLK_IOC_JOURNAL, &journal, "SAMPLEBLK_IOC_JOURNAL START", device_path(index),
         {{EINVAL, "its size is a multiple of the page, 64K to 16G"},
          {EBUSY, "it has a journal already"},
          {EOPNOTSUPP, "a zoned device, or one with protection information, has no journal"}});
}

void DeviceControl::journal_stop(std::uint32_t index) {
    sampleblk_journal journal{};
    journal.index = index;
    journal.action = SAMPLEBLK_JOURNAL_STOP;
    call(SAMPLEBLK_IOC_JOURNAL, &journal, "SAMPLEBLK_IOC_JOURNAL STOP", device_path(index), {{ENOENT, kNoJournal}});
}

sampleblk_journal DeviceControl::journal(std::uint32_t index) const {
    sampleblk_journal journal{};
    journal.index = index;
    journal.action = SAMPLEBLK_JOURNAL_INFO;
    call(SAMPLEBLK_IOC_JOURNAL, &journal, "SAMPLEBLK_IOC_JOURNAL INFO", device_path(index), {{ENOENT, kNoJournal}});
    return journal;
}

std::uint64_t DeviceControl::mark(std::uint32_t index, const std::string& text) {
    if (text.empty() || text.size() > SAMPLEBLK_MARK_BYTES) {
        throw InputError("mark of " + std::to_string(text.size()) + " bytes", {}, 0,
                         "1 to " + std::to_string(SAMPLEBLK_MARK_BYTES) + " bytes");
    }
    sampleblk_mark mark{};
    mark.index = index;
    mark.length = static_cast<std::uint32_t>(text.size());
    text.copy(mark.text, text.size());
    call(SAMPLEBLK_IOC_MARK, &mark, "SAMPLEBLK_IOC_MARK", device_path(index), {{ENOENT, kNoJournal}});
    return mark.sequence;
}

std::uint64_t DeviceControl::seek(std::uint32_t index, std::uint64_t sequence, bool force) {
    // One entry a sequence. What the driver counts is of the last call, where a signal has ended one on the way.
    const std::uint64_t before = journal(index).position;
    sampleblk_seek seek{};
    seek.index = index;
    seek.sequence = sequence;
    seek.flags = force ? SAMPLEBLK_SEEK_FORCE : 0;
    call(SAMPLEBLK_IOC_SEEK, &seek, "SAMPLEBLK_IOC_SEEK", device_path(index),
         {{ENOENT, kNoJournal}, {EINVAL, kNoSequence}, {EBUSY, kInUse}, {EOVERFLOW, kGap}});
    const std::uint64_t after = journal(index).position;
    return std::max(before, after) - std::min(before, after);
}

sampleblk_snapshot DeviceControl::snapshot(sampleblk_snapshot request) const {
    const bool take = request.action == SAMPLEBLK_SNAPSHOT_TAKE;
    const std::string taken = device_path(request.clone) + ", which the clone was to be, is there already";
    call(SAMPLEBLK_IOC_SNAPSHOT, &request, "SAMPLEBLK_IOC_SNAPSHOT", device_path(request.index),
         {{EINVAL, take ? kNoSequence : ""},
          {ENOENT, take ? kNoJournal : "it has no such snapshot: snapshots()"},
          {EEXIST, taken},
          {ENOSPC, take ? kManySnapshots : kManyDevices},
          {EOPNOTSUPP, "a zoned device has no snapshots"},
          {EBUSY, take ? "its journal was sought into the past: seek() to the newest" : kInUseOrRecorded},
          {EOVERFLOW, kGap}});
    return request;
}

std::uint32_t DeviceControl::snapshot_take(std::uint32_t index) {
    sampleblk_snapshot request{};
    request.index = index;
    request.action = SAMPLEBLK_SNAPSHOT_TAKE;
    return snapshot(request).id;
}

std::uint32_t DeviceControl::snapshot_take_at(std::uint32_t index, std::uint64_t sequence) {
    sampleblk_snapshot request{};
    request.index = index;
    request.action = SAMPLEBLK_SNAPSHOT_TAKE;
    request.flags = SAMPLEBLK_SNAPSHOT_F_SEQUENCE;
    request.sequence = sequence;
    return snapshot(request).id;
}

void DeviceControl::snapshot_restore(std::uint32_t index, std::uint32_t id, bool force) {
    sampleblk_snapshot request{};
    request.index = index;
    request.action = SAMPLEBLK_SNAPSHOT_RESTORE;
    request.flags = force ? SAMPLEBLK_SNAPSHOT_F_FORCE : 0;
    request.id = id;
    (void)snapshot(request);
}

void DeviceControl::snapshot_delete(std::uint32_t index, std::uint32_t id) {
    sampleblk_snapshot request{};
    request.index = index;
    request.action = SAMPLEBLK_SNAPSHOT_DELETE;
    request.id = id;
    (void)snapshot(request);
}

std::vector<std::uint32_t> DeviceControl::snapshots(std::uint32_t index) const {
    sampleblk_snapshot request{};
    request.index = index;
    request.action = SAMPLEBLK_SNAPSHOT_LIST;
    request = snapshot(request);
    return {request.ids, request.ids + request.count};
}

std::uint32_t DeviceControl::snapshot_clone(std::uint32_t index, std::uint32_t id, std::uint32_t clone) {
    sampleblk_snapshot request{};
    request.index = index;
    request.action = SAMPLEBLK_SNAPSHOT_CLONE;
    request.id = id;
    request.clone = clone;
    return snapshot(request).clone;
}

std::uint32_t DeviceControl::state(sampleblk_state request, const std::vector<sampleblk_part>& parts) {
    request.nr_parts = parts.size();
    request.parts = reinterpret_cast<std::uintptr_t>(parts.data());
    call(SAMPLEBLK_IOC_STATE, &request, "SAMPLEBLK_IOC_STATE", device_path(request.index),
         {{EINVAL, kNoPart},
          {ENOENT, "it has no journal, or no such snapshot"},
          {ENOSPC, kManySnapshots},
          {EBUSY, kInUseOrRecorded},
          {EOVERFLOW, kGap}});
    return request.id;
}

void DeviceControl::state_give(std::uint32_t index, std::uint32_t snapshot, const std::vector<sampleblk_part>& parts,
                               std::uint32_t target, bool force) {
    sampleblk_state request{};
    request.index = index;
    request.snapshot = snapshot;
    request.target = target;
    request.flags = force ? SAMPLEBLK_STATE_FORCE : 0;
    state(request, parts);
}

std::uint32_t DeviceControl::state_take(std::uint32_t index, std::uint32_t snapshot,
                                        const std::vector<sampleblk_part>& parts) {
    sampleblk_state request{};
    request.index = index;
    request.snapshot = snapshot;
    return state(request, parts);
}

}  // namespace sampleblk
