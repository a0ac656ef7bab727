// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <string>
#include <tuple>
#include <vector>

#include "answers.hpp"
#include "fuzz_trace.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/trace/block.hpp"
#include "sampleblk/trace/decode.hpp"
#include "sampleblk/trace/graph.hpp"
#include "sampleblk/trace/syscalls.hpp"
#include "sampleblk/trace/timeline.hpp"
#include "sampleblk/trace/writer.hpp"
#include "scratch.hpp"

namespace sampleblk::fuzz {

namespace {

// Gives `use` the file, if it can be opened, read strictly and skipping damage.
void read_both_ways(const std::uint8_t* data, std::size_t size,
                    const std::function<void(const trace::TraceFile&)>& use) {
    for (const auto how : {trace::OnError::strict, trace::OnError::skip}) {
        std::unique_ptr<const trace::TraceFile> file;
        if (answers([&] { file = std::make_unique<trace::TraceFile>(copy_of(data, size), "fuzz", how); })) {
            use(*file);
        }
    }
}

using Occurrence = std::tuple<std::string, std::string, std::uint64_t, std::uint64_t, std::uint64_t>;

// What occurs how often, from when to when; empty where the file is refused.
bool occurrences(const trace::TraceFile& file, std::vector<Occurrence>& out) {
    return answers([&] {
        const Table counts = trace::count_events(file, {});
        const auto text = [&](const char* name, std::size_t row) -> std::string {
            const Column* column = counts.find(name);
            return column == nullptr ? std::string() : column->pool()->at(column->values<std::int32_t>()[row]);
        };
        const auto number = [&](const char* name, std::size_t row) {
            return counts.find(name)->values<std::uint64_t>()[row];
        };
        for (std::size_t row = 0; row < counts.rows(); ++row) {
            out.emplace_back(text("buffer", row), text("event", row), number("count", row), number("first", row),
                             number("last", row));
        }
    });
}

}  // namespace

int trace_file(const std::uint8_t* data, std::size_t size) {
    read_both_ways(data, size, [](const trace::TraceFile& file) {
        (void)answers([&file] {
            trace::DecodeRequest request;
            request.comm = true;
            request.symbols = true;
            request.threads = 2;
            (void)trace::decode(file, request);
        });
        (void)answers(
            [&file] { (void)trace::decode_batches(file, {}, 3, [](const trace::EventFormat&, const Table&) {}); });
        (void)answers([&file] { (void)trace::count_events(file, {}); });
    });
    return 0;
}

int trace_file_views(const std::uint8_t* data, std::size_t size) {
    read_both_ways(data, size, [](const trace::TraceFile& file) {
        (void)answers([&file] { (void)trace::offset_table(trace::syscall_table(file, {})); });
        (void)answers([&file] { (void)trace::opened_table(trace::syscall_table(file, {})); });
        (void)answers([&file] { (void)trace::syscall_summary(file, {}); });
        (void)answers([&file] { (void)trace::block_table(file, {}); });
        (void)answers([&file] {
            const trace::CallGraph graph = trace::call_graph(file, {});
            if (trace::graph_table(graph).rows() != graph.size()) {
                std::abort();
            }
            (void)trace::graph_text(graph, 0, graph.size(), 50);
        });
        // A part: of one task and its children, one function, the later half of the time.
        std::vector<Occurrence> all;
        if (!occurrences(file, all) || all.empty()) {
            return;
        }
        trace::SyscallRequest one;
        one.pids = {1};
        one.children = true;
        one.selection.from = std::get<3>(all.front()) / 2 + std::get<4>(all.front()) / 2;
        (void)answers([&] { (void)trace::syscall_table(file, one); });
        trace::GraphRequest functions;
        functions.functions = {"*a*"};
        functions.selection = one.selection;
        (void)answers([&] { (void)trace::call_graph(file, functions); });
    });
    return 0;
}

int trace_file_exports(const std::uint8_t* data, std::size_t size) {
    const std::string path = ScratchFolder::one().file("export");
    // Which part is asked for depends on all of the input.
    const std::size_t sum = std::accumulate(data, data + size, std::size_t{0});
    read_both_ways(data, size, [&path, sum](const trace::TraceFile& file) {
        (void)answers([&] {
            const trace::Timeline timeline = trace::make_timeline(file, {});
            trace::write_perfetto(timeline, path);
            trace::write_chrome(timeline, path);
        });
        std::vector<Occurrence> before;
        const bool readable = occurrences(file, before);
        for (const bool prune : {false, true}) {
            trace::ExportRequest request;
            request.prune = prune;
            if (!answers([&] { trace::export_trace_file(file, path, request); })) {
                continue;
            }
            // What we wrote we can read, and it says the same.
            const trace::TraceFile copy(path, file.on_error());
            std::vector<Occurrence> after;
            if (occurrences(copy, after) != readable || (readable && before != after)) {
                std::abort();
            }
        }
        if (before.empty()) {
            return;
        }
        // A part, from the first occurrence of one event to the last of another. Of times that jump back and forth it
        // is not the same in whole pages; but it can be read.
        trace::ExportRequest request;
        request.from = std::get<3>(before[sum % before.size()]);
        request.to = std::get<4>(before[sum / 7 % before.size()]);
        if (answers([&] { trace::export_trace_file(file, path, request); })) {
            std::vector<Occurrence> part;
            if (!occurrences(trace::TraceFile(path, file.on_error()), part)) {
                std::abort();
            }
        }
    });
    return 0;
}

}  // namespace sampleblk::fuzz
