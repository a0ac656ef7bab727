// SPDX-License-Identifier: MIT
#include <array>
#include <charconv>
#include <cstring>

#include "language/key_tables.hpp"
#include "language/setters.hpp"
#include "sampleblk/fd.hpp"

namespace sampleblk::workload {

namespace {

using namespace setters;

// In the order of Verify.
constexpr char verify_words[] =
    "none|0 md5|1|md5sum crc64 crc32 crc32c|crc32c-intel|crc32c_intel crc16 crc7 xxhash sha1 sha256 sha512 sha3-224 "
    "sha3-256 sha3-384 sha3-512 pattern pattern_hdr header_only|meta null";
constexpr char dedupe_words[] = "repeat !working_set";

[[noreturn]] void bad_pattern(std::string_view text, std::string_view why) {
    throw InputError("pattern '" + std::string(text) + "' " + std::string(why), {}, 0,
                     R"(parts such as "text", 0xdeadbeef, -12, %o or 'file')");
}

bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool starts_hex(std::string_view text) {
    return text.size() > 2 && text[0] == '0' && (text[1] | 0x20) == 'x' && is_hex(text[2]);
}

// fio's parts may follow one another with nothing between them: "abcd"-12'filename'0xff%o
class PatternParser {
  public:
    explicit PatternParser(std::string_view text) : text_(trim(text)), rest_(text_) {}

    Pattern parse() {
        constexpr std::size_t longest = 512;
        while (!rest_.empty()) {
            take_part();
            if (pattern_.bytes.size() > longest) {
                bad_pattern(text_, "is longer than 512 bytes");
            }
            rest_ = trim(rest_);
        }
        if (pattern_.bytes.empty()) {
            bad_pattern(text_, "is empty");
        }
        return std::move(pattern_);
    }

  private:
    void take_part() {
        const char first = rest_.front();
        if (first == '"') {
            pattern_.bytes += quoted('"');
        } else if (first == '\'') {
            take_file(std::string(quoted('\'')));
        } else if (rest_.starts_with("%o")) {
            pattern_.offset_fields.push_back(pattern_.bytes.size());
            pattern_.bytes.append(8, '\0');
            rest_.remove_prefix(2);
        } else if (starts_hex(rest_)) {
            take_hex();
        } else if (first == '-' || (first >= '0' && first <= '9')) {
            take_decimal();
        } else {
            bad_pattern(text_, "has a malformed part");
        }
    }

    std::string_view quoted(char quote) {
        const std::size_t end = rest_.find(quote, 1);
        if (end == std::string_view::npos) {
            bad_pattern(text_, "lacks a closing quote");
        }
        const std::string_view inside = rest_.substr(1, end - 1);
        rest_.remove_prefix(end + 1);
        return inside;
    }

    void take_file(const std::string& path) {
        try {
            std::array<std::byte, 512> bytes{};
            const Fd file = open_file(path, O_RDONLY);
            const std::size_t got = read_full(file.get(), bytes, path);
            pattern_.bytes.append(reinterpret_cast<const char*>(bytes.data()), got);
        } catch (const SystemError& error) {
            bad_pattern(text_, std::string("names a file that cannot be read: ") + std::strerror(error.code()));
        }
    }

    void take_hex() {
        rest_.remove_prefix(2);
        std::size_t digits = 0;
        while (digits < rest_.size() && is_hex(rest_[digits])) {
            ++digits;
        }
        if (starts_hex(rest_.substr(digits - 1))) {
            --digits;  // 0xff0x14: the last 0 begins the next number
        }
        // An odd number of digits means a leading zero; bytes are in the order written.
        for (std::size_t at = 0; at < digits;) {
            const std::size_t length = at == 0 && digits % 2 != 0 ? 1 : 2;
            std::uint8_t byte = 0;
            (void)std::from_chars(rest_.data() + at, rest_.data() + at + length, byte, 16);
            pattern_.bytes.push_back(static_cast<char>(byte));
            at += length;
        }
        rest_.remove_prefix(digits);
    }

    // A C int, little-endian, without its leading zero bytes.
    void take_decimal() {
        std::size_t length = 1;
        while (length < rest_.size() && rest_[length] >= '0' && rest_[length] <= '9' &&
               !starts_hex(rest_.substr(length))) {
            ++length;
        }
        std::int32_t number = 0;
        const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + length, number);
        if (error != std::errc()) {
            bad_pattern(text_, "has a number that is not one of 32 bits");
        }
        auto value = static_cast<std::uint32_t>(number);
        do {
            pattern_.bytes.push_back(static_cast<char>(value & 0xff));
            value >>= 8;
        } while (value != 0);
        rest_.remove_prefix(length);
    }

    std::string_view text_;
    std::string_view rest_;
    Pattern pattern_;
};

void set_buffer_pattern(JobOptions& options, std::string_view text) {
    options.buffer_pattern = PatternParser(text).parse();
    options.zero_buffers = false;
}

void set_scramble_buffers(JobOptions& options, std::string_view text) {
    options.scramble_buffers = parse_bool(text);
    options.scramble_buffers_given = true;
}

void set_refill_buffers(JobOptions& options, std::string_view text) {
    options.refill_buffers = parse_bool(text);
    options.refill_buffers_given = true;
}

void set_verify(JobOptions& options, std::string_view text) {
    options.verify = static_cast<Verify>(pick(verify_words, text));
    options.verify_given = true;
}

void set_verify_pattern(JobOptions& options, std::string_view text) {
    options.verify_pattern = PatternParser(text).parse();
}

constexpr Key table[] = {
    key("zero_buffers", "bool", "0", "write zeroes", flag<&JobOptions::zero_buffers>),
    key("refill_buffers", "bool", "0", "new contents for every write", set_refill_buffers),
    key("scramble_buffers", "bool", "1", "change a few bytes in every 512", set_scramble_buffers),
    key("buffer_pattern", "pattern", "", "contents of the writes", set_buffer_pattern),
    key("buffer_compress_percentage", "percent", "0", "how well the writes compress",
        number<&JobOptions::compress_percentage, 0, 100>),
    key("buffer_compress_chunk", "size", "512", "size of a part that compresses",
        number<&JobOptions::compress_chunk_bytes, 1>),
    key("dedupe_percentage", "percent", "0", "writes that repeat earlier ones",
        number<&JobOptions::dedupe_percentage, 0, 100>),
    key("dedupe_mode", "repeat", "repeat", "repeat the last one; working_set is not supported", only<dedupe_words>),
    key("verify", "crc32c|md5|…|pattern|null", "0", "check data that was written", set_verify),
    key("do_verify", "bool", "1", "read back after writing", flag<&JobOptions::do_verify>),
    key("verify_only", "bool", "0", "check what an earlier run wrote", flag<&JobOptions::verify_only>),
    key("verify_interval", "size", "bs", "a header every so many bytes", number<&JobOptions::verify_interval_bytes>),
    key("verify_offset", "size", "0", "where in a block its header is", number<&JobOptions::verify_offset_bytes>),
    key("verify_pattern", "pattern", "", "contents to write and to expect", set_verify_pattern),
    key("verify_header_seed", "bool", "1", "headers must have this job's seed", flag<&JobOptions::verify_header_seed>),
    key("verify_write_sequence", "bool", "1", "headers must be of the last write",
        flag<&JobOptions::verify_write_sequence>),
    key("verify_fatal", "bool", "0", "stop at the first mismatch", flag<&JobOptions::verify_fatal>),
    report_key("verify_dump", "bool", "0", "write expected and found blocks to files", flag<&JobOptions::verify_dump>),
    key("verify_backlog", "int", "0", "verify after so many writes", number<&JobOptions::verify_backlog>),
    key("verify_backlog_batch", "int", "verify_backlog", "how many then", number<&JobOptions::verify_backlog_batch>),
};

}  // namespace

std::span<const Key> data_keys() {
    return table;
}

}  // namespace sampleblk::workload
