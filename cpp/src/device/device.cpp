// SPDX-License-Identifier: MIT
#include "sampleblk/device.hpp"

#include <sys/ioctl.h>

#include <bit>
#include <cerrno>

#include "sampleblk/error.hpp"
#include "sampleblk/units.hpp"

namespace sampleblk {

namespace {

void check_power_of_two(std::uint32_t value, std::uint32_t low, std::uint32_t high, const char* name) {
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

}  // namespace

std::string device_path(std::uint32_t index) {
    return "/dev/sampleblk" + std::to_string(index);
}

void check_config(const sampleblk_config& config) {
    constexpr std::uint32_t sector = 512;
    constexpr std::uint32_t block_max = 4096;
    constexpr std::uint32_t physical_max = 1U << 20;
    check_at_most(config.index, SAMPLEBLK_MAX_DEVICES, "device index");
    check_at_most(config.queues, SAMPLEBLK_MAX_QUEUES, "queues");
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
}

DeviceControl::DeviceControl(const std::string& path) : path_(path), fd_(open_file(path, O_RDWR)) {}

void DeviceControl::call(unsigned long request, void* argument, const char* name, const std::string& device) const {
    while (::ioctl(fd_.get(), request, argument) < 0) {
        if (errno != EINTR) {
            throw SystemError(std::string("ioctl ") + name, device, errno);
        }
    }
}

sampleblk_config DeviceControl::add(sampleblk_config config) {
    check_config(config);
    call(SAMPLEBLK_IOC_ADD, &config, "SAMPLEBLK_IOC_ADD",
         config.index == SAMPLEBLK_INDEX_ANY ? path_ : device_path(config.index));
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
    call(SAMPLEBLK_IOC_COUNTERS, &counters, "SAMPLEBLK_IOC_COUNTERS", device_path(index));
    return counters;
}

}  // namespace sampleblk
