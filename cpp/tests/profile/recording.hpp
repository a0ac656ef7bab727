// SPDX-License-Identifier: MIT
// A perf.data made up in memory, for views that need known samples: a clock at 1 kHz, sched_switch and sched_waking,
// and a kernel whose functions lie 0x100 apart.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "perf/record_maker.hpp"
#include "sampleblk/linux_headers.hpp"
#include "sampleblk/profile/perf_file.hpp"
#include "sampleblk/profile/profile.hpp"

namespace sampleblk::profile {

class Recording {
  public:
    enum Id : std::uint64_t { clock = 1, switched = 100, waking = 101 };

    Recording() {
        const std::string_view magic = "PERFILE2";
        add(std::as_bytes(std::span(magic)));
        const std::uint64_t header = 16;
        add(std::as_bytes(std::span(&header, 1)));
        attribute(clock, PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK, 0);
        attribute(switched, PERF_TYPE_TRACEPOINT, switched, PERF_SAMPLE_RAW);
        attribute(waking, PERF_TYPE_TRACEPOINT, waking, PERF_SAMPLE_RAW);
    }

    // A thread's name, from `time` on.
    void comm(std::int32_t tid, const std::string& name, std::uint64_t time = 0) {
        RecordMaker record(PERF_RECORD_COMM, 0);
        record.put(tid).put(tid).put_text(name);
        record.put(tid).put(tid).put(time).put(std::uint64_t{0}).put(std::uint64_t{clock});
        add(record.finish(0));
    }
    // 1 ms on the CPU; `stack` has kernel functions, outermost first.
    void run(std::uint64_t time, std::int32_t tid, const std::vector<std::string>& stack) {
        add(sample(clock, time, tid, stack).finish(0));
    }
    // A program that the kernel loaded, and 1 ms in it.
    void program(std::uint64_t time, std::uint64_t start, std::uint32_t size, const std::string& name) {
        RecordMaker record(PERF_RECORD_KSYMBOL, 0);
        record.put(start).put(size).put(std::uint16_t{PERF_RECORD_KSYMBOL_TYPE_BPF}).put(std::uint16_t{0});
        record.put_text(name).put(std::uint64_t{0}).put(time).put(std::uint64_t{0}).put(std::uint64_t{clock});
        add(record.finish(0));
        RecordMaker inside(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL);
        inside.put(std::uint64_t{clock}).put(std::uint64_t{0}).put(time + 1).put(std::uint64_t{0});
        inside.put(std::uint64_t{2}).put(static_cast<std::uint64_t>(PERF_CONTEXT_KERNEL)).put(start + size / 2);
        add(inside.finish(0));
    }
    // The same without a stack, of what the CPU ran instead of this kernel: PERF_RECORD_MISC_GUEST_KERNEL and its like.
    void run_beyond(std::uint64_t time, std::int32_t tid, std::uint16_t mode) {
        RecordMaker record(PERF_RECORD_SAMPLE, mode);
        record.put(std::uint64_t{clock}).put(tid).put(tid).put(time).put(std::uint64_t{0}).put(std::uint64_t{0});
        add(record.finish(0));
    }
    void switch_out(std::uint64_t time, std::int32_t tid, std::int64_t state, std::int32_t next,
                    const std::vector<std::string>& stack) {
        auto record = sample(switched, time, tid, stack);
        record.put(std::uint32_t{28}).put(std::uint64_t{switched}).put(tid).put(state).put(next).put(std::uint32_t{0});
        add(record.finish(0));
    }
    void wake(std::uint64_t time, std::int32_t by, std::int32_t tid) {
        auto record = sample(waking, time, by, {});
        record.put(std::uint32_t{12}).put(std::uint64_t{waking}).put(tid);
        add(record.finish(0));
    }
    // Until then records were lost.
    void lost(std::uint64_t time) {
        RecordMaker record(PERF_RECORD_LOST, 0);
        record.put(std::uint64_t{clock}).put(std::uint64_t{5});
        record.put(std::uint64_t{0}).put(time).put(std::uint64_t{0}).put(std::uint64_t{clock});
        add(record.finish(0));
    }

    [[nodiscard]] Profile profile() {
        std::string kallsyms = "ffffffff81000000 T _text\n";
        for (std::size_t i = 0; i < functions_.size(); ++i) {
            std::array<char, 32> address{};
            (void)std::snprintf(address.data(), address.size(), "%lx T ", 0xffffffff81000100UL + i * 0x100);
            kallsyms += address.data() + functions_[i] + "\n";
        }
        const std::string_view common =
            "ID: 100\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
            "\tfield:pid_t prev_pid;\toffset:8;\tsize:4;\tsigned:1;\n"
            "\tfield:long prev_state;\toffset:12;\tsize:8;\tsigned:1;\n"
            "\tfield:pid_t next_pid;\toffset:20;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n";
        const std::string_view wake =
            "ID: 101\nformat:\n\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n"
            "\tfield:pid_t pid;\toffset:8;\tsize:4;\tsigned:1;\n\nprint fmt: \"\"\n";
        const std::string first = "name: sched_switch\n" + std::string(common);
        const std::string second = "name: sched_waking\n" + std::string(wake);
        // tools/perf/util/trace-event-info.c: no formats of ftrace itself, two of a system, symbols, no printk formats.
        std::string data("\x17\x08\x44tracing0.6\0\0\x08\0\x10\0\0", 20);
        const auto number = [&data](auto value) { data.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
        for (const std::string_view part :
             {std::string_view("header_page\0", 12), std::string_view("header_event\0", 13)}) {
            data += part;
            number(std::uint64_t{0});
        }
        number(std::uint32_t{0});
        number(std::uint32_t{1});
        data.append("sched", 6);
        number(std::uint32_t{2});
        for (const std::string& format : {first, second}) {
            number(std::uint64_t{format.size()});
            data += format;
        }
        number(static_cast<std::uint32_t>(kallsyms.size()));
        data += kallsyms;
        number(std::uint32_t{0});
        number(std::uint64_t{0});
        add(RecordMaker(kRecordTracingData, 0).put(static_cast<std::uint32_t>(data.size())).finish(0));
        data.resize((data.size() + 7) / 8 * 8);
        add(std::as_bytes(std::span(data)));
        SymbolSources nowhere;
        nowhere.use_paths = false;
        nowhere.use_running_kernel = false;
        return {std::make_shared<const PerfFile>(bytes_, "made up"), nowhere};
    }

  private:
    void add(std::span<const std::byte> record) { bytes_.insert(bytes_.end(), record.begin(), record.end()); }

    void attribute(std::uint64_t id, std::uint32_t type, std::uint64_t config, std::uint64_t extra) {
        perf_event_attr attr{};
        attr.size = sizeof(attr);
        attr.type = type;
        attr.config = config;
        attr.sample_period = type == PERF_TYPE_SOFTWARE ? 1000000 : 1;
        attr.sample_type = PERF_SAMPLE_IDENTIFIER | PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_CPU |
                           PERF_SAMPLE_CALLCHAIN | extra;
        attr.sample_id_all = 1;
        add(RecordMaker(kRecordHeaderAttr, 0).put_bytes(&attr, sizeof(attr)).put(id).finish(0));
    }

    RecordMaker sample(std::uint64_t id, std::uint64_t time, std::int32_t tid, const std::vector<std::string>& stack) {
        RecordMaker record(PERF_RECORD_SAMPLE, PERF_RECORD_MISC_KERNEL);
        record.put(id).put(tid).put(tid).put(time).put(std::uint64_t{0});
        record.put(std::uint64_t{stack.size() + 1}).put(static_cast<std::uint64_t>(PERF_CONTEXT_KERNEL));
        for (auto function = stack.rbegin(); function != stack.rend(); ++function) {
            auto known = std::find(functions_.begin(), functions_.end(), *function);
            if (known == functions_.end()) {
                known = functions_.insert(functions_.end(), *function);
            }
            record.put(std::uint64_t{0xffffffff81000110UL} +
                       0x100U * static_cast<std::uint64_t>(std::distance(functions_.begin(), known)));
        }
        return record;
    }

    std::vector<std::byte> bytes_;
    std::vector<std::string> functions_;
};

}  // namespace sampleblk::profile
