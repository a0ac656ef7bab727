// SPDX-License-Identifier: MIT
// Fills a Profile from its file: goes through the records in order of time and turns call chains into stacks.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "address_space.hpp"
#include "flat_map.hpp"
#include "sampleblk/profile/profile.hpp"
#include "symbolizer.hpp"

namespace sampleblk::profile {

class UserUnwinder;

class ProfileBuilder {
  public:
    ProfileBuilder(Profile& profile, const SymbolSources& sources);
    void build();

  private:
    void load_kernel_symbols(const SymbolSources& sources);
    void side_band(const Record& record);
    void on_mmap(std::span<const std::byte> body, std::uint16_t misc, bool second);
    void on_sample(const Record& record);
    [[nodiscard]] std::uint32_t leaf_of(const Sample& sample, std::uint16_t misc);
    [[nodiscard]] std::uint32_t build_stack(const Sample& sample, const AddressSpace& space, std::uint16_t misc);
    [[nodiscard]] std::uint32_t child(std::uint32_t parent, std::uint32_t frame);
    [[nodiscard]] std::uint32_t kernel_frame(std::uint64_t address);
    [[nodiscard]] std::uint32_t user_frame(const AddressSpace& space, std::uint64_t address);
    [[nodiscard]] std::uint32_t intern(const Place& place);
    [[nodiscard]] std::int32_t comm_of(std::int32_t pid, std::int32_t tid);
    void finish();

    struct Chain {
        std::span<const std::byte> bytes;
        std::uint64_t ip = 0;
        std::uint32_t space = 0;
        std::uint32_t leaf = 0;
        std::uint16_t mode = 0;
    };

    Profile& profile_;
    KernelSymbols kernel_;
    UserSymbols user_;
    Processes processes_;
    FlatMap kernel_frames_;
    FlatMap user_frames_;      // mapped: file and offset
    FlatMap unmapped_frames_;  // by address
    FlatMap children_;         // parent << 32 | frame
    std::unordered_map<std::string, std::uint32_t> interned_;
    FlatMap chain_numbers_;  // hash -> index into chains_
    std::vector<Chain> chains_;
    std::map<std::string, std::uint64_t> counts_;
};

}  // namespace sampleblk::profile
