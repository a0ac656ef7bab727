// SPDX-License-Identifier: MIT
#include <cstring>
#include <vector>

#include "fuzz_trace.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/trace/decode.hpp"
#include "sampleblk/trace/graph.hpp"
#include "sampleblk/trace/syscalls.hpp"

namespace sampleblk::fuzz {

int trace_file(const std::uint8_t* data, std::size_t size) {
    for (const auto how : {trace::OnError::strict, trace::OnError::skip}) {
        std::vector<std::byte> bytes(size);
        if (size != 0) {
            std::memcpy(bytes.data(), data, size);
        }
        try {
            const trace::TraceFile file(std::move(bytes), "fuzz", how);
            trace::DecodeRequest request;
            request.comm = true;
            request.symbols = true;
            request.threads = 2;
            (void)trace::decode(file, request);
            (void)trace::syscall_summary(file, {});
            const trace::CallGraph graph = trace::call_graph(file, {});
            (void)trace::graph_text(graph, 0, 100, 50);
        } catch (const FormatError&) {
        } catch (const UnsupportedError&) {
        } catch (const InputError&) {
        }
    }
    return 0;
}

}  // namespace sampleblk::fuzz
