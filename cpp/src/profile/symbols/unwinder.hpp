// SPDX-License-Identifier: MIT
// User stacks out of copied registers and stack memory, by the call frame information of the files that were mapped
// (elfutils' libdw finds and reads it). Rules are kept by address, so a frame costs a few look-ups.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sampleblk/profile/perf_file.hpp"
#include "symbols/address_space.hpp"
#include "symbols/flat_map.hpp"
#include "symbols/object_files.hpp"
#include "symbols/unwind_rules.hpp"

namespace sampleblk::profile {

class UserUnwinder {
  public:
    // `here`: the recording is of a machine like this one, whose registers it has.
    UserUnwinder(ObjectFiles& objects, bool here);
    ~UserUnwinder();
    UserUnwinder(const UserUnwinder&) = delete;
    UserUnwinder& operator=(const UserUnwinder&) = delete;
    UserUnwinder(UserUnwinder&&) = delete;
    UserUnwinder& operator=(UserUnwinder&&) = delete;

    // Adds the sample's user addresses to `out`, innermost first; callers' are of the call, not of what follows it.
    // Adds nothing for a sample without registers of a 64-bit program. `register_mask` is its event's
    // sample_regs_user.
    void unwind(const AddressSpace& space, const Sample& sample, std::uint64_t register_mask,
                std::vector<std::uint64_t>& out);

    // How many stacks were unwound, ended where the copy did, or at code without call frame information; and how many
    // were of another machine or a 32-bit program.
    [[nodiscard]] const std::map<std::string, std::uint64_t>& counts() const noexcept { return counts_; }

  private:
    struct Frames;
    [[nodiscard]] const UnwindRow* row(const AddressSpace& space, std::uint64_t address);

    ObjectFiles& objects_;
    bool here_;
    std::vector<std::unique_ptr<Frames>> frames_;  // by file number
    FlatMap row_numbers_;                          // file and offset -> rows_
    std::vector<UnwindRow> rows_;
    std::map<std::string, std::uint64_t> counts_;
};

}  // namespace sampleblk::profile
