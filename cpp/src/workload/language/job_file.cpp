// SPDX-License-Identifier: MIT
#include "sampleblk/workload/job_file.hpp"

#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <span>

#include "language/job_fixups.hpp"
#include "sampleblk/error.hpp"
#include "sampleblk/fd.hpp"
#include "sampleblk/workload/keys.hpp"

namespace sampleblk::workload {

namespace {

constexpr int deepest_include = 10;

struct Assignment {
    std::string key;
    std::optional<std::string> value;  // none: the key stood alone
    std::string source;
    std::uint32_t line = 0;
};

struct Section {
    std::string name;
    std::string source;
    std::uint32_t line = 0;
    std::vector<Assignment> assignments;
};

[[noreturn]] void refuse(const Assignment& at, const std::string& message, const std::string& expected = {}) {
    throw InputError(message, at.source, at.line, expected);
}

// "${HOME}" from the environment; a variable that is not set is an error, not an empty string.
std::string expand_environment(std::string_view text, const std::string& source, std::uint32_t line) {
    std::string out;
    for (;;) {
        const std::size_t start = text.find("${");
        const std::size_t end = start == std::string_view::npos ? start : text.find('}', start);
        if (end == std::string_view::npos) {
            return out + std::string(text);
        }
        const std::string name(text.substr(start + 2, end - start - 2));
        const char* value = std::getenv(name.c_str());
        if (value == nullptr) {
            throw InputError("the environment has no variable '" + name + "'", source, line, name + "=… in it");
        }
        out += text.substr(0, start);
        out += value;
        text.remove_prefix(end + 1);
    }
}

// fio's own words: $pagesize, $mb_memory, $ncpus. It calculates with them without parentheses, too: "2*$pagesize".
std::string expand_keywords(std::string text) {
    const std::string before = text;
    const auto replace = [&](std::string_view word, auto value) {
        for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word)) {
            text.replace(at, word.size(), std::to_string(value()));
        }
    };
    replace("$pagesize", [] { return ::sysconf(_SC_PAGESIZE); });
    replace("$ncpus", [] { return ::sysconf(_SC_NPROCESSORS_ONLN); });
    replace("$mb_memory", [] { return (::sysconf(_SC_PHYS_PAGES) / 1024) * (::sysconf(_SC_PAGESIZE) / 1024); });
    const bool calculates = text != before && text.find_first_of("+-*/") != std::string::npos &&
                            text.find_first_not_of("0123456789.+-*/%^() ") == std::string::npos;
    if (!calculates) {
        return text;
    }
    char digits[512];  // room for any double
    const auto end = std::to_chars(digits, digits + sizeof(digits), calculate(text), std::chars_format::fixed);
    return {digits, end.ptr};
}

// Sections out of lines; what the keys mean is not looked at here.
class Reader {
  public:
    void read(std::string_view text, const std::string& source, int depth) {
        std::uint32_t number = 0;
        while (!text.empty()) {
            const std::size_t end = text.find('\n');
            ++number;
            read_line(text.substr(0, end), source, number, depth);
            text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        }
    }

    [[nodiscard]] std::vector<Section> take() { return std::move(sections_); }

  private:
    void read_line(std::string_view raw, const std::string& source, std::uint32_t number, int depth) {
        // A comment starts anywhere, also behind a value, and cannot be quoted.
        const std::string_view bare = trim(raw.substr(0, raw.find_first_of(";#")));
        if (bare.empty()) {
            return;
        }
        const std::string line = expand_environment(bare, source, number);
        if (line.front() == '[') {
            const std::size_t close = line.rfind(']');
            if (close == std::string::npos || close == 1) {
                throw InputError("'" + line + "' is not a section header", source, number, "[name]");
            }
            // As fio: what follows the include would belong to a section that the reader does not see.
            if (depth > 0) {
                throw InputError("a section in an included file", source, number,
                                 "keys of the section that includes it");
            }
            sections_.push_back({.name = std::string(trim(std::string_view(line).substr(1, close - 1))),
                                 .source = source,
                                 .line = number,
                                 .assignments = {}});
            return;
        }
        const bool is_include = line.starts_with("include ") || line.starts_with("include\t");
        if (is_include && !sections_.empty()) {
            include(std::string(trim(std::string_view(line).substr(8))), source, number, depth);
            return;
        }
        if (sections_.empty()) {
            throw InputError("'" + line + "' stands before the first section", source, number,
                             "a section header such as [global] or [job1] above it");
        }
        const std::size_t equals = line.find('=');
        Assignment assignment{.key = std::string(trim(std::string_view(line).substr(0, equals))),
                              .value = std::nullopt,
                              .source = source,
                              .line = number};
        if (equals != std::string::npos) {
            assignment.value = std::string(trim(std::string_view(line).substr(equals + 1)));
        }
        sections_.back().assignments.push_back(std::move(assignment));
    }

    void include(const std::string& name, const std::string& source, std::uint32_t number, int depth) {
        if (depth >= deepest_include) {
            throw InputError("include '" + name + "' is nested more than 10 deep", source, number,
                             "files that do not include each other");
        }
        std::string path = name;
        const std::size_t slash = source.rfind('/');
        if (::access(path.c_str(), R_OK) != 0 && slash != std::string::npos && !name.starts_with('/')) {
            path = source.substr(0, slash + 1) + name;
        }
        std::string text;
        try {
            text = read_file(path);
        } catch (const SystemError& error) {
            throw InputError("include '" + name + "': " + error.what(), source, number, "a file that can be read");
        }
        read(text, path, depth + 1);
    }

    std::vector<Section> sections_;
};

// Applies one setting; returns a notice when it was left alone.
void apply(JobOptions& options, const Assignment& at, std::vector<Notice>& notices) {
    const Key* key = find_key(at.key);
    if (key == nullptr) {
        refuse(at, "unknown key '" + at.key + "'",
               "a key of fio's job files; the nearest is '" + std::string(nearest_key(at.key)) + "'");
    }
    if (key->support == Support::refused) {
        refuse(at, "key '" + at.key + "' is not supported and would change the result: " + std::string(key->help));
    }
    if (key->support == Support::accepted) {
        notices.push_back({.source = at.source,
                           .line = at.line,
                           .key = at.key,
                           .text = "does not change the result here: " + std::string(key->help)});
        return;
    }
    // Such as of direct=${DIRECT}. The key alone is something else: yes, or what is named after the job.
    if (at.value && trim(*at.value).empty() && !key->takes_nothing) {
        refuse(at, at.key + ": no value", at.key + "=VALUE" + (key->form == "bool" ? ", or the key alone" : ""));
    }
    // To the system, a name would end there: it would be another file.
    if (at.value && at.value->find('\0') != std::string::npos) {
        refuse(at, at.key + ": a byte 0 after '" + at.value->c_str() + "'", "a value without one");
    }
    try {
        key->apply(options, expand_keywords(at.value.value_or("")));
    } catch (const InputError& error) {
        refuse(at, at.key + ": " + error.message(), error.expected());
    }
}

// kb_base decides how every other size is read, so it goes first, wherever it stands.
void apply_all(JobOptions& options, const std::vector<Assignment>& assignments, std::vector<Notice>& notices) {
    for (const bool base_first : {true, false}) {
        for (const Assignment& assignment : assignments) {
            if ((assignment.key == "kb_base") == base_first) {
                apply(options, assignment, notices);
            }
        }
    }
}

std::vector<Setting> as_written(const std::vector<Assignment>& assignments) {
    std::vector<Setting> out;
    out.reserve(assignments.size());
    for (const Assignment& assignment : assignments) {
        out.emplace_back(assignment.key, assignment.value.value_or(""));
    }
    return out;
}

std::vector<Assignment> as_assignments(const std::vector<Setting>& settings, const std::string& source) {
    std::vector<Assignment> out;
    out.reserve(settings.size());
    for (const auto& [key, value] : settings) {
        out.push_back({.key = key, .value = value, .source = source, .line = 0});
    }
    return out;
}

// A value as it stands in a job file. Keywords may have one that would be read as another one there.
std::string_view as_text(std::string_view key, std::string_view value) {
    if (trim(value).size() != value.size() || value.find_first_of(";#\n") != std::string_view::npos ||
        value.find("${") != std::string_view::npos || !is_utf8(value)) {
        throw InputError(std::string(key) + ": '" + printable(value) + "' cannot be written in a job file", {}, 0,
                         "UTF-8 without ; # ${ and line breaks, nor blanks at its ends");
    }
    return value;
}

// Jobs out of sections: [global] settings hold for the sections below it.
JobSet build(const std::vector<Section>& sections, const std::string& source, const std::vector<Setting>& overrides) {
    JobSet set;
    set.source = source;
    std::vector<Assignment> globals;
    const std::vector<Assignment> last = as_assignments(overrides, "option");
    JobOptions defaults;
    for (const Section& section : sections) {
        if (section.name == "global") {
            apply_all(defaults, section.assignments, set.notices);
            globals.insert(globals.end(), section.assignments.begin(), section.assignments.end());
            continue;
        }
        if (section.name.find('\0') != std::string::npos) {  // files are named after it
            throw InputError(std::string("a byte 0 after '") + section.name.c_str() + "', the name of a job",
                             section.source, section.line, "a name without one");
        }
        JobOptions job = defaults;
        job.name = section.name;
        job.new_group = false;
        // The base must be known before any size, also before those of [global].
        const bool own_base =
            std::ranges::any_of(section.assignments, [](const Assignment& one) { return one.key == "kb_base"; }) ||
            std::ranges::any_of(last, [](const Assignment& one) { return one.key == "kb_base"; });
        std::vector<Assignment> own = section.assignments;
        own.insert(own.end(), last.begin(), last.end());
        if (own_base) {
            std::vector<Assignment> all = globals;
            all.insert(all.end(), own.begin(), own.end());
            job = JobOptions();
            job.name = section.name;
            apply_all(job, all, set.notices);
        } else {
            apply_all(job, own, set.notices);
        }
        job.given = as_written(own);
        job.globals = globals.size();
        try {
            add_job(set, std::move(job), {.source = section.source, .line = section.line, .key = {}, .text = {}});
        } catch (const InputError& error) {
            throw InputError("job '" + section.name + "': " + error.message(),
                             error.source().empty() ? section.source : error.source(),
                             error.source().empty() ? section.line : error.line(), error.expected());
        }
    }
    set.globals = as_written(globals);
    if (set.jobs.empty()) {
        throw InputError("no job", source, 0, "a section other than [global], such as [job1]");
    }
    check_jobs(set);
    return set;
}

}  // namespace

JobSet parse_job_text(std::string_view text, const std::string& source, const std::vector<Setting>& overrides) {
    Reader reader;
    reader.read(text, source, 0);
    return build(reader.take(), source, overrides);
}

JobSet read_job_file(const std::string& path, const std::vector<Setting>& overrides) {
    return parse_job_text(read_file(path), path, overrides);
}

JobSet parse_command_line(const std::vector<std::string>& arguments, const std::vector<Setting>& overrides) {
    std::vector<Section> sections = {{.name = "global", .source = "command line", .line = 0, .assignments = {}}};
    std::uint32_t position = 0;
    for (const std::string& argument : arguments) {
        ++position;
        if (!argument.starts_with("--")) {
            throw InputError("argument '" + argument + "' is not an option", "command line", position,
                             "--key=value, as fio's command line has it");
        }
        const std::size_t equals = argument.find('=');
        const std::string key = argument.substr(2, equals == std::string::npos ? equals : equals - 2);
        const std::optional<std::string> value =
            equals == std::string::npos ? std::nullopt : std::optional(argument.substr(equals + 1));
        if (key == "name") {
            if (!value || trim(*value).empty()) {
                throw InputError("--name has no value", "command line", position, "--name=job1");
            }
            sections.push_back(
                {.name = std::string(trim(*value)), .source = "command line", .line = position, .assignments = {}});
        } else {
            sections.back().assignments.push_back(
                {.key = key, .value = value, .source = "command line", .line = position});
        }
    }
    return build(sections, "command line", overrides);
}

JobSet make_job(const std::vector<Setting>& settings) {
    Section section{.name = "job", .source = "job", .line = 0, .assignments = as_assignments(settings, "job")};
    for (const auto& [key, value] : settings) {
        if (key == "name") {
            section.name = value;
        }
    }
    return build({section}, "job", {});
}

std::string write_job_file(const JobSet& set) {
    std::string out;
    const auto put_section = [&out](std::string_view name, std::span<const Setting> settings) {
        out += out.empty() ? "[" : "\n[";
        out += as_text("name", name);
        out += "]\n";
        for (const auto& [key, value] : settings) {
            if (key != "name") {
                out += key;
                if (!value.empty()) {
                    out += '=';
                    out += as_text(key, value);
                }
                out += '\n';
            }
        }
    };
    const std::span<const Setting> globals(set.globals);
    std::size_t put = 0;
    for (const JobOptions& job : set.jobs) {
        if (job.subjob_number == 0) {
            if (job.globals > put) {
                put_section("global", globals.subspan(put, job.globals - put));
                put = job.globals;
            }
            put_section(job.name, job.given);
        }
    }
    return out;
}

}  // namespace sampleblk::workload
