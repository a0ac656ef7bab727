// SPDX-License-Identifier: MIT
#include "sampleblk/workload/keys.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_map>

#include "language/key_tables.hpp"
#include "language/setters.hpp"

namespace sampleblk::workload {

namespace {

// fio's keys that we know by name only, and why that is so.
struct Unsupported {
    std::string_view reason;
    std::string_view names;
    Support support = Support::refused;
    Effect effect = Effect::result;
};
constexpr Unsupported unsupported[] = {
    {"groups are numbered by new_group and stonewall", "group_id", Support::refused, Effect::report},
    {"fio's built-in profiles are not supported", "profile"},
    // fio takes them anywhere, and they do nothing unless profile= chooses theirs.
    {"it does nothing without fio's profile=",
     "threads block numruns dir device-names load prep threads-per-queue read-req-num-512-blocks large-block-op-kbytes "
     "test-duration",
     Support::accepted},
    {"jobs cannot be held back against one another", "flow flow_id flow_watermark flow_sleep"},
    {"fio dropped it", "rwmixcycle percentage_sequential verifysort verifysort_nr"},
    {"offsets come from xoshiro256++, whatever generator is named", "random_generator", Support::accepted},
    {"zoned devices are not supported",
     "zonecapacity read_beyond_wp max_open_zones job_max_open_zones ignore_zone_limits zone_reset_threshold "
     "zone_reset_frequency"},
    {"verified blocks are not trimmed", "trim_percentage trim_verify_zero trim_backlog trim_backlog_batch"},
    {"use continue_on_error", "ignore_error"},
    {"it concerns fio's network clients only", "unique_filename", Support::accepted},
    {"files are not locked between jobs", "lockfile"},
    {"files are always laid out one after another", "create_serialize", Support::accepted},
    {"O_ATOMIC never came to Linux", "atomic"},
    {"Linux has had no write barriers since 2.6.37", "write_barrier barrier", Support::accepted},
    {"logs are read whole", "read_iolog_chunked", Support::accepted},
    {"use io_log_entries, whose table can be replayed", "write_iolog", Support::refused, Effect::report},
    {"traces are not merged", "merge_blktrace_file merge_blktrace_scalars merge_blktrace_iters"},
    {"no released kernel had RWF_UNCACHED when fio 3.33 came out", "uncached"},
    {"single I/Os have no priorities", "cmdprio_percentage cmdprio_class cmdprio cmdprio_bssplit"},
    {"passthrough commands are not supported", "cmd_type"},
    {"engine mmap does not ask for huge pages", "thp"},
    {"no thread is needed to tell the time", "gtod_cpu", Support::accepted, Effect::report},
    {"use cpus_allowed", "numa_cpu_nodes"},
    {"memory policies are not supported", "numa_mem_policy"},
    {"only dedupe_mode=repeat is supported", "dedupe_working_set_percentage dedupe_global"},
    {"the job itself checks its blocks", "verify_async verify_async_cpus", Support::accepted},
    {"what was written is remembered, not generated again", "experimental_verify", Support::accepted},
    {"no state file is needed", "verify_state_save", Support::accepted, Effect::report},
    {"fio's state files are not read", "verify_state_load"},
    {"errors are always reported", "error_dump", Support::accepted, Effect::report},
    {"the clock is CLOCK_REALTIME", "log_alternate_epoch_clock_id", Support::accepted, Effect::report},
    {"single I/Os have no priorities", "log_prio", Support::accepted, Effect::report},
    {"logs grow as needed", "log_entries", Support::accepted, Effect::report},
    {"logs are kept as columns", "log_compression log_compression_cpus", Support::accepted, Effect::report},
    {"log files are plain text", "log_store_compressed", Support::refused, Effect::report},
    {"the lifetimes of blocks are not measured", "block_error_percentiles", Support::refused, Effect::report},
    {"this is Linux", "no_completion_thread"},
    {"engine rados is not supported", "busy_poll clustername touch_objects conf"},
    {"engine nfs is not supported", "nfs_url"},
    {"engine xnvme is not supported",
     "xnvme_async xnvme_sync xnvme_admin xnvme_mem xnvme_dev_nsid xnvme_dev_subnqn xnvme_iovec"},
    {"engine net is not supported",
     "hostname port listen interface nodelay protocol proto pingpong ttl window_size mss"},
    {"engine rdma is not supported", "bindname verb"},
    {"engines rpma are not supported", "serverip direct_write_to_pmem busy_wait_polling"},
    {"engine rbd is not supported", "rbdname pool clientname"},
    {"engine gfapi is not supported", "volume brick single-instance"},
    {"engine libhdfs is not supported", "namenode hdfsdirectory chunk_size hdfs_use_direct"},
    {"engine http is not supported",
     "http_host http_user http_pass https http_mode http_s3_region http_s3_key http_s3_keyid http_s3_sse_customer_key "
     "http_s3_sse_customer_algorithm http_s3_storage_class http_swift_auth_token http_verbose"},
    {"engine nbd is not supported", "uri"},
    {"engine cpuio is not supported", "cpuload cpuchunks cpumode exit_on_io_done"},
    {"engine e4defrag is not supported", "donorname inplace"},
    {"engine exec is not supported", "program arguments grace_time std_redirect"},
    {"engine mtd is not supported", "skip_bad"},
    {"engine filestat is not supported", "stat_type"},
    {"engine sg is not supported", "readfua writefua sg_write_mode stream_id"},
    {"engine libblkio is not supported", "libblkio_driver libblkio_path"},
    {"engine libcufile is not supported", "gpu_dev_ids gpu_dev_id cuda_io"},
    {"engine dfs is not supported", "dfs cont object_class svc"},
    {"it is newer than fio 3.33",
     "apptag apptag_mask cdb_len cmdprio_hint data_placement dataplacement deac dp_scheme end_syncfs fdp fdp_pli "
     "fdp_pli_select filetype http_object_mode http_s3_security_token job_start_clock_id libaio_vectored "
     "libblkio_force_enable_completion_eventfd libblkio_num_entries libblkio_pre_connect_props "
     "libblkio_pre_start_props libblkio_queue_size libblkio_vectored libblkio_wait_mode "
     "libblkio_write_zeroes_on_trim log_issue_time log_window_value md_per_io_size num_range page_fault pi_act pi_chk "
     "plid_select plids priohint ramp_size random_sequence_stride rbd_encryption_format rbd_encryption_passphrase "
     "read_mode recover_zbd_write_error rocm_io spr_cs spr_num_regions spr_op sprandom ss_interval "
     "steadystate_check_interval thinkcycles verify_bytchk verify_mode verify_pattern_interval verify_policy "
     "write_mode write_zone_remainder"},
};

std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
        }
    }
    return row.back();
}

template <typename Visit>
void each_name(const Key& key, Visit visit) {
    visit(key.name);
    if (!key.alias.empty()) {
        for (const std::string_view alias : split(key.alias, ' ')) {
            visit(alias);
        }
    }
}

}  // namespace

const std::vector<Key>& all_keys() {
    static const std::vector<Key> keys = [] {
        std::vector<Key> all;
        for (const auto part :
             {job_keys(), pattern_keys(), file_keys(), engine_keys(), data_keys(), pacing_keys(), report_keys()}) {
            all.insert(all.end(), part.begin(), part.end());
        }
        for (const Unsupported& group : unsupported) {
            for (const std::string_view name : split(group.names, ' ')) {
                all.push_back({name, "", "", "", group.effect, group.support, group.reason, nullptr});
            }
        }
        return all;
    }();
    return keys;
}

const Key* find_key(std::string_view name) {
    static const std::unordered_map<std::string_view, const Key*> by_name = [] {
        std::unordered_map<std::string_view, const Key*> map;
        for (const Key& key : all_keys()) {
            each_name(key, [&](std::string_view one) { map.emplace(one, &key); });
        }
        return map;
    }();
    const auto found = by_name.find(name);
    return found == by_name.end() ? nullptr : found->second;
}

std::string_view nearest_key(std::string_view name) {
    std::string_view best;
    auto least = static_cast<std::size_t>(-1);
    for (const Key& key : all_keys()) {
        each_name(key, [&](std::string_view known) {
            const std::size_t distance = edit_distance(name, known);
            if (distance < least) {
                least = distance;
                best = known;
            }
        });
    }
    return best;
}

namespace setters {

std::size_t pick(std::string_view words, std::string_view text) {
    text = trim(text);
    std::string expected;
    std::size_t index = 0;
    for (const std::string_view word : split(words, ' ')) {
        const bool supported = !word.starts_with('!');
        for (const std::string_view spelling : split(supported ? word : word.substr(1), '|')) {
            if (spelling != text) {
                continue;
            }
            if (supported) {
                return index;
            }
            throw InputError("fio's '" + std::string(text) + "' is not supported, and nothing else does the same", {},
                             0, expected);
        }
        if (supported) {
            expected += (expected.empty() ? "" : ", ") + std::string(word.substr(0, word.find('|')));
        }
        ++index;
    }
    throw InputError("'" + std::string(text) + "' is not known", {}, 0, expected);
}

std::string_view word_of(std::string_view words, std::size_t index) {
    const std::string_view word = split(words, ' ').at(index);
    return word.substr(0, word.find('|'));
}

std::uint64_t parse_bounded(std::string_view text, KbBase base, std::uint64_t least, std::uint64_t most) {
    const std::uint64_t value = parse_unsigned(text, base);
    if (value < least || value > most) {
        out_of_range(text, most == UINT64_MAX ? "at least " + std::to_string(least)
                                              : std::to_string(least) + " to " + std::to_string(most));
    }
    return value;
}

}  // namespace setters

}  // namespace sampleblk::workload
