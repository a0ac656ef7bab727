// SPDX-License-Identifier: MIT
#include <sched.h>

#include <array>
#include <cstdint>

#include "key_setters.hpp"
#include "key_tables.hpp"

namespace sampleblk::workload {

namespace {

using namespace setters;

constexpr std::array<Word<ExitWhat>, 3> exit_words = {
    {{"group", ExitWhat::group}, {"stonewall", ExitWhat::stonewall}, {"all", ExitWhat::all}}};
constexpr std::array<Word<CpuPolicy>, 2> cpu_policies = {{{"shared", CpuPolicy::shared}, {"split", CpuPolicy::split}}};

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

void set_new_group(JobOptions& options, std::string_view text) {
    options.new_group = parse_bool(text);
}

constexpr Key table[] = {
    {"name", "", "str", "", Effect::report, Support::full, "the job's name", text_value<&JobOptions::name>},
    {"description", "", "str", "", Effect::report, Support::full, "shown in the report",
     text_value<&JobOptions::description>},
    {"numjobs", "", "int", "1", Effect::result, Support::full, "copies of this job",
     number<&JobOptions::numjobs, 1, 65536>},
    {"thread", "", "bool", "0", Effect::result, Support::full, "jobs are threads of one process",
     flag<&JobOptions::thread>},
    {"group_reporting", "", "bool", "0", Effect::report, Support::full, "one report for each group",
     flag<&JobOptions::group_reporting>},
    {"new_group", "", "bool", "0", Effect::report, Support::full, "start a new reporting group", set_new_group},
    {"stonewall", "wait_for_previous", "bool", "0", Effect::result, Support::full,
     "start when all jobs before have ended", flag<&JobOptions::stonewall>},
    {"wait_for", "", "str", "", Effect::result, Support::full, "start when the named job has ended",
     text_value<&JobOptions::wait_for>},
    {"exitall", "", "bool", "0", Effect::result, Support::full, "the first job to end ends the others",
     flag<&JobOptions::exitall>},
    {"exitall_on_error", "", "bool", "0", Effect::result, Support::full, "a job that fails ends the others",
     flag<&JobOptions::exitall_on_error>},
    {"exit_what", "", "group|stonewall|all", "group", Effect::result, Support::full, "which others exitall ends",
     choice<&JobOptions::exit_what, exit_words>},
    {"cpus_allowed", "", "list", "", Effect::result, Support::full, "CPUs that the job may run on", set_cpus_allowed},
    {"cpumask", "", "int", "", Effect::result, Support::full, "the same as a bit mask", set_cpumask},
    {"cpus_allowed_policy", "", "shared|split", "shared", Effect::result, Support::full,
     "whether jobs share the CPUs or get one each", choice<&JobOptions::cpus_policy, cpu_policies>},
    {"nice", "", "int", "0", Effect::result, Support::full, "nice value", signed_number<&JobOptions::nice, -20, 19>},
    {"prio", "", "int", "", Effect::result, Support::full, "I/O priority level", set_prio},
    {"prioclass", "", "int", "", Effect::result, Support::full, "I/O priority class", set_prio_class},
    {"lockmem", "", "size", "0", Effect::result, Support::full, "memory to lock, so that less is left for the cache",
     number<&JobOptions::lockmem_bytes>},
    {"uid", "", "int", "", Effect::result, Support::full, "run as this user",
     signed_number<&JobOptions::uid, 0, INT32_MAX>},
    {"gid", "", "int", "", Effect::result, Support::full, "run as this group",
     signed_number<&JobOptions::gid, 0, INT32_MAX>},
    {"cgroup", "", "str", "", Effect::result, Support::full, "run in this cgroup", text_value<&JobOptions::cgroup>},
    {"cgroup_weight", "", "int", "", Effect::result, Support::full, "I/O weight of the cgroup",
     number<&JobOptions::cgroup_weight, 1, 10000>},
    {"cgroup_nodelete", "", "bool", "0", Effect::report, Support::full, "leave the cgroup there",
     flag<&JobOptions::cgroup_nodelete>},
    {"ioscheduler", "", "str", "", Effect::result, Support::full, "I/O scheduler of the device, put back afterwards",
     text_value<&JobOptions::ioscheduler>},
    {"exec_prerun", "", "str", "", Effect::result, Support::full, "shell command before the job",
     text_value<&JobOptions::exec_prerun>},
    {"exec_postrun", "", "str", "", Effect::result, Support::full, "shell command after the job",
     text_value<&JobOptions::exec_postrun>},
    {"group_id", "", "int", "", Effect::report, Support::refused, "groups are numbered by new_group and stonewall",
     nullptr},
    {"profile", "", "str", "", Effect::result, Support::refused, "built-in profiles are not there", nullptr},
    {"flow", "", "int", "0", Effect::result, Support::refused, "jobs cannot be held back against one another", nullptr},
    {"flow_id", "", "int", "0", Effect::result, Support::refused, "see flow", nullptr},
    {"flow_watermark", "", "int", "0", Effect::result, Support::refused, "see flow", nullptr},
    {"flow_sleep", "", "time", "0", Effect::result, Support::refused, "see flow", nullptr},
};

}  // namespace

std::span<const Key> job_keys() {
    return table;
}

}  // namespace sampleblk::workload
