// SPDX-License-Identifier: MIT
#include "sampleblk/trace/block.hpp"

#include <array>
#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "field_reader.hpp"
#include "sampleblk/trace/decode.hpp"
#include "text.hpp"

namespace sampleblk::trace {

namespace {

enum class Action : std::uint8_t {
    none,
    queue,
    get,
    insert,
    issue,
    complete,
    bio_complete,
    merge_back,
    merge_front,
    merge_requests,
    split,
    plug,
    unplug,
    requeue
};

struct Name {
    std::string_view event;
    Action action;
};

constexpr Name kEvents[] = {
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

struct Role {
    Action action = Action::none;
    std::uint32_t fixed_size = 0;
    FieldReader pid, dev, sector, sectors, error;
    std::uint32_t rwbs_offset = 0;
    std::uint32_t rwbs_size = 0;
};

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

struct Request {
    std::uint32_t dev = 0;
    std::uint64_t sector = 0;
    std::uint32_t sectors = 0;
    char operation = 'N';
    std::int32_t rwbs = -1;
    std::int32_t pid = 0;
    std::int32_t issuer = -1, completer = -1;
    std::uint64_t queued = 0, gotten = 0, inserted = 0, issued = 0, completed = 0;
    std::uint32_t merges = 0;
    std::int32_t error = 0;
    bool swallowed = false;  // merged into another
};

using Key = std::tuple<std::uint32_t, std::uint64_t, char>;

class BlockSink {
  public:
    explicit BlockSink(const TraceFile& file) : swap_(swap_needed(file.big_endian())), roles_(std::size_t{1} << 16) {
        for (const EventFormat& format : file.formats()) {
            if (format.system != "block" || file.find_event(format.id) != &format) {
                continue;
            }
            for (const Name& name : kEvents) {
                if (format.name == name.event) {
                    add_role(format, name.action);
                }
            }
        }
    }

    void record(const Event& event) {
        if (event.size < 2) [[unlikely]] {
            return;
        }
        const Role* role = roles_[load<std::uint16_t>(event.data, swap_)].get();
        if (role == nullptr || event.size < role->fixed_size) {
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
        Request now;
        now.dev = static_cast<std::uint32_t>(role->dev.get(event.data));
        now.sector = role->sector.get(event.data);
        now.sectors = static_cast<std::uint32_t>(role->sectors.get(event.data));
        now.pid = static_cast<std::int32_t>(role->pid.get(event.data));
        std::string_view rwbs(reinterpret_cast<const char*>(event.data + role->rwbs_offset), role->rwbs_size);
        rwbs = rwbs.substr(0, rwbs.find('\0'));
        now.operation = operation_of(rwbs);
        if (now.operation == 'F') {
            now.sector = 0;  // a flush has no place; its completion says -1
        }
        now.rwbs = names->intern(printable(rwbs));
        step(role->action, now, event.time, static_cast<std::int32_t>(role->error.get(event.data)));
    }
    void missed(std::uint32_t cpu, std::uint64_t time, std::uint64_t count) const {
        (void)cpu;
        (void)time;
        (void)count;
    }
    void flush() const {}

    std::vector<Request> requests;
    std::shared_ptr<StringPool> names = std::make_shared<StringPool>();
    std::uint64_t plugs = 0, unplugs = 0, splits = 0, requeues = 0, merges = 0, unpaired = 0, flush_sequences = 0;

  private:
    void add_role(const EventFormat& format, Action action) {
        Role role;
        role.action = action;
        role.fixed_size = format.fixed_size;
        role.pid = FieldReader(format, "common_pid", swap_);
        role.dev = FieldReader(format, "dev", swap_);
        role.sector = FieldReader(format, "sector", swap_);
        role.sectors = FieldReader(format, "nr_sector", swap_);
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

    static Key key(const Request& request) { return {request.dev, request.sector, request.operation}; }

    // The open request there, or a new one: the recording may begin anywhere in a request's life.
    Request& open(const Request& now) {
        const auto [entry, fresh] = open_.try_emplace(key(now), requests.size());
        if (fresh) {
            requests.push_back(now);
        }
        return requests[entry->second];
    }

    void step(Action action, const Request& now, std::uint64_t time, std::int32_t error) {
        switch (action) {
            case Action::queue: {
                // The same place queued again is a new life, unless the old one has not gone anywhere yet.
                const auto old = open_.find(key(now));
                if (old != open_.end() && requests[old->second].queued != 0) {
                    open_.erase(old);
                }
                Request& request = open(now);
                request.queued = time;
                break;
            }
            case Action::get:
                open(now).gotten = time;
                break;
            case Action::insert: {
                Request& request = open(now);
                request.inserted = time;
                request.sectors = now.sectors;
                break;
            }
            case Action::issue: {
                Request& request = open(now);
                request.issued = time;
                request.issuer = now.pid;
                request.sectors = now.sectors;
                request.rwbs = now.rwbs;
                break;
            }
            case Action::complete:
            case Action::bio_complete: {
                const auto found = open_.find(key(now));
                if (found == open_.end()) {
                    // A bio whose request completed already, a write ending again after the flush behind it, or
                    // a request from before the recording.
                    if (action == Action::complete) {
                        ++(now.sectors == 0 ? flush_sequences : unpaired);
                    }
                    break;
                }
                Request& request = requests[found->second];
                if (action == Action::bio_complete && (request.issued != 0 || request.gotten != 0)) {
                    break;  // its request's completion says it all
                }
                request.completed = time;
                request.completer = now.pid;
                request.error = error < 0 ? -error : error;
                open_.erase(found);
                break;
            }
            case Action::merge_back:
            case Action::merge_front:
                merge(action, now);
                break;
            case Action::merge_requests:
                ++merges;
                break;
            case Action::split:
                ++splits;
                break;
            case Action::requeue:
                ++requeues;
                break;
            default:
                break;
        }
    }

    // A bio that was queued joins a request that ends where it begins, or begins where it ends.
    void merge(Action action, const Request& now) {
        ++merges;
        if (const auto bio = open_.find(key(now)); bio != open_.end()) {
            requests[bio->second].swallowed = true;
            open_.erase(bio);
        }
        if (action == Action::merge_front) {
            const auto found = open_.find(Key{now.dev, now.sector + now.sectors, now.operation});
            if (found != open_.end()) {
                const std::size_t index = found->second;
                open_.erase(found);
                requests[index].sector = now.sector;
                requests[index].sectors += now.sectors;
                ++requests[index].merges;
                open_.insert_or_assign(key(now), index);
            }
            return;
        }
        // The last open request that begins before: keys are ordered by device, then sector.
        auto at = open_.lower_bound(Key{now.dev, now.sector, '\0'});
        while (at != open_.begin()) {
            --at;
            Request& request = requests[at->second];
            if (request.dev != now.dev) {
                return;
            }
            if (request.operation == now.operation && request.sector + request.sectors == now.sector) {
                request.sectors += now.sectors;
                ++request.merges;
                return;
            }
        }
    }

    bool swap_;
    std::vector<std::unique_ptr<Role>> roles_;
    std::map<Key, std::size_t> open_;
};

}  // namespace

Table block_table(const TraceFile& file, const Selection& selection) {
    BlockSink sink(file);
    const WalkStats stats = walk(file, selection, sink);
    auto metadata = loss_metadata(file, stats);
    for (const auto& [name, count] :
         {std::pair{"plugs", sink.plugs}, std::pair{"unplugs", sink.unplugs}, std::pair{"splits", sink.splits},
          std::pair{"requeues", sink.requeues}, std::pair{"merges", sink.merges}, std::pair{"unpaired", sink.unpaired},
          std::pair{"flush_sequences", sink.flush_sequences}}) {
        metadata[name] = std::to_string(count);
    }
    std::erase_if(sink.requests, [](const Request& request) { return request.swallowed; });
    const auto numbers = [&sink](const char* name, auto member, const char* unit = "") {
        std::vector<std::decay_t<decltype(std::declval<Request>().*member)>> values;
        values.reserve(sink.requests.size());
        for (const Request& request : sink.requests) {
            values.push_back(request.*member);
        }
        return Column(name, std::move(values), unit);
    };
    auto devices = std::make_shared<StringPool>();
    auto operations = std::make_shared<StringPool>();
    std::vector<std::int32_t> device;
    std::vector<std::int32_t> operation;
    std::vector<std::int32_t> rwbs;
    for (const Request& request : sink.requests) {
        // The kernel's own dev_t: 12 bits of major, 20 of minor.
        device.push_back(
            devices->intern(std::to_string(request.dev >> 20) + "," + std::to_string(request.dev & 0xfffff)));
        operation.push_back(operations->intern(std::string(1, request.operation)));
        rwbs.push_back(request.rwbs);
    }
    std::vector<Column> columns;
    columns.emplace_back("device", std::move(device), std::move(devices));
    columns.push_back(numbers("sector", &Request::sector));
    columns.push_back(numbers("sectors", &Request::sectors));
    columns.emplace_back("operation", std::move(operation), std::move(operations));
    columns.emplace_back("rwbs", std::move(rwbs), sink.names);
    columns.push_back(numbers("pid", &Request::pid));
    columns.push_back(numbers("issuer", &Request::issuer));
    columns.push_back(numbers("completer", &Request::completer));
    columns.push_back(numbers("queued", &Request::queued, "ns"));
    columns.push_back(numbers("gotten", &Request::gotten, "ns"));
    columns.push_back(numbers("inserted", &Request::inserted, "ns"));
    columns.push_back(numbers("issued", &Request::issued, "ns"));
    columns.push_back(numbers("completed", &Request::completed, "ns"));
    columns.push_back(numbers("merges", &Request::merges));
    columns.push_back(numbers("error", &Request::error));
    return Table(std::move(columns), std::move(metadata));
}

}  // namespace sampleblk::trace
