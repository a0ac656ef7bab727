// SPDX-License-Identifier: MIT
#include <cstdlib>
#include <string_view>

#include "fuzz_trace.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/trace/graph.hpp"
#include "sampleblk/trace/import_text.hpp"

namespace sampleblk::fuzz {

int trace_text(const std::uint8_t* data, std::size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    for (const auto how : {trace::OnError::strict, trace::OnError::skip}) {
        try {
            const trace::CallGraph graph = trace::read_graph_text(text, "fuzz", how);
            if (trace::graph_table(graph).rows() != graph.size()) {
                std::abort();
            }
            (void)trace::graph_text(graph, 0, graph.size(), 1000);
        } catch (const FormatError&) {
        }
        try {
            (void)trace::read_strace_log(text, "fuzz", how);
            (void)trace::read_strace_summary(text, "fuzz");
        } catch (const FormatError&) {
        }
    }
    return 0;
}

}  // namespace sampleblk::fuzz
