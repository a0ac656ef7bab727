// SPDX-License-Identifier: MIT
#include <array>
#include <cstdio>

#include "key_setters.hpp"
#include "key_tables.hpp"

namespace sampleblk::workload {

namespace {

using namespace setters;

constexpr std::array<Word<Verify>, 25> verify_words = {{{"0", Verify::none},
                                                        {"none", Verify::none},
                                                        {"md5", Verify::md5},
                                                        {"crc64", Verify::crc64},
                                                        {"crc32", Verify::crc32},
                                                        {"crc32c", Verify::crc32c},
                                                        {"crc32c-intel", Verify::crc32c},
                                                        {"crc16", Verify::crc16},
                                                        {"crc7", Verify::crc7},
                                                        {"xxhash", Verify::xxhash},
                                                        {"sha1", Verify::sha1},
                                                        {"sha256", Verify::sha256},
                                                        {"sha512", Verify::sha512},
                                                        {"sha3-224", Verify::sha3_224},
                                                        {"sha3-256", Verify::sha3_256},
                                                        {"sha3-384", Verify::sha3_384},
                                                        {"sha3-512", Verify::sha3_512},
                                                        {"meta", Verify::header_only},
                                                        {"pattern", Verify::pattern},
                                                        {"pattern_hdr", Verify::pattern_hdr},
                                                        {"header_only", Verify::header_only},
                                                        {"null", Verify::null},
                                                        {"md5sum", Verify::md5},
                                                        {"crc32c_intel", Verify::crc32c},
                                                        {"1", Verify::md5}}};

int hex_digit(char c) {
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    const char low = static_cast<char>(c | 0x20);
    return low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
}

[[noreturn]] void bad_pattern(std::string_view text, std::string_view why) {
    throw InputError("pattern '" + std::string(text) + "' " + std::string(why), {}, 0,
                     R"(parts such as "text", 0xdeadbeef, -12, %o or 'file')");
}

// fio's parts may follow one another with nothing between them: "abcd"-12'filename'0xff%o
Pattern parse_pattern(std::string_view text) {
    constexpr std::size_t longest = 512;
    Pattern pattern;
    std::string_view rest = trim(text);
    while (!rest.empty()) {
        const char first = rest.front();
        if (first == '"') {
            const std::size_t end = rest.find('"', 1);
            if (end == std::string_view::npos) {
                bad_pattern(text, "lacks a closing quote");
            }
            pattern.bytes += rest.substr(1, end - 1);
            rest.remove_prefix(end + 1);
        } else if (first == '\'') {
            const std::size_t end = rest.find('\'', 1);
            if (end == std::string_view::npos) {
                bad_pattern(text, "lacks a closing quote");
            }
            const std::string path(rest.substr(1, end - 1));
            std::FILE* file = std::fopen(path.c_str(), "rbe");
            if (file == nullptr) {
                throw_errno("open", path);
            }
            std::array<char, longest> bytes{};
            const std::size_t got = std::fread(bytes.data(), 1, bytes.size(), file);
            (void)std::fclose(file);
            pattern.bytes.append(bytes.data(), got);
            rest.remove_prefix(end + 1);
        } else if (rest.starts_with("%o")) {
            pattern.offset_fields.push_back(pattern.bytes.size());
            pattern.bytes.append(8, '\0');
            rest.remove_prefix(2);
        } else if (rest.starts_with("0x") || rest.starts_with("0X")) {
            rest.remove_prefix(2);
            std::size_t digits = 0;
            while (digits < rest.size() && hex_digit(rest[digits]) >= 0) {
                ++digits;
            }
            if (digits == 0) {
                bad_pattern(text, "has no hexadecimal digits after 0x");
            }
            // An odd number of digits means a leading zero; bytes are in the order written.
            std::size_t at = 0;
            if (digits % 2 != 0) {
                pattern.bytes.push_back(static_cast<char>(hex_digit(rest[at++])));
            }
            for (; at < digits; at += 2) {
                pattern.bytes.push_back(static_cast<char>(hex_digit(rest[at]) * 16 + hex_digit(rest[at + 1])));
            }
            rest.remove_prefix(digits);
        } else if (first == '-' || (first >= '0' && first <= '9')) {
            std::size_t length = 1;
            while (length < rest.size() && rest[length] >= '0' && rest[length] <= '9') {
                ++length;
            }
            // A decimal is a C int, little-endian, without its leading zero bytes.
            auto value = static_cast<std::uint32_t>(parse_number(rest.substr(0, length)));
            do {
                pattern.bytes.push_back(static_cast<char>(value & 0xff));
                value >>= 8;
            } while (value != 0);
            rest.remove_prefix(length);
        } else {
            bad_pattern(text, "has a part that is none");
        }
        if (pattern.bytes.size() > longest) {
            bad_pattern(text, "is longer than 512 bytes");
        }
        rest = trim(rest);
    }
    if (pattern.bytes.empty()) {
        bad_pattern(text, "is empty");
    }
    return pattern;
}

void set_buffer_pattern(JobOptions& options, std::string_view text) {
    options.buffer_pattern = parse_pattern(text);
    options.scramble_buffers = false;
}

void set_verify_pattern(JobOptions& options, std::string_view text) {
    options.verify_pattern = parse_pattern(text);
}

void set_verify(JobOptions& options, std::string_view text) {
    options.verify = pick(verify_words, text);
}

constexpr Key table[] = {
    {"zero_buffers", "", "bool", "0", Effect::result, Support::full, "write zeroes", flag<&JobOptions::zero_buffers>},
    {"refill_buffers", "", "bool", "0", Effect::result, Support::full, "new contents for every write",
     flag<&JobOptions::refill_buffers>},
    {"scramble_buffers", "", "bool", "1", Effect::result, Support::full, "change a few bytes in every 512",
     flag<&JobOptions::scramble_buffers>},
    {"buffer_pattern", "", "pattern", "", Effect::result, Support::full, "contents of the writes", set_buffer_pattern},
    {"buffer_compress_percentage", "", "percent", "0", Effect::result, Support::full, "how well the writes compress",
     number<&JobOptions::compress_percentage, 0, 100>},
    {"buffer_compress_chunk", "", "size", "512", Effect::result, Support::full, "size of a part that compresses",
     number<&JobOptions::compress_chunk_bytes, 1>},
    {"dedupe_percentage", "", "percent", "0", Effect::result, Support::full, "writes that repeat earlier ones",
     number<&JobOptions::dedupe_percentage, 0, 100>},
    {"dedupe_mode", "", "repeat", "repeat", Effect::result, Support::full,
     "repeat the last one; working_set is not there",
     [](JobOptions& /*options*/, std::string_view text) {
         constexpr std::array<Word<int>, 1> modes = {{{"repeat", 0}}};
         (void)pick(modes, text);
     }},
    {"dedupe_working_set_percentage", "", "percent", "", Effect::result, Support::refused, "see dedupe_mode", nullptr},
    {"dedupe_global", "", "bool", "0", Effect::result, Support::refused, "see dedupe_mode", nullptr},
    {"verify", "", "crc32c|md5|…|pattern|null", "0", Effect::result, Support::full, "check data that was written",
     set_verify},
    {"do_verify", "", "bool", "1", Effect::result, Support::full, "read back after writing",
     flag<&JobOptions::do_verify>},
    {"verify_only", "", "bool", "0", Effect::result, Support::full, "check what an earlier run wrote",
     flag<&JobOptions::verify_only>},
    {"verify_interval", "", "size", "bs", Effect::result, Support::full, "a header every so many bytes",
     number<&JobOptions::verify_interval_bytes>},
    {"verify_offset", "", "size", "0", Effect::result, Support::full, "where in a block its header is",
     number<&JobOptions::verify_offset_bytes>},
    {"verify_pattern", "", "pattern", "", Effect::result, Support::full, "contents to write and to expect",
     set_verify_pattern},
    {"verify_fatal", "", "bool", "0", Effect::result, Support::full, "stop at the first mismatch",
     flag<&JobOptions::verify_fatal>},
    {"verify_dump", "", "bool", "0", Effect::report, Support::full, "write expected and found blocks to files",
     flag<&JobOptions::verify_dump>},
    {"verify_backlog", "", "int", "0", Effect::result, Support::full, "verify after so many writes",
     number<&JobOptions::verify_backlog>},
    {"verify_backlog_batch", "", "int", "verify_backlog", Effect::result, Support::full, "how many then",
     number<&JobOptions::verify_backlog_batch>},
    {"verify_async", "", "int", "0", Effect::result, Support::accepted, "blocks are checked by the job itself",
     nullptr},
    {"verify_async_cpus", "", "list", "", Effect::result, Support::accepted, "see verify_async", nullptr},
    {"experimental_verify", "", "bool", "0", Effect::result, Support::accepted,
     "what was written is always replayed from the same random choices", nullptr},
    {"verify_state_save", "", "bool", "0", Effect::report, Support::accepted, "no state file is needed", nullptr},
    {"verify_state_load", "", "bool", "0", Effect::result, Support::refused, "fio's state files are not read", nullptr},
    {"verify_header_seed", "", "bool", "1", Effect::result, Support::accepted, "headers carry no seed", nullptr},
    {"verify_write_sequence", "", "bool", "1", Effect::result, Support::accepted, "headers carry no sequence", nullptr},
};

}  // namespace

std::span<const Key> data_keys() {
    return table;
}

}  // namespace sampleblk::workload
