// SPDX-License-Identifier: MIT
#include <sched.h>

#include "language/key_tables.hpp"
#include "language/setters.hpp"

namespace sampleblk::workload {

namespace {

using namespace setters;

constexpr char exit_words[] = "group stonewall all";
constexpr char cpu_policies[] = "shared split";

// "0,2-4": a list of CPUs and ranges of them.
void set_cpus_allowed(JobOptions& options, std::string_view text) {
    options.cpus_allowed.clear();
    for (std::string_view part : split(text, ',')) {
        // fio takes a colon for the comma too.
        for (const std::string_view one : split(part, ':')) {
            const Range range = parse_range(one, KbBase::binary);
            if (range.upper >= CPU_SETSIZE) {
                throw InputError("CPU " + std::to_string(range.upper) + " is out of range", {}, 0,
                                 "0 to " + std::to_string(CPU_SETSIZE - 1));
            }
            for (std::uint64_t cpu = range.lower; cpu <= range.upper; ++cpu) {
                options.cpus_allowed.push_back(static_cast<int>(cpu));
            }
        }
    }
}

void set_cpumask(JobOptions& options, std::string_view text) {
    const std::uint64_t mask = parse_unsigned(text);
    options.cpus_allowed.clear();
    for (int cpu = 0; cpu < 63; ++cpu) {
        if ((mask >> cpu & 1) != 0) {
            options.cpus_allowed.push_back(cpu);
        }
    }
}

void set_prio(JobOptions& options, std::string_view text) {
    signed_number<&JobOptions::prio, 0, 7>(options, text);
    options.prio_given = true;
}

void set_prio_class(JobOptions& options, std::string_view text) {
    signed_number<&JobOptions::prio_class, 0, 3>(options, text);
    options.prio_given = true;
}

constexpr Key table[] = {
    report_key("name", "str", "", "the job's name", text_value<&JobOptions::name>),
    report_key("description", "str", "", "shown in the report", text_value<&JobOptions::description>),
    key("numjobs", "int", "1", "copies of this job", number<&JobOptions::numjobs, 1, 65536>),
    key("thread", "bool", "0", "jobs are threads of one process", flag<&JobOptions::thread>),
    report_key("group_reporting", "bool", "0", "one report for each group", flag<&JobOptions::group_reporting>),
    report_key("new_group", "bool", "0", "start a new reporting group", flag<&JobOptions::new_group>),
    key("stonewall wait_for_previous", "bool", "0", "start when all jobs before have ended",
        flag<&JobOptions::stonewall>),
    key("wait_for", "str", "", "start when the named job has ended", text_value<&JobOptions::wait_for>),
    key("exitall", "bool", "0", "the first job to end ends the others", flag<&JobOptions::exitall>),
    key("exitall_on_error", "bool", "0", "a job that fails ends the others", flag<&JobOptions::exitall_on_error>),
    key("exit_what", "group|stonewall|all", "group", "which others exitall ends",
        choice<&JobOptions::exit_what, exit_words>),
    key("cpus_allowed", "list", "", "CPUs that the job may run on", set_cpus_allowed),
    key("cpumask", "int", "", "the same as a bit mask", set_cpumask),
    key("cpus_allowed_policy", "shared|split", "shared", "whether jobs share the CPUs or get one each",
        choice<&JobOptions::cpus_policy, cpu_policies>),
    key("nice", "int", "0", "nice value", signed_number<&JobOptions::nice, -20, 19>),
    key("prio", "int", "", "I/O priority level", set_prio),
    key("prioclass", "int", "", "I/O priority class; of a prio alone: 2, best effort", set_prio_class),
    key("lockmem", "size", "0", "memory to lock, so that less is left for the cache",
        number<&JobOptions::lockmem_bytes>),
    key("uid", "int", "", "run as this user", signed_number<&JobOptions::uid, 0, INT32_MAX>),
    key("gid", "int", "", "run as this group", signed_number<&JobOptions::gid, 0, INT32_MAX>),
    key("cgroup", "str", "", "run in this cgroup", text_value<&JobOptions::cgroup>),
    key("cgroup_weight", "int", "", "I/O weight of the cgroup", number<&JobOptions::cgroup_weight, 1, 10000>),
    report_key("cgroup_nodelete", "bool", "0", "leave the cgroup there", flag<&JobOptions::cgroup_nodelete>),
    key("ioscheduler", "str", "", "I/O scheduler of the device, put back afterwards",
        text_value<&JobOptions::ioscheduler>),
    key("exec_prerun", "str", "", "shell command before the job", text_value<&JobOptions::exec_prerun>),
    key("exec_postrun", "str", "", "shell command after the job", text_value<&JobOptions::exec_postrun>),
};

}  // namespace

std::span<const Key> job_keys() {
    return table;
}

}  // namespace sampleblk::workload
