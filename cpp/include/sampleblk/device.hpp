// SPDX-License-Identifier: MIT
// The driver's control device. The structures are those of the ABI (linux/sampleblk.h, which says what each field
// means); what is wrong with one is said here in words, where the kernel has only EINVAL.
#pragma once

#include <linux/sampleblk.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "sampleblk/fd.hpp"
#include "sampleblk/histogram.hpp"

namespace sampleblk {

// "/dev/sampleblk3"
[[nodiscard]] std::string device_path(std::uint32_t index);

// Throws InputError naming the first field that no device can have.
void check_config(const sampleblk_config& config);

// A measured latency as bins for set_timing() with SAMPLEBLK_LATENCY_EMPIRICAL: a device that answers as slowly as the
// one that was measured. Throws InputError when nothing was measured.
[[nodiscard]] std::vector<sampleblk_bin> latency_bins(const LatencyStats& stats);

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

    // Of one operation (SAMPLEBLK_OP_*); empty until histograms are switched on with tune().
    [[nodiscard]] sampleblk_histogram histogram(std::uint32_t index, std::uint32_t op,
                                                std::uint32_t queue = SAMPLEBLK_QUEUE_ALL) const;

    // Counters and histograms begin again at zero.
    void reset(std::uint32_t index);

    // Gives it another capacity, while it is used. EBUSY with a journal, snapshots, and for a clone.
    void resize(std::uint32_t index, std::uint64_t capacity_bytes);

    // Changes what `tune.set` names, while I/O runs; returns how everything is now. ENOMEM when the kernel grants fewer
    // queues.
    sampleblk_tune tune(sampleblk_tune tune);

    // Sets the latency of the operations in `timing.ops`; `bins` are for SAMPLEBLK_LATENCY_EMPIRICAL.
    void set_timing(sampleblk_timing timing, const std::vector<sampleblk_bin>& bins = {});

    // Of one operation (SAMPLEBLK_OP_*), with the bins of SAMPLEBLK_LATENCY_EMPIRICAL; `bins` of the first is not set.
    [[nodiscard]] std::pair<sampleblk_timing, std::vector<sampleblk_bin>> timing(std::uint32_t index,
                                                                                 std::uint32_t op) const;

    void set_limits(const sampleblk_limits& limits);
    [[nodiscard]] sampleblk_limits limits(std::uint32_t index) const;

    // Replaces the whole table, and none takes all faults away; or adds to it, and what is there keeps its counts.
    void set_faults(std::uint32_t index, std::vector<sampleblk_rule> rules, std::uint64_t seed = 0, bool add = false);

    // The table with its counts.
    [[nodiscard]] std::vector<sampleblk_rule> faults(std::uint32_t index) const;

    // Cuts the power; returns what was lost. `survivors` are for SAMPLEBLK_CUT_EXPLICIT, by ascending id. EALREADY when
    // it is off.
    sampleblk_power power_cut(sampleblk_power power, const std::vector<sampleblk_survivor>& survivors = {});

    // EALREADY when it is on.
    void power_on(std::uint32_t index);

    // What a power cut could lose now, oldest first.
    [[nodiscard]] std::vector<sampleblk_volatile> volatile_writes(std::uint32_t index) const;

    // Writes that became durable without a flush, because the cache was full.
    [[nodiscard]] std::uint64_t written_back(std::uint32_t index) const;

    // Begins an empty journal of `bytes`. EBUSY when there is one.
    void journal_start(std::uint32_t index, std::uint64_t bytes);
    void journal_stop(std::uint32_t index);
    [[nodiscard]] sampleblk_journal journal(std::uint32_t index) const;

    // Its sequence. Throws EOVERFLOW when the journal is full or its position is in the past.
    std::uint64_t mark(std::uint32_t index, const std::string& text);

    // The number of entries undone or redone.
    std::uint64_t seek(std::uint32_t index, std::uint64_t sequence = SAMPLEBLK_SEEK_NEWEST, bool force = false);

    // Their ids, of now or of a sequence of the journal.
    std::uint32_t snapshot_take(std::uint32_t index);
    std::uint32_t snapshot_take_at(std::uint32_t index, std::uint64_t sequence);
    void snapshot_restore(std::uint32_t index, std::uint32_t id, bool force = false);
    void snapshot_delete(std::uint32_t index, std::uint32_t id);
    [[nodiscard]] std::vector<std::uint32_t> snapshots(std::uint32_t index) const;

    // A device that begins as the snapshot is; its index.
    std::uint32_t snapshot_clone(std::uint32_t index, std::uint32_t id, std::uint32_t clone = SAMPLEBLK_INDEX_ANY);

    // What a crash may have left: a snapshot, and over it what the journal has of `parts`, one after another. `target`
    // then holds it (see SAMPLEBLK_IOC_STATE for what it has to be) …
    void state_give(std::uint32_t index, std::uint32_t snapshot, const std::vector<sampleblk_part>& parts,
                    std::uint32_t target, bool force = false);
    // … or it is another snapshot, whose id this is.
    std::uint32_t state_take(std::uint32_t index, std::uint32_t snapshot, const std::vector<sampleblk_part>& parts);

    // For device_journal.hpp.
    [[nodiscard]] int fd() const noexcept { return fd_.get(); }

  private:
    // What an errno means; `code` 0: none.
    struct Meaning {
        int code = 0;
        std::string_view text;
    };
    void call(unsigned long request, void* argument, const char* name, const std::string& device,
              std::initializer_list<Meaning> meanings = {}) const;
    [[nodiscard]] sampleblk_snapshot snapshot(sampleblk_snapshot request) const;
    std::uint32_t state(sampleblk_state request, const std::vector<sampleblk_part>& parts);

    std::string path_;
    Fd fd_;
};

}  // namespace sampleblk
