// SPDX-License-Identifier: MIT
// The driver's control device. The structures are those of the ABI (linux/sampleblk.h, which says what each field
// means); what is wrong with one is said here in words, where the kernel has only EINVAL.
#pragma once

#include <linux/sampleblk.h>

#include <cstdint>
#include <string>
#include <vector>

#include "sampleblk/fd.hpp"

namespace sampleblk {

// "/dev/sampleblk3"
[[nodiscard]] std::string device_path(std::uint32_t index);

// Throws InputError naming the first field that no device can have.
void check_config(const sampleblk_config& config);

// An open /dev/sampleblk-control. Every call throws SystemError with the kernel's errno; ENODEV means that there is no
// device of that index.
class DeviceControl {
  public:
    // Throws SystemError: ENOENT when the driver is not loaded, EACCES without the right to use it.
    explicit DeviceControl(const std::string& path = SAMPLEBLK_CONTROL_PATH);

    // Gives the descriptor back before the destructor does: an open one keeps the module loaded. Later calls throw
    // EBADF.
    void close() noexcept { fd_.reset(); }

    // Makes a device; returns its configuration with every default filled in. Throws InputError for what no device can
    // be; EEXIST when the index is taken, ENOSPC when all are.
    sampleblk_config add(sampleblk_config config);

    // Throws EBUSY while it is open or mounted, unless `force`: then its holders are left with a disk that
    // was pulled, which has no length and takes no write.
    void remove(std::uint32_t index, bool force = false);

    // The indices of the devices that there are, ascending.
    [[nodiscard]] std::vector<std::uint32_t> list() const;

    [[nodiscard]] sampleblk_info info(std::uint32_t index) const;

    // Of one hardware queue, or of all together.
    [[nodiscard]] sampleblk_counters counters(std::uint32_t index, std::uint32_t queue = SAMPLEBLK_QUEUE_ALL) const;

  private:
    void call(unsigned long request, void* argument, const char* name, const std::string& device) const;

    std::string path_;
    Fd fd_;
};

}  // namespace sampleblk
