// SPDX-License-Identifier: MIT
#include "sampleblk/trace/format.hpp"

#include <algorithm>
#include <charconv>
#include <optional>

#include "sampleblk/error.hpp"
#include "sampleblk/text.hpp"

namespace sampleblk::trace {

namespace {

// Fields lie in records of at most a page's worth of bytes; the kernel's own limit is the 16 bits of __data_loc.
constexpr std::uint32_t kMaxRecord = 1U << 20;

std::string_view trim(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r");
    if (first == std::string_view::npos) {
        return {};
    }
    return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::optional<std::uint32_t> number(std::string_view text) {
    std::uint32_t value = 0;
    text = trim(text);
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (code != std::errc() || end != text.data() + text.size()) {
        return std::nullopt;
    }
    return value;
}

// "key:value;" of a field line; nullopt when the key is missing.
std::optional<std::string_view> part(std::string_view line, std::string_view key) {
    const auto at = line.find(key);
    if (at == std::string_view::npos) {
        return std::nullopt;
    }
    const auto rest = line.substr(at + key.size());
    const auto end = rest.find(';');
    if (end == std::string_view::npos) {
        return std::nullopt;
    }
    return rest.substr(0, end);
}

bool starts_word(std::string_view text, std::string_view word) {
    return text.starts_with(word) && (text.size() == word.size() || text[word.size()] == ' ');
}

// Bytes of one element whose C type is `type`; 0 when we do not know the name.
std::uint32_t type_size(std::string_view type, std::uint8_t long_size) {
    for (const std::string_view prefix : {"const ", "volatile ", "struct ", "enum "}) {
        if (type.starts_with(prefix)) {
            type.remove_prefix(prefix.size());
        }
    }
    if (type.find('*') != std::string_view::npos) {
        return long_size;
    }
    for (const std::string_view name :
         {"char", "unsigned char", "signed char", "u8", "s8", "__u8", "__s8", "bool", "uint8_t", "int8_t", "x8"}) {
        if (type == name) {
            return 1;
        }
    }
    for (const std::string_view name :
         {"short", "unsigned short", "u16", "s16", "__u16", "__s16", "uint16_t", "__le16", "__be16"}) {
        if (type == name) {
            return 2;
        }
    }
    for (const std::string_view name : {"int", "unsigned int", "unsigned", "u32", "s32", "__u32", "__s32", "uint32_t",
                                        "__le32", "__be32", "pid_t", "dev_t"}) {
        if (type == name) {
            return 4;
        }
    }
    for (const std::string_view name :
         {"u64", "s64", "__u64", "__s64", "uint64_t", "unsigned long long", "long long", "sector_t"}) {
        if (type == name) {
            return 8;
        }
    }
    for (const std::string_view name : {"unsigned long", "long", "size_t", "cpumask_t", "unsigned long int"}) {
        if (type == name) {
            return long_size;
        }
    }
    return 0;
}

class FormatParser {
  public:
    FormatParser(const std::string& source, std::uint64_t base) : source_(source), base_(base) {}

    [[nodiscard]] Field field(std::string_view line, std::uint64_t at) const {
        Field out;
        const auto declared = part(line, "field:");
        const auto special = declared ? declared : part(line, "field special:");
        const auto offset = part(line, "offset:");
        const auto size = part(line, "size:");
        if (!special || !offset || !size) {
            fail(at, "\"field:TYPE NAME; offset:N; size:N;\"");
        }
        const auto offset_value = number(*offset);
        const auto size_value = number(*size);
        if (!offset_value || !size_value || *offset_value > kMaxRecord || *size_value > kMaxRecord) {
            fail(at, "an offset and a size in bytes");
        }
        out.offset = *offset_value;
        out.size = *size_value;
        const auto sign = part(line, "signed:");
        out.is_signed = sign && trim(*sign) == "1";
        declaration(trim(*special), out, at);
        return out;
    }

    [[noreturn]] void fail(std::uint64_t at, const std::string& expected) const {
        throw FormatError(source_, base_ + at, expected + " in an event format");
    }

  private:
    void declaration(std::string_view text, Field& out, std::uint64_t at) const {
        const bool data_loc = starts_word(text, "__data_loc");
        const bool rel_loc = starts_word(text, "__rel_loc");
        if (data_loc || rel_loc) {
            text = trim(text.substr(text.find(' ') + 1));
        }
        bool array = false;
        std::optional<std::uint32_t> count;
        std::string_view element = text;
        if (const auto open = text.rfind('['); open != std::string_view::npos) {
            const auto close = text.find(']', open);
            if (close == std::string_view::npos) {
                fail(at, "a closing bracket");
            }
            array = true;
            count = number(text.substr(open + 1, close - open - 1));
            // "char name[16]" or, for __data_loc, "char[] name".
            const auto after = trim(text.substr(close + 1));
            element = trim(text.substr(0, open));
            if (!after.empty()) {
                out.name = std::string(after);
            }
        }
        if (out.name.empty()) {
            const auto cut = element.find_last_of(" *");
            if (cut == std::string_view::npos) {
                fail(at, "a type and a name");
            }
            out.name = std::string(trim(element.substr(cut + 1)));
            element = trim(element.substr(0, cut + 1));
        }
        if (out.name.empty() || element.empty()) {
            fail(at, "a type and a name");
        }
        out.type = (data_loc  ? "__data_loc "
                    : rel_loc ? "__rel_loc "
                              : "") +
                   std::string(element) + (array ? "[]" : "");
        out.is_pointer = !array && (element.find('*') != std::string_view::npos || element == "unsigned long");
        out.is_text = array && (element == "char" || element == "unsigned char" || element == "const char");
        const std::uint32_t known = type_size(element, 8);
        if (data_loc || rel_loc) {
            // A probe's array of strings is "char[][2] name", with a place for each.
            if (out.size == 0 || out.size % 4 != 0) {
                fail(at, "a size of 4 for each __data_loc");
            }
            if (element.ends_with("[]")) {
                element.remove_suffix(2);
            } else {
                out.size = 4;  // of a synthetic event's 8 bytes the others are nothing
            }
            out.kind = data_loc ? FieldKind::data_loc : FieldKind::rel_loc;
            out.element_size = known != 0 ? known : 1;
            out.is_text = element == "char" || element == "const char";
            return;
        }
        if (!array) {
            out.element_size = out.size;
            if (out.size == 0) {
                out.kind = FieldKind::trailing;
                out.element_size = 1;
            } else if (out.size != 1 && out.size != 2 && out.size != 4 && out.size != 8) {
                // A structure: shown as its bytes.
                out.kind = FieldKind::numbers;
                out.element_size = 1;
            }
            return;
        }
        std::uint32_t each = known != 0 ? known : 1;
        if (count && *count != 0 && out.size % *count == 0 && out.size != 0) {
            each = out.size / *count;
        }
        if (each != 1 && each != 2 && each != 4 && each != 8) {
            each = 1;
        }
        out.element_size = each;
        if (out.size == 0) {
            out.kind = out.is_text ? FieldKind::trailing_text : FieldKind::trailing;
        } else {
            if (out.size % each != 0) {
                out.element_size = 1;
            }
            out.kind = out.is_text ? FieldKind::text : FieldKind::numbers;
        }
    }

    const std::string& source_;
    std::uint64_t base_;
};

}  // namespace

const Field* EventFormat::find(std::string_view field) const noexcept {
    for (const Field& candidate : fields) {
        if (candidate.name == field) {
            return &candidate;
        }
    }
    return nullptr;
}

EventFormat parse_event_format(std::string_view text, std::string_view system, const std::string& source,
                               std::uint64_t base) {
    const FormatParser parser(source, base);
    EventFormat out;
    out.system = printable(system);
    out.text = text;
    std::string readable;
    if (!is_utf8(text)) {
        readable = printable(text);
        text = readable;
    }
    bool in_fields = false;
    bool common = true;
    bool has_id = false;
    std::size_t at = 0;
    while (at < text.size()) {
        std::size_t end = text.find('\n', at);
        end = end == std::string_view::npos ? text.size() : end;
        const auto line = trim(text.substr(at, end - at));
        const std::size_t here = at;
        at = end + 1;
        if (line.starts_with("print fmt:")) {
            // The rest of the file, line ends and all.
            out.print_format = std::string(trim(text.substr(here + text.substr(here).find(':') + 1)));
            while (!out.print_format.empty() && out.print_format.back() == '\n') {
                out.print_format.pop_back();
            }
            break;
        }
        if (line.starts_with("name:")) {
            out.name = std::string(trim(line.substr(5)));
        } else if (line.starts_with("ID:")) {
            const auto id = number(line.substr(3));
            if (!id || *id > 0xffff) {
                parser.fail(here, "an ID that fits in common_type's 16 bits");
            }
            out.id = *id;
            has_id = true;
        } else if (line.starts_with("format:")) {
            in_fields = true;
        } else if (line.empty()) {
            if (in_fields && !out.fields.empty() && common) {
                // A blank line parts the common fields from the event's own.
                common = false;
                out.common_fields = out.fields.size();
            }
        } else if (in_fields && line.starts_with("field")) {
            Field field = parser.field(line, here);
            if (field.kind != FieldKind::trailing && field.kind != FieldKind::trailing_text) {
                out.fixed_size = std::max(out.fixed_size, field.offset + field.size);
            }
            out.fields.push_back(std::move(field));
        }
    }
    if (out.name.empty() || !has_id) {
        parser.fail(0, R"("name:" and "ID:")");
    }
    if (common) {
        out.common_fields =
            static_cast<std::size_t>(std::count_if(out.fields.begin(), out.fields.end(), [](const Field& field) {
                return field.name.starts_with("common_");
            }));
    }
    // `unsigned long caller[8]` of stack events is only the format's idea: the record runs on to its end.
    if (out.system == "ftrace" && (out.name == "kernel_stack" || out.name == "user_stack")) {
        for (Field& field : out.fields) {
            if (field.name == "caller" && out.name == "kernel_stack") {
                field.kind = FieldKind::trailing;
                field.size = 0;
                field.element_size = std::max<std::uint32_t>(field.element_size, 4);
                out.fixed_size = field.offset;
            }
        }
    }
    return out;
}

PageLayout parse_page_layout(std::string_view text, bool big_endian, std::uint8_t long_size, std::uint32_t page_size,
                             const std::string& source, std::uint64_t base) {
    PageLayout out;
    out.big_endian = big_endian;
    out.commit_size = long_size;
    out.commit_offset = 8;
    out.data_offset = 8 + static_cast<std::uint32_t>(long_size);
    out.page_size = page_size;
    if (trim(text).empty()) {
        return out;
    }
    const FormatParser parser(source, base);
    bool has_data = false;
    std::size_t at = 0;
    while (at < text.size()) {
        std::size_t end = text.find('\n', at);
        end = end == std::string_view::npos ? text.size() : end;
        const auto line = trim(text.substr(at, end - at));
        if (line.starts_with("field")) {
            const Field field = parser.field(line, at);
            if (field.name == "commit") {
                out.commit_offset = field.offset;
                out.commit_size = static_cast<std::uint8_t>(field.size);
            } else if (field.name == "data") {
                out.data_offset = field.offset;
                out.page_size = field.offset + field.size;
                has_data = true;
            }
        }
        at = end + 1;
    }
    if (!has_data || (out.commit_size != 4 && out.commit_size != 8) || out.data_offset < 12 ||
        out.page_size <= out.data_offset) {
        throw FormatError(source, base, "a header_page with commit (4 or 8 bytes) and data");
    }
    return out;
}

}  // namespace sampleblk::trace
