// SPDX-License-Identifier: MIT
#include "sampleblk/trace/tracefs.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <ranges>
#include <set>
#include <utility>

#include "recording/tracefs_shim.h"
#include "sampleblk/error.hpp"
#include "sampleblk/text.hpp"

namespace sampleblk::trace {

namespace {

// One line of an undo file: KIND TAB PATH TAB TEXT, the text in hex because control files hold line ends.
struct Note {
    std::string kind;
    std::string path;
    std::string text;
};

std::string to_hex(std::string_view text) {
    static constexpr char kDigits[] = "0123456789abcdef";
    std::string out;
    out.reserve(text.size() * 2);
    for (const char c : text) {
        out += kDigits[static_cast<unsigned char>(c) >> 4];
        out += kDigits[static_cast<unsigned char>(c) & 15];
    }
    return out;
}

std::string from_hex(std::string_view text) {
    const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
    std::string out;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
        out += static_cast<char>(digit(text[i]) * 16 + digit(text[i + 1]));
    }
    return out;
}

std::vector<Note> parse_notes(std::string_view text) {
    std::vector<Note> out;
    while (!text.empty()) {
        const auto end = text.find('\n');
        if (end == std::string_view::npos) {
            break;  // cut off by the kill: the change it announces was not made
        }
        const auto line = text.substr(0, end);
        text.remove_prefix(end + 1);
        const auto first = line.find('\t');
        const auto second = line.find('\t', first + 1);
        if (first != std::string_view::npos && second != std::string_view::npos) {
            out.push_back({std::string(line.substr(0, first)), std::string(line.substr(first + 1, second - first - 1)),
                           from_hex(line.substr(second + 1))});
        }
    }
    return out;
}

void make_directories(const std::string& path) {
    for (std::size_t at = path.find('/', 1);; at = path.find('/', at + 1)) {
        const std::string part = path.substr(0, at);
        if (mkdir(part.c_str(), 0755) != 0 && errno != EEXIST) {
            throw_errno("mkdir", part);
        }
        if (at == std::string::npos) {
            return;
        }
    }
}

std::string file_name(const std::string& path) {
    return path.substr(path.rfind('/') + 1);
}

// What of a buffer_size_kb says to what size the buffer will grow when first used: "1408" of "7 (expanded: 1408)".
std::optional<std::string_view> grown_size(std::string_view text) {
    static constexpr std::string_view before = "(expanded: ";
    const auto at = text.find(before);
    if (at == std::string_view::npos) {
        return std::nullopt;
    }
    text.remove_prefix(at + before.size());
    return text.substr(0, text.find(')'));
}

// What to write to a control file so that it holds again what reading it gave.
std::vector<std::string> restoring_writes(const std::string& path, const std::string& old) {
    const std::string name = file_name(path);
    std::string_view text = old;
    while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) {
        text.remove_suffix(1);
    }
    if (name == "trace_clock") {
        // Lists the clocks with the chosen one in brackets.
        const auto open = text.find('[');
        const auto close = text.find(']');
        if (open != std::string_view::npos && close != std::string_view::npos && close > open) {
            return {std::string(text.substr(open + 1, close - open - 1))};
        }
    }
    if (name == "buffer_size_kb") {
        if (text == "X") {
            return {};  // CPUs of several sizes
        }
        return {std::string(grown_size(text).value_or(text))};
    }
    if (name == "filter" && (text == "none" || text.starts_with("### global filter"))) {
        return {"0"};  // that of a system does not say what its events have
    }
    if (name == "snapshot") {
        // What was in it is gone; a spare buffer that was there stays.
        return text.find("* Snapshot is freed *") == std::string_view::npos ? std::vector<std::string>{}
                                                                            : std::vector<std::string>{"0"};
    }
    const bool list = name.starts_with("set_") || name == "tracing_cpumask";
    if (!list) {
        return {std::string(text)};
    }
    // Lists: one write each line, after the truncation that clears them. "#### all functions enabled ####" and
    // "no pid" stand for an empty list.
    std::vector<std::string> out;
    while (!text.empty()) {
        const auto end = std::min(text.find('\n'), text.size());
        // Behind the name of a function of a module stands " [module]", which is none that can be written.
        const auto line = text.substr(0, std::min(end, text.find(" [")));
        text.remove_prefix(std::min(end + 1, text.size()));
        if (!line.empty() && line.front() != '#' && line != "no pid") {
            out.emplace_back(line);
        }
    }
    return out;
}

// Until 5.11 /sys/block/DEVICE/trace/… answers ENXIO unless somebody has the device open
// (sysfs_blk_trace_attr_show() in kernel/trace/blktrace.c). For any other path: nothing.
Fd hold_traced_device(const std::string& path) {
    static constexpr std::string_view devices = "/sys/block/";
    const auto end = path.find("/trace/");
    if (!path.starts_with(devices) || end == std::string::npos) {
        return {};
    }
    const std::string node = "/dev/" + path.substr(devices.size(), end - devices.size());
    return Fd(::open(node.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));  // later kernels work without
}

void restore(const std::string& path, const std::string& old) {
    const Fd device = hold_traced_device(path);
    const std::string name = file_name(path);
    const auto writes = restoring_writes(path, old);
    if (name.starts_with("set_")) {
        write_control(path, name == "set_event" ? "" : "\n");  // O_TRUNC does the clearing
        for (const std::string& line : writes) {
            write_control(path, line, true);
        }
        return;
    }
    for (const std::string& text : writes) {
        write_control(path, text);
    }
}

bool exists(const std::string& path) {
    return access(path.c_str(), F_OK) == 0;
}

// What tells a directory from another one of the same name: tracefs gives out inode numbers in order.
std::string directory_identity(const std::string& path) {
    struct stat info{};
    if (stat(path.c_str(), &info) != 0) {
        throw_errno("stat", path);
    }
    return std::to_string(info.st_dev) + ":" + std::to_string(info.st_ino);
}

// The lines by which a list of dynamic events shows the event that `remove` ("-:group/name", "!name") takes away.
std::string listed_event(const std::string& path, std::string_view remove) {
    const bool synthetic = remove.starts_with('!');
    auto name = remove.substr(std::min<std::size_t>(synthetic ? 1 : 2, remove.size()));
    name = name.substr(0, name.find_first_of(" \t"));
    const std::string all = read_file(path);
    std::string_view rest = all;
    std::string out;
    while (!rest.empty()) {
        const auto end = std::min(rest.find('\n'), rest.size());
        const auto line = rest.substr(0, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
        auto word = line.substr(0, line.find_first_of(" \t;"));
        if (!synthetic) {
            const auto colon = word.find(':');  // "p:group/name", "r4:group/name"
            word = colon == std::string_view::npos ? std::string_view{} : word.substr(colon + 1);
        }
        if (!word.empty() && word == name) {
            out.append(line).append("\n");
        }
    }
    return out;
}

// Removes an instance: what still runs in it is stopped first, since rmdir refuses a busy one.
void remove_instance(const std::string& path) {
    for (const auto& [file, text] :
         {std::pair{"/tracing_on", "0"}, std::pair{"/events/enable", "0"}, std::pair{"/current_tracer", "nop"}}) {
        try {
            write_control(path + file, text);
        } catch (const SystemError& error) {
            (void)error;  // rmdir below tells whether it mattered
        }
    }
    // Readers let go of their files a moment after they are told to.
    for (int attempt = 0;; ++attempt) {
        if (rmdir(path.c_str()) == 0 || errno == ENOENT) {
            return;
        }
        if (errno != EBUSY || attempt == 50) {
            throw_errno("rmdir", path);
        }
        usleep(20'000);
    }
}

// Takes a dynamic event away, if it still is the one that was made.
bool remove_dynamic(const std::string& path, std::string_view note) {
    // The line that removes it, then the one by which the kernel listed it.
    const auto end = note.find('\n');
    const auto remove = note.substr(0, end);
    const auto made = end == std::string_view::npos ? std::string_view{} : note.substr(end + 1);
    const std::string now = listed_event(path, remove);
    if (now.empty()) {
        return false;
    }
    if (now != made) {
        throw SystemError("remove event", path, EEXIST,
                          "\"" + std::string(remove) + "\" would remove what was not made here: " + now);
    }
    write_control(path, remove, true);
    return true;
}

// Undoes one note; false when there was nothing to undo. `settled` are the things whose making came to an end.
bool undo_note(const Note& note, const std::set<std::string>& settled) {
    const auto what_was_made = [&note] { return note.path + "\n" + note.text; };
    if (note.kind == "made" || !exists(note.path)) {
        return false;  // says what became of a making, or went with its instance
    }
    if (note.kind == "making") {
        const bool there = note.text.empty() || !listed_event(note.path, note.text).empty();
        if (there && !settled.contains(what_was_made())) {
            throw SystemError("remove", note.path, EEXIST,
                              "it was being made when its maker died, and may be somebody else's: " +
                                  (note.text.empty() ? "rmdir " + note.path : note.text));
        }
        return false;
    }
    if (note.kind == "instance") {
        if (directory_identity(note.path) != note.text) {
            return false;  // ours is gone, and somebody made another
        }
        remove_instance(note.path);
        return true;
    }
    if (note.kind == "knob") {
        restore(note.path, note.text);
        return true;
    }
    if (note.kind == "dynamic") {
        return remove_dynamic(note.path, note.text);
    }
    try {
        write_control(note.path, note.text, true);
    } catch (const SystemError& error) {
        // A trigger that is already gone needs no undoing.
        if (error.code() != ENOENT && error.code() != EINVAL) {
            throw;
        }
        return false;
    }
    return true;
}

// Undoes notes, the newest first, and returns what of it failed. Dynamic events go last, when no instance uses them.
std::vector<std::string> undo_notes(const std::vector<Note>& notes, std::vector<std::string>* done) {
    std::set<std::string> settled;
    std::vector<const Note*> left;
    for (const Note& note : std::views::reverse(notes)) {
        left.push_back(&note);
        if (note.kind == "made") {
            settled.insert(note.path + "\n" + note.text);
        }
    }
    std::ranges::stable_partition(left, [](const Note* note) { return note->kind != "dynamic"; });
    std::vector<std::string> failed;
    // What is busy may be in use by what is undone after it.
    for (const bool again : {false, true}) {
        for (const Note* note : std::exchange(left, {})) {
            try {
                if (undo_note(*note, settled) && done != nullptr) {
                    done->push_back(note->kind + " " + note->path);
                }
            } catch (const SystemError& error) {
                if (error.code() == EBUSY && !again) {
                    left.push_back(note);
                } else {
                    failed.emplace_back(error.what());
                }
            }
        }
    }
    return failed;
}

}  // namespace

const std::string& tracefs_dir() {
    static const std::string dir = [] {
        errno = 0;
        const char* found = sblk_tracefs_dir();
        std::string path = mount_path(found != nullptr ? found : "");
        if (path.empty() || !exists(path + "/trace")) {
            throw UnsupportedError("tracing", "tracefs cannot be used: " + std::string(std::strerror(errno)),
                                   geteuid() == 0 ? "mount -t tracefs nodev /sys/kernel/tracing, on a kernel with "
                                                    "CONFIG_FTRACE"
                                                  : "run as root, or inside the VM with sampleblk-python");
        }
        return path;
    }();
    return dir;
}

void grow_buffer(const std::string& instance_dir) {
    const std::string path = instance_dir + "/buffer_size_kb";
    if (const std::string now = read_file(path); const auto size = grown_size(now)) {
        write_control(path, *size);
    }
}

namespace {

// The newest entry of an instance's error_log, or "" where there is none.
std::string last_error(const std::string& instance_dir) {
    std::string text;
    try {
        text = read_file(instance_dir + "/error_log");
    } catch (const SystemError&) {
        return {};  // kernels before 5.2
    }
    // Entries begin with "[  123.456789] ".
    std::size_t begin = text.rfind("\n[");
    begin = begin == std::string::npos ? 0 : begin + 1;
    text.erase(0, begin);
    while (!text.empty() && text.back() == '\n') {
        text.pop_back();
    }
    return text;
}

}  // namespace

void write_control(const std::string& path, std::string_view text, bool append) {
    const Fd fd = open_file(path, O_WRONLY | (append ? O_APPEND : O_TRUNC));  // without a text, that was the change
    // Of several words some files take one at a time.
    while (!text.empty()) {
        const ssize_t wrote = write(fd.get(), text.data(), text.size());
        if (wrote == 0) {
            return;
        }
        if (wrote > 0 || errno == EINTR) {
            text.remove_prefix(static_cast<std::size_t>(std::max<ssize_t>(wrote, 0)));
            continue;
        }
        const int code = errno;
        const auto events = path.find("/events/");
        const std::string dir = events != std::string::npos ? path.substr(0, events) : path.substr(0, path.rfind('/'));
        const std::string_view line = text.substr(0, text.find('\n'));
        std::string detail = "writing \"" + std::string(line) + "\"";
        if (code == EINVAL || code == ENOENT || code == ENODEV || code == EEXIST) {
            for (const std::string& where : {dir, tracefs_dir()}) {
                const std::string said = last_error(where);
                // Only what the kernel said of this very command: the log keeps older errors.
                const auto command = said.find("Command: ");
                if (command != std::string::npos && said.find(line, command) != std::string::npos) {
                    detail += "\n" + said.substr(said.find("] ") == std::string::npos ? 0 : said.find("] ") + 2);
                    break;
                }
            }
        }
        throw SystemError("write", path, code, detail);
    }
}

Marker::Marker(const std::string& instance_dir)
    : path_(instance_dir + "/trace_marker"), file_(open_file(path_, O_WRONLY)) {}

void Marker::write(std::string_view text) const {
    // A short write is the kernel's cut, not something to go on with: the rest would be a second event.
    while (!text.empty() && ::write(file_.get(), text.data(), text.size()) < 0) {
        if (errno != EINTR) {
            throw_errno("write", path_);
        }
    }
}

namespace {

// The undo logs of this process, which are not those of its forks: a fork has its parent's descriptors, and would hold
// the locks, so that a dead parent would be taken for one that lives.
class OpenLogs {
  public:
    static OpenLogs& instance() {
        static auto* const logs = new OpenLogs;  // never destroyed: a fork may come later
        return *logs;
    }
    void add(Fd* file) {
        const std::lock_guard lock(mutex_);
        files_.push_back(file);
    }
    void remove(Fd* file) {
        const std::lock_guard lock(mutex_);
        std::erase(files_, file);
    }

  private:
    OpenLogs() {
        const int error = pthread_atfork([] { instance().mutex_.lock(); }, [] { instance().mutex_.unlock(); },
                                         [] { instance().leave(); });
        if (error != 0) {
            throw SystemError("pthread_atfork", {}, error);
        }
    }
    void leave() {
        for (Fd* const file : files_) {
            file->reset();
        }
        files_.clear();
        mutex_.unlock();
    }

    std::mutex mutex_;
    std::vector<Fd*> files_;
};

}  // namespace

UndoLog::UndoLog(const std::string& directory) {
    static std::atomic<unsigned> counter{0};
    make_directories(directory);
    const std::string name = "trace-" + std::to_string(getpid()) + "-" + std::to_string(counter++);
    // Locked under another name first, so that nobody meets it unlocked.
    const std::string fresh = directory + "/." + name;
    path_ = directory + "/" + name + ".undo";
    file_ = open_file(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600);
    if (flock(file_.get(), LOCK_EX | LOCK_NB) != 0) {
        throw_errno("flock", fresh);
    }
    if (rename(fresh.c_str(), path_.c_str()) != 0) {
        throw_errno("rename", path_);
    }
    OpenLogs::instance().add(&file_);
}

UndoLog::~UndoLog() {
    try {
        (void)undo();
    } catch (...) {
        // A destructor cannot report; the undo file stays for the next start.
        file_.reset();
    }
    OpenLogs::instance().remove(&file_);
}

void UndoLog::note(std::string_view kind, const std::string& path, std::string_view text) {
    std::string line(kind);
    line.append("\t").append(path).append("\t").append(to_hex(text)).append("\n");
    write_full(file_.get(), line, path_);
}

void UndoLog::set(const std::string& path, std::string_view text, bool append) {
    const Fd device = hold_traced_device(path);
    if (std::ranges::find(kept_, path) == kept_.end()) {
        note("knob", path, read_file(path));
        kept_.push_back(path);
    }
    write_control(path, text, append);
}

// Makes something and notes it by its identity. A "making" note before tells of a maker that died in between; "made"
// ends it, whether or not there is something to undo.
template <typename Make, typename Identity, typename Remove>
void UndoLog::make(std::string_view kind, const std::string& path, std::string_view what, const Make& make_it,
                   const Identity& identity, const Remove& remove) {
    note("making", path, what);
    try {
        make_it();
    } catch (...) {
        note("made", path, what);
        throw;
    }
    try {
        note(kind, path, identity());
        note("made", path, what);
    } catch (...) {
        remove();  // what cannot be noted must not stay
        throw;
    }
}

void UndoLog::make_instance(const std::string& path) {
    if (exists(path)) {
        throw SystemError("mkdir", path, EEXIST, "this instance is somebody else's");
    }
    make(
        "instance", path, {},
        [&path] {
            if (mkdir(path.c_str(), 0750) != 0) {
                throw_errno("mkdir", path);
            }
        },
        [&path] { return directory_identity(path); }, [&path] { remove_instance(path); });
}

void UndoLog::add_dynamic(const std::string& path, std::string_view line, std::string_view remove) {
    if (const std::string there = listed_event(path, remove); !there.empty()) {
        throw SystemError("write", path, EEXIST, "the event is there already: " + there.substr(0, there.find('\n')));
    }
    make(
        "dynamic", path, remove, [&] { write_control(path, line, true); },
        [&] { return std::string(remove) + "\n" + listed_event(path, remove); },
        [&] { write_control(path, remove, true); });
}

void UndoLog::add_line(const std::string& path, std::string_view line, std::string_view remove) {
    write_control(path, line, true);
    try {
        note("line", path, remove);
    } catch (...) {
        write_control(path, remove, true);
        throw;
    }
}

std::vector<std::string> UndoLog::undo() {
    if (!file_) {
        return {};
    }
    const auto notes = parse_notes(read_file(path_));
    auto failed = undo_notes(notes, nullptr);
    if (unlink(path_.c_str()) != 0 && errno != ENOENT) {
        failed.emplace_back(SystemError("unlink", path_, errno).what());
    }
    file_.reset();
    return failed;
}

std::vector<std::string> recover(const std::string& directory) {
    std::vector<std::string> done;
    const std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(directory.c_str()), &closedir);
    if (!dir) {
        if (errno == ENOENT) {
            return done;
        }
        throw_errno("opendir", directory);
    }
    std::vector<std::string> files;
    while (const dirent* entry = readdir(dir.get())) {
        const std::string name = entry->d_name;
        if (name.ends_with(".undo")) {
            files.push_back(std::filesystem::path(directory) / name);
        }
    }
    // Of one process the newest first, which may use what those before it made: its number is the name's end.
    std::ranges::sort(files, std::ranges::greater{},
                      [](const std::string& path) { return std::pair(path.size(), path); });
    for (const std::string& path : files) {
        try {
            const Fd fd = open_file(path, O_RDWR);
            if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
                continue;  // its owner lives
            }
            const auto failed = undo_notes(parse_notes(read_file(path)), &done);
            for (const std::string& line : failed) {
                done.push_back("not undone: " + line);
            }
            (void)unlink(path.c_str());
        } catch (const SystemError& error) {
            if (error.code() != ENOENT) {
                throw;
            }
        }
    }
    return done;
}

}  // namespace sampleblk::trace
