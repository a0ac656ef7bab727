// SPDX-License-Identifier: MIT
// Keys that belong to fio's engines for networks, clusters, special devices and file operations.
#include "key_tables.hpp"

namespace sampleblk::workload {

namespace {

constexpr Key other(std::string_view name, std::string_view why) {
    return {name, "", "", "", Effect::result, Support::refused, why, nullptr};
}

// Options of fio's built-in profiles. fio takes them anywhere, and they do nothing unless profile= chooses theirs,
// which we refuse.
constexpr Key of_profile(std::string_view name) {
    return {name, "", "", "", Effect::result, Support::accepted, "it does nothing without fio's profile=", nullptr};
}

constexpr Key table[] = {
    of_profile("threads"),
    of_profile("block"),
    of_profile("numruns"),
    of_profile("dir"),
    of_profile("device-names"),
    of_profile("load"),
    of_profile("prep"),
    of_profile("threads-per-queue"),
    of_profile("read-req-num-512-blocks"),
    of_profile("large-block-op-kbytes"),
    of_profile("test-duration"),
    other("busy_poll", "engine rados is not there"),
    other("nfs_url", "engine nfs is not there"),
    other("xnvme_async", "engine xnvme is not there"),
    other("xnvme_sync", "engine xnvme is not there"),
    other("xnvme_admin", "engine xnvme is not there"),
    other("xnvme_mem", "engine xnvme is not there"),
    other("xnvme_dev_nsid", "engine xnvme is not there"),
    other("xnvme_dev_subnqn", "engine xnvme is not there"),
    other("xnvme_iovec", "engine xnvme is not there"),
    other("hostname", "engine net is not there"),
    other("port", "engine net is not there"),
    other("listen", "engine net is not there"),
    other("interface", "engine net is not there"),
    other("nodelay", "engine net is not there"),
    other("protocol", "engine net is not there"),
    other("proto", "engine net is not there"),
    other("pingpong", "engine net is not there"),
    other("ttl", "engine net is not there"),
    other("window_size", "engine net is not there"),
    other("mss", "engine net is not there"),
    other("bindname", "engine rdma is not there"),
    other("verb", "engine rdma is not there"),
    other("serverip", "engines rpma are not there"),
    other("direct_write_to_pmem", "engines rpma are not there"),
    other("busy_wait_polling", "engines rpma are not there"),
    other("clustername", "engine rados is not there"),
    other("rbdname", "engine rbd is not there"),
    other("pool", "engine rbd is not there"),
    other("clientname", "engine rbd is not there"),
    other("touch_objects", "engine rados is not there"),
    other("conf", "engine rados is not there"),
    other("volume", "engine gfapi is not there"),
    other("brick", "engine gfapi is not there"),
    other("single-instance", "engine gfapi is not there"),
    other("namenode", "engine libhdfs is not there"),
    other("hdfsdirectory", "engine libhdfs is not there"),
    other("chunk_size", "engine libhdfs is not there"),
    other("hdfs_use_direct", "engine libhdfs is not there"),
    other("http_host", "engine http is not there"),
    other("http_user", "engine http is not there"),
    other("http_pass", "engine http is not there"),
    other("https", "engine http is not there"),
    other("http_mode", "engine http is not there"),
    other("http_s3_region", "engine http is not there"),
    other("http_s3_key", "engine http is not there"),
    other("http_s3_keyid", "engine http is not there"),
    other("http_s3_sse_customer_key", "engine http is not there"),
    other("http_s3_sse_customer_algorithm", "engine http is not there"),
    other("http_s3_storage_class", "engine http is not there"),
    other("http_swift_auth_token", "engine http is not there"),
    other("http_verbose", "engine http is not there"),
    other("uri", "engine nbd is not there"),
    other("cpuload", "engine cpuio is not there"),
    other("cpuchunks", "engine cpuio is not there"),
    other("cpumode", "engine cpuio is not there"),
    other("exit_on_io_done", "engine cpuio is not there"),
    other("donorname", "engine e4defrag is not there"),
    other("inplace", "engine e4defrag is not there"),
    other("program", "engine exec is not there"),
    other("arguments", "engine exec is not there"),
    other("grace_time", "engine exec is not there"),
    other("std_redirect", "engine exec is not there"),
    other("skip_bad", "engine mtd is not there"),
    other("stat_type", "engine filestat is not there"),
    other("readfua", "engine sg is not there"),
    other("writefua", "engine sg is not there"),
    other("sg_write_mode", "engine sg is not there"),
    other("stream_id", "engine sg is not there"),
    other("libblkio_driver", "engine libblkio is not there"),
    other("libblkio_path", "engine libblkio is not there"),
    other("gpu_dev_ids", "engine libcufile is not there"),
    other("gpu_dev_id", "engine libcufile is not there"),
    other("cuda_io", "engine libcufile is not there"),
    other("dfs", "engine dfs is not there"),
    other("cont", "engine dfs is not there"),
    other("object_class", "engine dfs is not there"),
    other("svc", "engine dfs is not there"),
    other("percentage_sequential", "fio dropped it"),
    other("verifysort", "fio dropped it"),
    other("verifysort_nr", "fio dropped it"),
    other("no_completion_thread", "this is Linux"),
};

}  // namespace

std::span<const Key> unsupported_keys() {
    return table;
}

}  // namespace sampleblk::workload
