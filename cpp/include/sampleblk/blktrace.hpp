// SPDX-License-Identifier: MIT
// The binary records that blktrace(8) writes (include/uapi/linux/blktrace_api.h), of versions 7 and 8 (kernel 6.19), in
// either byte order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <utility>

namespace sampleblk::blktrace {

// enum blktrace_act and enum blktrace_notify.
enum Action : std::uint16_t {
    queue = 1,
    back_merge,
    front_merge,
    get_request,
    sleep_request,
    requeue,
    issue,
    complete,
    plug,
    unplug_io,
    unplug_timer,
    insert,
    split,
    bounce,
    remap,
};
enum Notice : std::uint16_t { process = 0, timestamp, message };

// enum blktrace_cat.
inline constexpr std::uint64_t category_write = 1U << 1U;
inline constexpr std::uint64_t category_flush = 1U << 2U;
inline constexpr std::uint64_t category_sync = 1U << 3U;
inline constexpr std::uint64_t category_complete = 1U << 7U;
inline constexpr std::uint64_t category_request = 1U << 8U;  // BLK_TC_FS: a bio has neither this nor the next
inline constexpr std::uint64_t category_command = 1U << 9U;  // BLK_TC_PC: of the driver's, with no place
inline constexpr std::uint64_t category_notify = 1U << 10U;
inline constexpr std::uint64_t category_ahead = 1U << 11U;
inline constexpr std::uint64_t category_meta = 1U << 12U;
inline constexpr std::uint64_t category_discard = 1U << 13U;
inline constexpr std::uint64_t category_fua = 1U << 15U;
// Of version 8 only.
inline constexpr std::uint64_t category_zone_append = 1U << 16U;
inline constexpr std::uint64_t category_zone_reset = 1U << 17U;
inline constexpr std::uint64_t category_zone_reset_all = 1U << 18U;
inline constexpr std::uint64_t category_zone_finish = 1U << 19U;
inline constexpr std::uint64_t category_zone_open = 1U << 20U;
inline constexpr std::uint64_t category_zone_close = 1U << 21U;
inline constexpr std::uint64_t category_write_zeroes = 1U << 22U;

struct Record {
    std::uint64_t at = 0;  // where it lies in the file, bytes
    std::uint64_t time_ns = 0;
    std::uint64_t sector = 0;  // of 512 bytes
    std::uint32_t bytes = 0;
    std::uint16_t action = 0;      // an Action, or with category_notify a Notice
    std::uint64_t categories = 0;  // category_*
    std::uint32_t pid = 0;
    std::uint32_t device = 0;  // the kernel's dev_t: 12 bits of major, 20 of minor
    std::uint32_t cpu = 0;
    std::uint16_t error = 0;
    std::span<const std::byte> data;  // what follows the record, without a cgroup's id

    // A big endian number of `data`, as the kernel puts them there; 0 where it is shorter.
    [[nodiscard]] std::uint32_t data_u32(std::size_t at_byte) const noexcept;
    [[nodiscard]] std::uint64_t data_u64(std::size_t at_byte) const noexcept;
};

class Reader {
  public:
    // `path` stands in errors; `bytes` outlive the reader.
    Reader(std::span<const std::byte> bytes, std::string path);

    // The next record; false at the end. Throws FormatError for anything else than a record.
    [[nodiscard]] bool next(Record& record);
    // The file ends within a record, as a file does that was copied while blktrace wrote.
    [[nodiscard]] bool cut_off() const noexcept { return cut_off_; }
    // Places where the kernel's numbers of a CPU's records do not go on: some are missing, or are in another order.
    [[nodiscard]] std::uint64_t gaps() const noexcept { return gaps_; }

  private:
    std::span<const std::byte> bytes_;
    std::string path_;
    std::size_t at_ = 0;
    bool swapped_ = false;
    bool cut_off_ = false;
    std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> numbers_;  // the last one of a device and CPU
    std::uint64_t gaps_ = 0;
};

}  // namespace sampleblk::blktrace
