// SPDX-License-Identifier: MIT
#include "sampleblk/profile/profile.hpp"

#include <algorithm>
#include <charconv>
#include <set>
#include <stdexcept>
#include <unordered_set>
#include <utility>

#include "sampleblk/error.hpp"
#include "sampleblk/interrupt.hpp"
#include "views/profile_builder.hpp"

namespace sampleblk::profile {

Profile::Profile(std::shared_ptr<const PerfFile> file, const SymbolSources& sources) : file_(std::move(file)) {
    ProfileBuilder(*this, sources).build();
    file_->check_length();
    if (size() != 0) {
        default_samples_ = select({});
    }
}

std::size_t Profile::event_number(const std::optional<std::string>& name) const {
    const auto& events = file_->events();
    if (events.empty()) {
        throw FormatError(file_->path(), 0, "the description of at least one event");
    }
    if (!name) {
        for (std::size_t i = 0; i < events.size(); ++i) {
            const perf_event_attr& attr = events[i].attr;
            const bool dummy = attr.type == PERF_TYPE_SOFTWARE && attr.config == PERF_COUNT_SW_DUMMY;
            if (attr.type != PERF_TYPE_TRACEPOINT && !dummy) {
                return i;
            }
        }
        return 0;
    }
    // "cpu-clock" is also what perf calls "cpu-clock:ppp", where there is no event of the name itself.
    for (const bool exact : {true, false}) {
        std::vector<std::size_t> found;
        for (std::size_t i = 0; i < events.size(); ++i) {
            if (exact ? events[i].name == *name : events[i].name.starts_with(*name + ":p")) {
                found.push_back(i);
            }
        }
        if (found.size() == 1) {
            return found.front();
        }
        if (found.size() > 1) {
            throw InputError(std::to_string(found.size()) + " events are named " + *name + " in " + file_->path(),
                             "event", 0, "a name that only one event has");
        }
    }
    std::string known;
    for (const Event& event : events) {
        known += (known.empty() ? "" : ", ") + event.name;
    }
    throw InputError("no event " + *name + " in " + file_->path(), "event", 0, "one of " + known);
}

std::vector<std::int32_t> Profile::with_children(std::vector<std::int32_t> pids, bool children) const {
    if (!children || pids.empty()) {
        return pids;
    }
    std::set<std::int32_t> all(pids.begin(), pids.end());
    for (const auto& [pid, parent] : parents_) {
        (void)parent;
        // Up from each process, for as long as there is a way and no circle (pids are used again).
        std::int32_t at = pid;
        for (int steps = 0; steps < 64; ++steps) {
            if (all.contains(at)) {
                all.insert(pid);
                break;
            }
            const auto up = parents_.find(at);
            if (up == parents_.end() || up->second == at) {
                break;
            }
            at = up->second;
        }
    }
    return {all.begin(), all.end()};
}

std::vector<std::uint32_t> Profile::select(const SampleSelection& selection) const {
    const std::size_t event = event_number(selection.event);
    const auto pids = with_children(selection.pids, selection.children);
    const std::unordered_set<std::int32_t> wanted(pids.begin(), pids.end());
    std::int32_t comm = -1;
    if (selection.comm) {
        comm = names_->find(*selection.comm).value_or(-2);
    }
    std::vector<std::uint32_t> out;
    for (std::size_t i = 0; i < size(); ++i) {
        if (i % 1048576 == 0) {
            check_interrupt();
        }
        const bool taken =
            event_[i] == event && time_ns_[i] >= selection.from && time_ns_[i] < selection.to &&
            (wanted.empty() || wanted.contains(pid_[i])) && (comm == -1 || comm_[i] == comm) &&
            (selection.idle || tid_[i] != 0) &&
            (selection.cpus.empty() || std::ranges::find(selection.cpus, cpu_[i]) != selection.cpus.end());
        if (taken) {
            out.push_back(static_cast<std::uint32_t>(i));
        }
    }
    return out;
}

std::vector<std::string> Profile::stack(std::size_t sample) const {
    if (sample >= default_samples_.size()) {
        throw std::out_of_range("no sample " + std::to_string(sample) + ": there are " +
                                std::to_string(default_samples_.size()) + ", from 0 on");
    }
    std::vector<std::string> out;
    for (std::uint32_t node = leaf_[default_samples_[sample]]; node != 0; node = stacks_[node].parent) {
        out.push_back(names_->at(frames_[stacks_[node].frame].name));
    }
    std::ranges::reverse(out);
    return out;
}

Table Profile::table(const SampleSelection& selection) const {
    const auto rows = select(selection);
    const auto pick = [&rows](const auto& column) {
        std::remove_cvref_t<decltype(column)> out;
        out.reserve(rows.size());
        for (const std::uint32_t row : rows) {
            out.push_back(column[row]);
        }
        return out;
    };
    std::vector<std::int32_t> frame;
    std::vector<std::int32_t> module;
    frame.reserve(rows.size());
    module.reserve(rows.size());
    for (const std::uint32_t row : rows) {
        const std::uint32_t leaf = leaf_[row];
        frame.push_back(leaf == 0 ? -1 : frames_[stacks_[leaf].frame].name);
        module.push_back(leaf == 0 ? -1 : frames_[stacks_[leaf].frame].module);
    }
    std::vector<Column> columns;
    columns.emplace_back("time", pick(time_ns_), "ns");
    columns.emplace_back("cpu", pick(cpu_));
    columns.emplace_back("pid", pick(pid_));
    columns.emplace_back("tid", pick(tid_));
    columns.emplace_back("comm", pick(comm_), names_);
    columns.emplace_back("period", pick(period_));
    columns.emplace_back("symbol", std::move(frame), names_);
    columns.emplace_back("module", std::move(module), names_);
    columns.emplace_back("stack", pick(leaf_));
    return Table(std::move(columns), metadata_);
}

}  // namespace sampleblk::profile
