// SPDX-License-Identifier: MIT
#include "sampleblk/trace/block.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <utility>
#include <vector>

#include "file/text.hpp"
#include "sampleblk/interrupt.hpp"
#include "sampleblk/trace/decode.hpp"
#include "views/block_sink.hpp"

namespace sampleblk::trace {

namespace {

// "FWS" is a write that flushes first; "FF" a flush. The letter of the operation itself.
char operation_of(std::string_view rwbs) {
    if (rwbs.empty()) {
        return 'N';
    }
    if (rwbs[0] == 'F' && rwbs.size() > 1 && std::string_view("WRDFZ").find(rwbs[1]) != std::string_view::npos) {
        return rwbs[1];
    }
    return rwbs[0];
}

// No errno is beyond 32 bits' negative, which has no positive.
std::int32_t errno_of(std::int32_t error) {
    return static_cast<std::int32_t>(error < 0 ? 0U - static_cast<std::uint32_t>(error)
                                               : static_cast<std::uint32_t>(error));
}

}  // namespace

std::string device_name(std::uint32_t dev) {
    return std::to_string(dev >> 20U) + "," + std::to_string(dev & 0xfffffU);
}

BlockSink::BlockSink(const TraceFile& file)
    : PlainSink(file), swap_(swap_needed(file.big_endian())), roles_(std::size_t{1} << 16U) {
    static constexpr std::pair<std::string_view, Action> events[] = {
        {"block_bio_queue", Action::queue},
        {"block_getrq", Action::get},
        {"block_rq_insert", Action::insert},
        {"block_rq_issue", Action::issue},
        {"block_rq_complete", Action::complete},
        {"block_bio_complete", Action::bio_complete},
        {"block_bio_backmerge", Action::merge_back},
        {"block_bio_frontmerge", Action::merge_front},
        {"block_rq_merge", Action::merge_requests},
        {"block_split", Action::split},
        {"block_plug", Action::plug},
        {"block_unplug", Action::unplug},
        {"block_rq_requeue", Action::requeue},
    };
    for (const EventFormat& format : file.formats()) {
        if (format.system != "block" || file.find_event(format.id) != &format) {
            continue;
        }
        for (const auto& [name, action] : events) {
            if (format.name == name) {
                add_role(format, action);
            }
        }
    }
}

void BlockSink::record(const Event& event) {
    if (!whole(event, kTypeSize)) [[unlikely]] {
        return;
    }
    const Role* role = roles_[load<std::uint16_t>(event.data, swap_)].get();
    if (role == nullptr || !whole(event, role->fixed_size)) {
        return;
    }
    if (role->action == Action::plug) {
        ++plugs;
        return;
    }
    if (role->action == Action::unplug) {
        ++unplugs;
        return;
    }
    BlockRequest now;
    now.buffer = event.place.buffer;
    now.dev = static_cast<std::uint32_t>(role->dev.get(event.data));
    now.sector = role->sector.get(event.data);
    now.sectors = static_cast<std::uint32_t>(role->sectors.get(event.data));
    now.pid = static_cast<std::int32_t>(role->pid.get(event.data));
    std::string_view rwbs(reinterpret_cast<const char*>(event.data + role->rwbs_offset), role->rwbs_size);
    rwbs = rwbs.substr(0, rwbs.find('\0'));
    now.operation = operation_of(rwbs);
    if (now.sector == UINT64_MAX) {
        now.sector = now.sectors = 0;  // a command of the driver's has no place, which only its completion says
    } else if (now.operation == 'F') {
        now.sector = 0;
    }
    now.rwbs = names->intern(printable(rwbs));
    // A text whose times are since its first event begins at 0, which stands for no event in a row.
    const auto time = std::max<std::uint64_t>(event.time, 1);
    // "ZA": it is issued at the start of its zone, and completes where it was written.
    if (role->action == Action::complete && now.sectors != 0 && rwbs.starts_with("ZA")) {
        ++appends;
        completed_only(now, time, static_cast<std::int32_t>(role->error.get(event.data)));
        return;
    }
    step(role->action, now, time, static_cast<std::int32_t>(role->error.get(event.data)),
         role->new_sector.get(event.data));
}

void BlockSink::add_role(const EventFormat& format, Action action) {
    Role role;
    role.action = action;
    role.fixed_size = format.fixed_size;
    role.pid = FieldReader(format, "common_pid", swap_);
    role.dev = FieldReader(format, "dev", swap_);
    role.sector = FieldReader(format, "sector", swap_);
    role.sectors = FieldReader(format, "nr_sector", swap_);
    role.new_sector = FieldReader(format, "new_sector", swap_);
    role.error = FieldReader(format, "error", swap_);
    if (!role.error) {
        role.error = FieldReader(format, "errors", swap_);
    }
    if (const Field* rwbs = format.find("rwbs"); rwbs != nullptr && rwbs->kind == FieldKind::text) {
        role.rwbs_offset = rwbs->offset;
        role.rwbs_size = rwbs->size;
    }
    roles_[format.id] = std::make_unique<Role>(role);
}

// Of the requests at one place the one of the highest score, and of those the latest: that of an earlier one may have
// an end that nobody saw. None with a score of 0.
template <typename Score>
BlockSink::Open::iterator BlockSink::best(Open& open, const Key& place, Score score) {
    constexpr int most = 256;
    auto found = open.end();
    int highest = 0;
    auto [first, at] = open.equal_range(place);
    for (int looked = 0; at != first && looked < most; ++looked) {
        --at;
        if (const int here = score(requests[at->second]); here > highest) {
            highest = here;
            found = at;
        }
    }
    return found;
}

BlockRequest& BlockSink::add(Open& open, const BlockRequest& now) {
    open.emplace(key(now), requests.size());
    return requests.emplace_back(now);
}

// The request there that has not taken that step, or a new one: the recording may begin anywhere in a request's life.
BlockRequest& BlockSink::waiting(const BlockRequest& now, std::uint64_t BlockRequest::* step) {
    const auto found = best(waiting_, key(now), [&](const BlockRequest& request) {
        return request.*step != 0 || request.inserted != 0
                   ? 0
                   : 1 + 2 * static_cast<int>(request.gotten != 0) + static_cast<int>(request.pid == now.pid);
    });
    return found != waiting_.end() ? requests[found->second] : add(waiting_, now);
}

void BlockSink::step(Action action, const BlockRequest& now, std::uint64_t time, std::int32_t error,
                     std::uint64_t new_sector) {
    switch (action) {
        case Action::queue:
            add(waiting_, now).queued = time;
            break;
        case Action::get:
            waiting(now, &BlockRequest::gotten).gotten = time;
            break;
        case Action::insert: {
            BlockRequest& request = waiting(now, &BlockRequest::inserted);
            request.inserted = time;
            request.sectors = request.done + now.sectors;
            break;
        }
        case Action::issue:
            issue(now, time);
            break;
        case Action::complete:
        case Action::bio_complete:
            complete(action, now, time, error);
            break;
        case Action::merge_back:
        case Action::merge_front:
        case Action::merge_requests:
            merge(action, now);
            break;
        case Action::split:
            split(now, new_sector);
            break;
        case Action::requeue:
            requeue(now);
            break;
        default:
            break;
    }
}

void BlockSink::issue(const BlockRequest& now, std::uint64_t time) {
    const auto found = best(waiting_, key(now), [&](const BlockRequest& request) {
        return 1 + 2 * static_cast<int>(request.gotten != 0 || request.inserted != 0) +
               static_cast<int>(request.pid == now.pid);
    });
    const bool known = found != waiting_.end();
    const std::size_t index = known ? found->second : requests.size();
    if (known) {
        issued_.insert(waiting_.extract(found));
    } else {
        add(issued_, now);
    }
    BlockRequest& request = requests[index];
    request.issued = time;
    request.issuer = now.pid;
    request.sectors = request.done + now.sectors;
    request.rwbs = now.rwbs;
}

// The driver gives it back: it will be issued once more, perhaps inserted before.
void BlockSink::requeue(const BlockRequest& now) {
    ++requeues;
    const auto found = best(issued_, key(now), [](const BlockRequest&) { return 1; });
    if (found != issued_.end()) {
        BlockRequest& request = requests[found->second];
        request.inserted = request.issued = 0;
        request.issuer = -1;
        waiting_.insert(issued_.extract(found));
    }
}

void BlockSink::complete(Action action, const BlockRequest& now, std::uint64_t time, std::int32_t error) {
    const auto same_size = [&](const BlockRequest& request) { return request.sectors - request.done == now.sectors; };
    Open* open = &issued_;
    auto found = issued_.end();
    if (action == Action::complete) {
        const auto score = [&](const BlockRequest& request) {
            // A write ends again, without sectors, after the flush behind it.
            return now.sectors == 0 && request.sectors != 0
                       ? 0
                       : 1 + 2 * static_cast<int>(same_size(request)) + static_cast<int>(request.issuer == now.pid);
        };
        found = best(issued_, key(now), score);
        if (found == issued_.end()) {
            open = &waiting_;
            found = best(waiting_, key(now), score);
        }
    } else {
        // The completion of a request says all of the bios in it.
        open = &waiting_;
        found = best(waiting_, key(now), [&](const BlockRequest& request) {
            return request.gotten != 0 || request.inserted != 0 || !same_size(request)
                       ? 0
                       : 1 + static_cast<int>(request.pid == now.pid);
        });
        if (found == waiting_.end()) {
            found = remainder(now);
        }
    }
    if (found == open->end()) {
        // A bio whose request completed already, a write ending again after the flush behind it, or a request from
        // before the recording.
        if (action == Action::complete && now.sectors == 0 && now.operation == 'W') {
            ++flush_sequences;
        } else if (action == Action::complete) {
            completed_only(now, time, error);
        }
        return;
    }
    const std::size_t index = found->second;
    BlockRequest& request = requests[index];
    open->erase(found);
    if (error != 0) {
        request.error = errno_of(error);
    }
    if (request.issued != 0 && now.sectors != 0 && request.sectors - request.done > now.sectors) {
        request.done += now.sectors;
        issued_.emplace(key(request), index);
        return;
    }
    request.completed = time;
    request.completer = now.pid;
    if (const auto gap = gaps_.find(request.buffer); gap != gaps_.end() && gap->second > request.began()) {
        ++across_gaps;
    }
}

// dm and md send a bio on piece by piece: what they do not take yet remains the bio, and ends it, last of all.
BlockSink::Open::iterator BlockSink::remainder(const BlockRequest& now) {
    constexpr int most = 256;
    auto at = waiting_.lower_bound(Key{now.buffer, now.dev, now.sector, '\0'});
    for (int looked = 0; now.sectors != 0 && at != waiting_.begin() && looked < most; ++looked) {
        const BlockRequest& bio = requests[(--at)->second];
        if (bio.buffer != now.buffer || bio.dev != now.dev) {
            break;
        }
        if (bio.operation == now.operation && bio.gotten == 0 && bio.inserted == 0 &&
            bio.sector + bio.sectors == now.sector + now.sectors) {
            return at;
        }
    }
    return waiting_.end();
}

// A request of which nothing else was seen: its row says what its end does.
void BlockSink::completed_only(const BlockRequest& now, std::uint64_t time, std::int32_t error) {
    ++unpaired;
    BlockRequest& request = requests.emplace_back(now);
    request.pid = -1;
    request.completer = now.pid;
    request.completed = time;
    request.error = errno_of(error);
}

// A bio that is too large goes on as two: both were queued when it was.
void BlockSink::split(const BlockRequest& now, std::uint64_t new_sector) {
    ++splits;
    const auto found = best(waiting_, key(now), [&](const BlockRequest& bio) {
        const bool inside = new_sector > bio.sector && new_sector - bio.sector < bio.sectors;
        return bio.gotten != 0 || bio.inserted != 0 || !inside ? 0 : 1 + static_cast<int>(bio.pid == now.pid);
    });
    if (found != waiting_.end()) {
        BlockRequest& bio = requests[found->second];
        BlockRequest rest = bio;
        bio.sectors = static_cast<std::uint32_t>(new_sector - bio.sector);
        rest.sector = new_sector;
        rest.sectors -= bio.sectors;
        add(waiting_, rest);
    }
}

// A bio that was queued joins a request that ends where it begins, or begins where it ends; or a request joins the one
// that ends where it begins.
void BlockSink::merge(Action action, const BlockRequest& now) {
    ++merges;
    std::uint32_t joining = 1;
    const bool whole = action == Action::merge_requests;
    const auto joins = best(waiting_, key(now), [&](const BlockRequest& request) {
        const bool is_request = request.gotten != 0 || request.inserted != 0;
        return is_request && !whole ? 0
                                    : 1 + 2 * static_cast<int>(is_request) + static_cast<int>(request.pid == now.pid);
    });
    if (joins != waiting_.end()) {
        requests[joins->second].swallowed = true;
        joining += requests[joins->second].merges;
        waiting_.erase(joins);
    }
    if (action == Action::merge_front) {
        const auto found = best(waiting_, Key{now.buffer, now.dev, now.sector + now.sectors, now.operation},
                                [](const BlockRequest&) { return 1; });
        if (found != waiting_.end()) {
            const std::size_t index = found->second;
            waiting_.erase(found);
            requests[index].sector = now.sector;
            requests[index].sectors += now.sectors;
            ++requests[index].merges;
            waiting_.emplace(key(now), index);
        }
        return;
    }
    // The last waiting request that begins before: keys are ordered by buffer and device, then sector.
    auto at = waiting_.lower_bound(Key{now.buffer, now.dev, now.sector, '\0'});
    for (std::size_t steps = 1; at != waiting_.begin(); ++steps) {
        if (steps % 65536 == 0) {
            check_interrupt();
        }
        --at;
        BlockRequest& request = requests[at->second];
        if (request.buffer != now.buffer || request.dev != now.dev) {
            return;
        }
        if (request.operation == now.operation && request.sector + request.sectors == now.sector) {
            request.sectors += now.sectors;
            request.merges += joining;
            return;
        }
    }
}

Table block_table(const TraceFile& file, const Selection& selection) {
    BlockSink sink(file);
    WalkStats stats = walk(file, selection, sink);
    stats.damage.add(sink.damage());
    auto metadata = loss_metadata(file, selection, stats);
    for (const auto& [name, count] :
         {std::pair{"plugs", sink.plugs}, std::pair{"unplugs", sink.unplugs}, std::pair{"splits", sink.splits},
          std::pair{"requeues", sink.requeues}, std::pair{"merges", sink.merges}, std::pair{"unpaired", sink.unpaired},
          std::pair{"appends", sink.appends}, std::pair{"flush_sequences", sink.flush_sequences}}) {
        metadata[name] = std::to_string(count);
    }
    if (sink.across_gaps != 0) {
        metadata["across_gaps"] = std::to_string(sink.across_gaps);
    }
    std::erase_if(sink.requests, [](const BlockRequest& request) { return request.swallowed; });
    const auto numbers = [&sink](const char* name, auto member, const std::string& unit = {}) {
        std::vector<std::decay_t<decltype(std::declval<BlockRequest>().*member)>> values;
        values.reserve(sink.requests.size());
        for (const BlockRequest& request : sink.requests) {
            values.push_back(request.*member);
        }
        return Column(name, std::move(values), unit);
    };
    auto devices = std::make_shared<StringPool>();
    auto operations = std::make_shared<StringPool>();
    std::vector<std::int32_t> device;
    std::vector<std::int32_t> operation;
    std::vector<std::int32_t> rwbs;
    std::vector<std::uint16_t> buffer;
    for (const BlockRequest& request : sink.requests) {
        device.push_back(devices->intern(device_name(request.dev)));
        operation.push_back(operations->intern(std::string(1, request.operation)));
        rwbs.push_back(request.rwbs);
        buffer.push_back(request.buffer);
    }
    const std::string unit(file.time_unit(selection.buffer));
    std::vector<Column> columns;
    columns.emplace_back("device", std::move(device), std::move(devices));
    columns.push_back(numbers("sector", &BlockRequest::sector));
    columns.push_back(numbers("sectors", &BlockRequest::sectors));
    columns.emplace_back("operation", std::move(operation), std::move(operations));
    columns.emplace_back("rwbs", std::move(rwbs), sink.names);
    columns.push_back(numbers("pid", &BlockRequest::pid));
    columns.push_back(numbers("issuer", &BlockRequest::issuer));
    columns.push_back(numbers("completer", &BlockRequest::completer));
    columns.push_back(numbers("queued", &BlockRequest::queued, unit));
    columns.push_back(numbers("gotten", &BlockRequest::gotten, unit));
    columns.push_back(numbers("inserted", &BlockRequest::inserted, unit));
    columns.push_back(numbers("issued", &BlockRequest::issued, unit));
    columns.push_back(numbers("completed", &BlockRequest::completed, unit));
    columns.push_back(numbers("merges", &BlockRequest::merges));
    columns.push_back(numbers("error", &BlockRequest::error));
    BufferNames(file, selection.buffer).add_column(columns, buffer);
    return Table(std::move(columns), std::move(metadata));
}

}  // namespace sampleblk::trace
