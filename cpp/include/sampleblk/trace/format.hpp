// SPDX-License-Identifier: MIT
// The kernel's event format files (events/<system>/<event>/format, and header_page): where each field of a record lies.
// Offsets always come from here; they differ between kernels even for ftrace's own events.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sampleblk::trace {

// What events/header_page says.
struct PageLayout {
    bool big_endian = false;
    std::uint8_t commit_size = 8;     // bytes: the kernel's long
    std::uint32_t commit_offset = 8;  // bytes
    std::uint32_t data_offset = 16;   // bytes
    std::uint32_t page_size = 4096;   // bytes, of one sub-buffer
};

enum class FieldKind : std::uint8_t {
    number,         // size bytes, signed or not
    text,           // char[size], up to its NUL
    numbers,        // a fixed array of numbers
    data_loc,       // u32: offset in the record | length << 16
    rel_loc,        // the same, offset from the end of this field
    trailing_text,  // char name[] at the end of the record
    trailing,       // numbers at the end of the record
};

struct Field {
    std::string name;
    std::string type;  // C declaration without the name, such as "const char *" or "__data_loc char[]"
    FieldKind kind = FieldKind::number;
    std::uint32_t offset = 0;        // bytes from the start of the record
    std::uint32_t size = 0;          // bytes in the record; 0 for what runs to its end
    std::uint32_t element_size = 0;  // bytes of one element of an array, or `size`
    bool is_signed = false;
    bool is_text = false;     // the elements are characters
    bool is_pointer = false;  // or unsigned long: an address or a word, shown in hex
};

struct EventFormat {
    std::string system;
    std::string name;
    std::uint32_t id = 0;
    std::vector<Field> fields;  // common fields first, as in the file
    std::size_t common_fields = 0;
    std::uint32_t fixed_size = 0;  // bytes that every record has at least
    std::string print_format;      // the text after "print fmt:"
    std::string_view text;         // the whole file, in the caller's memory

    [[nodiscard]] const Field* find(std::string_view field) const noexcept;
};

// Parses one format file. `source` and `base` say where the text came from, for FormatError.
[[nodiscard]] EventFormat parse_event_format(std::string_view text, std::string_view system, const std::string& source,
                                             std::uint64_t base);

// Parses events/header_page. An empty text stands for a kernel without the file: a u64 and a long of `long_size`.
[[nodiscard]] PageLayout parse_page_layout(std::string_view text, bool big_endian, std::uint8_t long_size,
                                           std::uint32_t page_size, const std::string& source, std::uint64_t base);

}  // namespace sampleblk::trace
