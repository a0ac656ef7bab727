// SPDX-License-Identifier: MIT
#include "sampleblk/workload/result_tables.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <utility>

#include "result/report_parts.hpp"
#include "sampleblk/workload/keys.hpp"

namespace sampleblk::workload {

namespace {

// Strings of a column while it grows.
class Words {
  public:
    void add(std::string_view word) { codes_.push_back(pool_->intern(word)); }
    [[nodiscard]] Column column(std::string name) { return {std::move(name), std::move(codes_), std::move(pool_)}; }

  private:
    std::shared_ptr<StringPool> pool_ = std::make_shared<StringPool>();
    std::vector<std::int32_t> codes_;
};

// The columns that say which job a row is of.
struct Identity {
    Words job;
    std::vector<std::uint32_t> number;
    Words direction;

    void add(const JobResult& one, std::size_t d) {
        job.add(one.options.name);
        number.push_back(one.options.job_number);
        direction.add(direction_names[d]);
    }
    void put(std::vector<Column>& columns) {
        columns.push_back(job.column("job"));
        columns.emplace_back("job_number", std::move(number));
        columns.push_back(direction.column("direction"));
    }
};

using U64 = std::vector<std::uint64_t>;
using F64 = std::vector<double>;

// A latency of which there is no sample is no latency of 0.
double measured(const LatencyStats& stats, auto value) {
    return stats.count == 0 ? std::nan("") : static_cast<double>(value);
}

}  // namespace

Table summary_table(const RunResult& result) {
    constexpr std::array<double, 5> percents = {50, 90, 99, 99.9, 99.99};
    constexpr std::array<const char*, 5> names = {"p50", "p90", "p99", "p99_9", "p99_99"};
    Identity identity;
    U64 ios;
    U64 bytes;
    U64 runtime;
    F64 bandwidth;
    F64 iops;
    F64 mean;
    F64 deviation;
    F64 least;
    F64 most;
    std::array<F64, percents.size()> percentiles;
    F64 response;
    for (const auto& reported : result.reported()) {
        const JobResult& job = *reported;
        for (std::size_t d = 0; d < data_directions; ++d) {
            const DirectionStats& stats = job.measured.data[d];
            if (stats.ios == 0) {
                continue;
            }
            identity.add(job, d);
            const double seconds = std::max(static_cast<double>(stats.runtime_ns) * 1e-9, 1e-9);
            ios.push_back(stats.ios);
            bytes.push_back(stats.bytes);
            runtime.push_back(stats.runtime_ns);
            bandwidth.push_back(static_cast<double>(stats.bytes) / seconds);
            iops.push_back(static_cast<double>(stats.ios) / seconds);
            mean.push_back(measured(stats.clat, stats.clat.mean_ns()));
            deviation.push_back(measured(stats.clat, stats.clat.stddev_ns()));
            least.push_back(measured(stats.clat, stats.clat.min_ns()));
            most.push_back(measured(stats.clat, stats.clat.max_ns));
            for (std::size_t i = 0; i < percents.size(); ++i) {
                percentiles[i].push_back(measured(stats.clat, stats.clat.percentile_ns(percents[i])));
            }
            response.push_back(measured(stats.response, stats.response.percentile_ns(99)));
        }
    }
    std::vector<Column> columns;
    identity.put(columns);
    columns.emplace_back("ios", std::move(ios));
    columns.emplace_back("bytes", std::move(bytes), "bytes");
    columns.emplace_back("runtime", std::move(runtime), "ns");
    columns.emplace_back("bandwidth", std::move(bandwidth), "bytes/s");
    columns.emplace_back("iops", std::move(iops), "1/s");
    columns.emplace_back("clat_mean", std::move(mean), "ns");
    columns.emplace_back("clat_stddev", std::move(deviation), "ns");
    columns.emplace_back("clat_min", std::move(least), "ns");
    for (std::size_t i = 0; i < percents.size(); ++i) {
        columns.emplace_back(std::string("clat_") + names[i], std::move(percentiles[i]), "ns");
    }
    columns.emplace_back("clat_max", std::move(most), "ns");
    columns.emplace_back("response_p99", std::move(response), "ns");
    std::map<std::string, std::string> metadata;
    if (!result.stop_reason.empty()) {
        metadata["stopped"] = result.stop_reason;
    }
    return Table(std::move(columns), std::move(metadata));
}

Table series_table(const RunResult& result) {
    Identity identity;
    std::vector<std::uint32_t> group;
    U64 begin;
    U64 end;
    U64 ios;
    U64 bytes;
    F64 bandwidth;
    F64 iops;
    F64 latency;
    for (const auto& job : result.jobs) {
        std::uint64_t before = 0;
        for (const SeriesPoint& point : job->rates) {
            for (std::size_t d = 0; d < data_directions; ++d) {
                const DirectionStats& stats = job->measured.data[d];
                if (stats.ios == 0) {
                    continue;
                }
                identity.add(*job, d);
                group.push_back(job->options.group_id);
                const double seconds = std::max(static_cast<double>(point.end_ns - before) * 1e-9, 1e-9);
                begin.push_back(before);
                end.push_back(point.end_ns);
                ios.push_back(point.ios[d]);
                bytes.push_back(point.bytes[d]);
                bandwidth.push_back(static_cast<double>(point.bytes[d]) / seconds);
                iops.push_back(static_cast<double>(point.ios[d]) / seconds);
                latency.push_back(stats.clat.count == 0 || point.ios[d] == 0
                                      ? std::nan("")
                                      : static_cast<double>(point.latency_sum_ns[d]) /
                                            static_cast<double>(point.ios[d]));
            }
            before = point.end_ns;
        }
    }
    std::vector<Column> columns;
    identity.put(columns);
    columns.emplace_back("begin", std::move(begin), "ns");
    columns.emplace_back("end", std::move(end), "ns");
    columns.emplace_back("ios", std::move(ios));
    columns.emplace_back("bytes", std::move(bytes), "bytes");
    columns.emplace_back("bandwidth", std::move(bandwidth), "bytes/s");
    columns.emplace_back("iops", std::move(iops), "1/s");
    columns.emplace_back("clat_mean", std::move(latency), "ns");
    columns.emplace_back("group", std::move(group));
    return Table(std::move(columns));
}

Table histogram_table(const RunResult& result) {
    Identity identity;
    Words kind;
    U64 low;
    U64 width;
    U64 count;
    for (const auto& each : result.jobs) {
        const JobResult& job = *each;
        const auto add = [&](std::size_t d, std::string_view name, const LatencyStats& stats) {
            for (std::size_t i = 0; i < stats.bins.size(); ++i) {
                if (stats.bins[i] != 0) {
                    identity.add(job, d);
                    kind.add(name);
                    low.push_back(HistogramGeometry::lower_bound(i));
                    width.push_back(HistogramGeometry::width(i));
                    count.push_back(stats.bins[i]);
                }
            }
        };
        for (std::size_t d = 0; d < data_directions; ++d) {
            add(d, "slat", job.measured.data[d].slat);
            add(d, "clat", job.measured.data[d].clat);
            add(d, "lat", job.measured.data[d].lat);
            add(d, "response", job.measured.data[d].response);
        }
        add(index_of(Direction::sync), "sync", job.measured.sync_latency);
    }
    std::vector<Column> columns;
    identity.put(columns);
    columns.push_back(kind.column("kind"));
    columns.emplace_back("latency", std::move(low), "ns");
    columns.emplace_back("width", std::move(width), "ns");
    columns.emplace_back("count", std::move(count));
    return Table(std::move(columns));
}

Table heat_table(const RunResult& result) {
    Identity identity;
    U64 begin;
    U64 end;
    U64 low;
    U64 width;
    U64 count;
    for (const auto& job : result.jobs) {
        for (const HeatCell& cell : job->heat) {
            identity.add(*job, cell.direction);
            begin.push_back(cell.begin_ns);
            end.push_back(cell.end_ns);
            low.push_back(HistogramGeometry::lower_bound(cell.bin));
            width.push_back(HistogramGeometry::width(cell.bin));
            count.push_back(cell.count);
        }
    }
    std::vector<Column> columns;
    identity.put(columns);
    columns.emplace_back("begin", std::move(begin), "ns");
    columns.emplace_back("end", std::move(end), "ns");
    columns.emplace_back("latency", std::move(low), "ns");
    columns.emplace_back("width", std::move(width), "ns");
    columns.emplace_back("count", std::move(count));
    return Table(std::move(columns));
}

Table io_log_table(const RunResult& result) {
    std::size_t rows = 0;
    std::uint64_t lost = 0;
    for (const auto& job : result.jobs) {
        rows += job->io_log.size();
        lost += job->measured.io_log_lost;
    }
    Identity identity;
    U64 time;
    U64 latency;
    U64 offset;
    U64 length;
    std::vector<std::uint16_t> depth;
    Words path;
    Words engine;
    for (U64* column : {&time, &latency, &offset, &length}) {
        column->reserve(rows);
    }
    for (const auto& job : result.jobs) {
        const std::string_view name = engine_name(job->options.engine);
        for (const IoLogEntry& entry : job->io_log) {
            identity.add(*job, entry.direction);
            time.push_back(entry.issue_ns);
            latency.push_back(entry.latency_ns);
            offset.push_back(entry.offset_bytes);
            length.push_back(entry.length_bytes);
            depth.push_back(entry.depth);
            path.add(entry.file < job->paths.size() ? std::string_view(job->paths[entry.file]) : "");
            engine.add(name);
        }
    }
    std::vector<Column> columns;
    columns.emplace_back("time", std::move(time), "ns");
    identity.put(columns);
    columns.emplace_back("offset", std::move(offset), "bytes");
    columns.emplace_back("size", std::move(length), "bytes");
    columns.emplace_back("latency", std::move(latency), "ns");
    columns.emplace_back("depth", std::move(depth));
    columns.push_back(engine.column("engine"));
    columns.push_back(path.column("path"));
    return Table(std::move(columns), {{"lost", std::to_string(lost)}});
}

}  // namespace sampleblk::workload
