// SPDX-License-Identifier: MIT
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>

#include "fuzz_trace.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/trace/block.hpp"
#include "sampleblk/trace/decode.hpp"
#include "sampleblk/trace/import_events.hpp"
#include "scratch.hpp"

namespace sampleblk::fuzz {

// Whatever an import takes, it makes a recording that is read strictly, with as many events as it says.
int trace_import(const std::uint8_t* data, std::size_t size) {
    const std::string source = ScratchFolder::one().file("source");
    const std::string made = ScratchFolder::one().file("made.dat");
    write_file(source, {reinterpret_cast<const char*>(data), size}, O_CREAT | O_TRUNC);
    for (const auto how : {trace::OnError::strict, trace::OnError::skip}) {
        std::map<std::string, std::string> facts;
        try {
            facts = trace::import_events({source}, made, how);
        } catch (const FormatError&) {
            continue;
        }
        const trace::TraceFile file(made);
        const Table counts = trace::count_events(file, {});
        std::uint64_t events = 0;
        const auto* count = counts.find("count")->values<std::uint64_t>();
        for (std::size_t row = 0; row < counts.rows(); ++row) {
            events += count[row];
        }
        if (std::to_string(events) != facts.at("events")) {
            std::abort();
        }
        (void)trace::block_table(file, {});
    }
    return 0;
}

}  // namespace sampleblk::fuzz
