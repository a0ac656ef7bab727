// SPDX-License-Identifier: MIT
// The control files of tracefs, and the promise that whatever is changed there is put back, and nothing else: the old
// text of a control file is noted in an undo file before the change, what is made (an instance, a dynamic event, a
// trigger) after the making and by its identity, so that what was there before, or what somebody else made in its place
// since, is never removed. The owner of an undo file holds it locked. Whoever comes next finds the undo files of the
// dead.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sampleblk/fd.hpp"

namespace sampleblk::trace {

// Where tracefs is mounted (mounted by us where it was not). Throws UnsupportedError with the reason.
[[nodiscard]] const std::string& tracefs_dir();

// Writes one control file. A refusal is a SystemError that carries what error_log says of it, with the caret line.
void write_control(const std::string& path, std::string_view text, bool append = false);

// Grows a buffer to what it would grow to when first used: kernels up to 6.6 forget that it would once the size of any
// instance is set.
void grow_buffer(const std::string& instance_dir);

// Puts lines of our own into a trace, as ftrace:print events; one write(2) each.
class Marker {
  public:
    // `instance_dir` is the top level or an instance. Throws SystemError where it has no trace_marker.
    explicit Marker(const std::string& instance_dir);

    // The kernel cuts a text that is longer than a page; an empty one is not written. Any thread may call.
    void write(std::string_view text) const;

  private:
    std::string path_;
    Fd file_;
};

class UndoLog {
  public:
    // Creates and locks DIRECTORY/trace-PID-N.undo. In a fork of this process it is as if it had been undone already.
    explicit UndoLog(const std::string& directory);
    UndoLog(const UndoLog&) = delete;
    UndoLog& operator=(const UndoLog&) = delete;
    UndoLog(UndoLog&&) = delete;
    UndoLog& operator=(UndoLog&&) = delete;
    ~UndoLog();

    // Writes `text` to the control file, after noting what it held. Only the first change of a file is noted.
    void set(const std::string& path, std::string_view text, bool append = false);
    // Makes an ftrace instance, which is removed again. Throws SystemError: EEXIST for one that is there already.
    void make_instance(const std::string& path);
    // Adds a line to a list of dynamic events (kprobe_events, uprobe_events, synthetic_events, dynamic_events);
    // `remove` is the line that takes the event away again: "-:group/name", or "!name" of a synthetic one. Throws
    // SystemError, EEXIST for an event of that name that is there already (the kernel itself would extend a probe).
    void add_dynamic(const std::string& path, std::string_view line, std::string_view remove);
    // Adds a line to a control file that takes it away again by another, such as a trigger and its "!…". The kernel
    // refuses (EEXIST) what is there already.
    void add_line(const std::string& path, std::string_view line, std::string_view remove);

    // Puts everything back, newest first, and removes the file. What cannot be put back, and what is no longer what was
    // made, is returned as text, a line each; the rest is put back all the same. Does nothing the second time.
    std::vector<std::string> undo();

    [[nodiscard]] const std::string& path() const noexcept { return path_; }

  private:
    void note(std::string_view kind, const std::string& path, std::string_view text);
    template <typename Make, typename Identity, typename Remove>
    void make(std::string_view kind, const std::string& path, std::string_view what, const Make& make_it,
              const Identity& identity, const Remove& remove);

    std::string path_;
    Fd file_;
    std::vector<std::string> kept_;
};

// Undoes what processes that died left behind in DIRECTORY; returns a line for each thing put back.
std::vector<std::string> recover(const std::string& directory);

}  // namespace sampleblk::trace
