// SPDX-License-Identifier: MIT
// Fills a Profile from its file: goes through the records in order of time and turns call chains into stacks.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "sampleblk/profile/profile.hpp"
#include "symbols/address_space.hpp"
#include "symbols/flat_map.hpp"
#include "symbols/inlines.hpp"
#include "symbols/object_files.hpp"
#include "symbols/symbolizer.hpp"
#include "symbols/unwinder.hpp"

namespace sampleblk::profile {

class ProfileBuilder {
  public:
    ProfileBuilder(Profile& profile, const SymbolSources& sources);
    void build();

  private:
    void load_kernel_symbols(const SymbolSources& sources);
    void side_band(const Record& record);
    void on_mmap(std::span<const std::byte> body, std::uint16_t misc, bool second);
    void on_sample(const Record& record);
    void add_sample(const Sample& sample, std::uint16_t misc);
    // The chain with what the unwinder makes of the copied stack behind it; valid until the next call.
    [[nodiscard]] std::span<const std::byte> whole_chain(const Sample& sample, const AddressSpace& space);
    [[nodiscard]] std::uint32_t leaf_of(Sample sample, std::uint16_t misc);
    [[nodiscard]] std::uint32_t build_stack(const Sample& sample, const AddressSpace& space, std::uint16_t misc,
                                            bool returns);
    [[nodiscard]] std::uint32_t child(std::uint32_t parent, std::uint32_t frame);
    [[nodiscard]] std::uint32_t kernel_frame(std::uint64_t address);
    // Adds the function at that address, of a call's return or not, after those that were inlined into it, innermost
    // first.
    void add_user_frames(const AddressSpace& space, std::uint64_t address, bool returns,
                         std::vector<std::uint32_t>& frames);
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
    ObjectFiles objects_;
    UserSymbols user_;
    UserUnwinder unwinder_;
    InlineFinder inlines_;
    bool with_inlines_;
    Processes processes_;
    FlatMap kernel_frames_;
    // By whether a call returns there; mapped: file and offset -> frame, or kInlined and an index into inlined_frames_.
    std::array<FlatMap, 2> user_frames_;
    FlatMap unmapped_frames_;  // by address
    FlatMap children_;         // parent << 32 | frame
    static constexpr std::uint32_t kInlined = std::uint32_t{1} << 31U;
    std::vector<std::vector<std::uint32_t>> inlined_frames_;
    std::unordered_map<std::string, std::uint32_t> interned_;
    FlatMap chain_numbers_;  // hash -> index into chains_
    std::vector<Chain> chains_;
    std::vector<std::uint64_t> unwound_;           // of the sample at hand
    std::deque<std::vector<std::uint64_t>> made_;  // chains that are not the file's own
    std::map<std::pair<std::uint64_t, std::int32_t>, std::uint64_t> group_counts_;  // of a counter, when last told
    std::map<std::string, std::uint64_t> counts_;
};

}  // namespace sampleblk::profile
