// SPDX-License-Identifier: MIT
// What processes were called and had mapped, as a recording's COMM, FORK and MMAP records tell in order of time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace sampleblk::profile {

struct Mapping {
    std::uint64_t start = 0;
    std::uint64_t end = 0;
    std::uint64_t offset = 0;  // of `start` in the file
    std::uint32_t file = 0;    // UserSymbols::file_number()
};

// A process's mappings; copied when a fork's two sides part.
struct AddressSpace {
    std::uint32_t version = 0;      // another number each time that anything changes, of all spaces
    std::vector<Mapping> mappings;  // sorted, apart

    [[nodiscard]] const Mapping* find(std::uint64_t address) const noexcept;
};

class Processes {
  public:
    [[nodiscard]] const AddressSpace& space(std::int32_t pid) const;
    // The thread's name as a code of the caller's pool; -1 when no record named it.
    [[nodiscard]] std::int32_t comm(std::int32_t tid) const;

    void name(std::int32_t pid, std::int32_t tid, std::int32_t comm, bool exec);
    // `known_before`: perf tells of a process that was there before the recording; its mappings are told apart.
    void fork(std::int32_t pid, std::int32_t tid, std::int32_t parent_pid, std::int32_t parent_tid, bool known_before);
    void map(std::int32_t pid, const Mapping& mapping);
    [[nodiscard]] const std::map<std::int32_t, std::int32_t>& parents() const noexcept { return parents_; }

  private:
    AddressSpace& own(std::int32_t pid);

    std::unordered_map<std::int32_t, std::shared_ptr<AddressSpace>> spaces_;
    std::unordered_map<std::int32_t, std::int32_t> comms_;
    std::map<std::int32_t, std::int32_t> parents_;
    std::uint32_t versions_ = 0;
    AddressSpace none_;
};

}  // namespace sampleblk::profile
