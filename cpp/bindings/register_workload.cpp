// SPDX-License-Identifier: MIT
// Jobs, their runs and results.
#include <pybind11/stl.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bindings.hpp"
#include "sampleblk/text.hpp"
#include "sampleblk/workload/job_file.hpp"
#include "sampleblk/workload/job_run.hpp"
#include "sampleblk/workload/keys.hpp"
#include "sampleblk/workload/report.hpp"
#include "sampleblk/workload/result_tables.hpp"
#include "sampleblk/workload/tsc.hpp"

namespace sampleblk::bindings {

namespace {

using namespace workload;

using Released = py::call_guard<py::gil_scoped_release>;

// A run may have to wait for its jobs when it is deleted.
struct DeleteReleased {
    void operator()(JobRun* run) const {
        const py::gil_scoped_release released;
        delete run;
    }
};

// Job files hold bytes that Python would refuse.
std::vector<Setting> printable_settings(const std::vector<Setting>& settings) {
    std::vector<Setting> out;
    out.reserve(settings.size());
    for (const auto& [key, value] : settings) {
        out.emplace_back(printable(key), printable(value));
    }
    return out;
}

std::vector<std::string> printable_lines(const std::vector<std::string>& lines) {
    std::vector<std::string> out;
    out.reserve(lines.size());
    for (const std::string& line : lines) {
        out.push_back(printable(line));
    }
    return out;
}

py::dict job_dict(const JobOptions& job) {
    py::dict out;
    out["name"] = printable(job.name);
    out["job_number"] = job.job_number;
    out["subjob_number"] = job.subjob_number;
    out["group_id"] = job.group_id;
    out["settings"] = printable_settings(job.given);
    out["globals"] = job.globals;
    out["direct"] = job.direct;
    out["places"] = py::none();
    if (const auto places = places_of(job)) {
        py::list paths;
        for (const std::string& path : *places) {
            paths.append(py::reinterpret_steal<py::object>(
                PyUnicode_DecodeFSDefaultAndSize(path.data(), static_cast<py::ssize_t>(path.size()))));
        }
        out["places"] = paths;
    }
    return out;
}

py::list notices_of(const std::vector<Notice>& notices) {
    py::list out;
    for (const Notice& notice : notices) {
        out.append(
            py::make_tuple(printable(notice.source), notice.line, printable(notice.key), printable(notice.text)));
    }
    return out;
}

py::list key_rows() {
    py::list out;
    for (const Key& key : all_keys()) {
        const char* support = key.support == Support::full       ? "full"
                              : key.support == Support::accepted ? "accepted"
                                                                 : "refused";
        const char* effect = key.effect == Effect::result ? "result" : "report";
        out.append(py::make_tuple(std::string(key.name), std::string(key.alias), std::string(key.form),
                                  std::string(key.default_text), effect, support, std::string(key.help)));
    }
    return out;
}

}  // namespace

void register_workload(py::module_& module) {
    py::class_<JobSet>(module, "JobSet")
        .def_static("read", &read_job_file, py::arg("path"), py::arg("overrides") = std::vector<Setting>{}, Released())
        .def_static("parse", &parse_job_text, py::arg("text"), py::arg("source"),
                    py::arg("overrides") = std::vector<Setting>{})
        .def_static("parse_command_line", &parse_command_line, py::arg("arguments"),
                    py::arg("overrides") = std::vector<Setting>{})
        .def_static("make", &make_job, py::arg("settings"))
        .def_static(
            "replay",
            [](const Table& table, bool requests, const std::vector<Setting>& settings) {
                JobSet set = make_job(settings);
                const auto log =
                    std::make_shared<const ReplayLog>(requests ? replay_of_requests(table) : replay_of_syscalls(table));
                for (JobOptions& job : set.jobs) {
                    job.replay = log;
                }
                return set;
            },
            py::arg("table"), py::arg("requests"), py::arg("settings"), Released())
        .def_property_readonly("source", [](const JobSet& self) { return printable(self.source); })
        .def_property_readonly("globals", [](const JobSet& self) { return printable_settings(self.globals); })
        .def_property_readonly("jobs",
                               [](const JobSet& self) {
                                   py::list out;
                                   for (const JobOptions& job : self.jobs) {
                                       out.append(job_dict(job));
                                   }
                                   return out;
                               })
        .def_property_readonly("notices", [](const JobSet& self) { return notices_of(self.notices); })
        .def("write", &write_job_file);

    py::class_<RunProgress>(module, "RunProgress")
        .def_readonly("fraction", &RunProgress::fraction)
        .def_readonly("elapsed_s", &RunProgress::elapsed_s)
        .def_readonly("eta_s", &RunProgress::eta_s)
        .def_readonly("done_bytes", &RunProgress::done_bytes)
        .def_readonly("done_ios", &RunProgress::done_ios)
        .def_readonly("bytes_per_s", &RunProgress::bytes_per_s)
        .def_readonly("ios_per_s", &RunProgress::ios_per_s)
        .def_readonly("running", &RunProgress::running)
        .def_readonly("finished", &RunProgress::finished)
        .def_readonly("jobs", &RunProgress::jobs);

    py::class_<RunResult, std::shared_ptr<RunResult>>(module, "RunResult")
        .def("text", &text_report, Released())
        .def("json", &json_report, py::arg("bins"), Released())
        .def("summary", &summary_table, Released())
        .def("series", &series_table, Released())
        .def("histogram", &histogram_table, Released())
        .def("heat", &heat_table, Released())
        .def("io_log", &io_log_table, Released())
        .def_static(
            "merge",
            [](const std::vector<std::shared_ptr<RunResult>>& runs) {
                return std::make_shared<RunResult>(RunResult::joined(runs));
            },
            py::arg("runs"), Released())
        .def(
            "total", [](const RunResult& self) { return std::make_shared<RunResult>(self.total()); }, Released())
        .def_readonly("stop_reason", &RunResult::stop_reason)
        .def_property_readonly("messages", [](const RunResult& self) { return printable_lines(self.messages); })
        .def_property_readonly("pids",
                               [](const RunResult& self) {
                                   std::vector<std::int32_t> pids;
                                   for (const auto& job : self.jobs) {
                                       pids.push_back(job->pid);
                                   }
                                   return pids;
                               })
        .def_property_readonly("notices", [](const RunResult& self) { return notices_of(self.notices); })
        .def_property_readonly("errors", [](const RunResult& self) {
            py::list out;
            for (const auto& job : self.jobs) {
                if (job->error != 0) {
                    out.append(py::make_tuple(printable(job->options.name), job->error, job->error_text));
                }
            }
            return out;
        });

    py::class_<JobRun, std::unique_ptr<JobRun, DeleteReleased>>(module, "JobRun")
        .def(py::init([](JobSet set) {
                 const py::gil_scoped_release released;
                 return std::unique_ptr<JobRun, DeleteReleased>(new JobRun(std::move(set)));
             }),
             py::arg("jobs"))
        .def_property_readonly("pids", &JobRun::pids)
        .def_property_readonly("thread_ids", &JobRun::thread_ids)
        .def_property_readonly("messages", [](const JobRun& self) { return printable_lines(self.messages()); })
        .def("start", &JobRun::start, Released())
        .def("wait", &JobRun::wait, py::arg("timeout_ns"), Released())
        .def("stop", &JobRun::stop, py::arg("reason"), Released())
        .def("progress", &JobRun::progress, Released())
        .def(
            "result", [](const JobRun& self) { return std::make_shared<RunResult>(self.result()); }, Released())
        .def("close", &JobRun::close, Released());

    module.def("tsc_khz", &tsc_khz, Released());
    module.def("job_keys", &key_rows);
    module.attr("MOST_DRIFT_PPM") = kMostDriftPpm;
}

}  // namespace sampleblk::bindings
